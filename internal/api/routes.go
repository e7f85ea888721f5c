package api

import (
	"net/http"
	"reflect"
	"slices"

	"hob"
)

// route is one door of the API. The OpenAPI document and the matrix of rights in the tests are made from these.
type route struct {
	method, path string
	handle       func(*call) error
	create       prepareFunc // in the place of handle, for what makes something
	scope        hob.Scope   // needed; "" = any caller with a key, what it sees decides the store
	open         bool        // needs no key
	local        bool        // needs none on this machine
	bigBody      bool        // Limits.BigBody instead of Limits.Body
	stream       bool        // answers with events
	upload       bool        // takes any bytes as its body
	download     bool        // answers with a file

	tag, summary string
	in           any   // the body's type, nil for none
	out          any   // the answer's type, nil for none or no JSON
	bodyless     bool  // the body may be left out
	status       int   // of success
	also         int   // a further status of success, with the same body
	errors       []int // that are special to it; those of every route come on top
	query        []param

	fields []string // the body's, from in
}

// param is a parameter of the query or a header.
type param struct{ name, kind, about string }

// The groups of the reference.
const (
	tagAgents    = "Agents"
	tagTools     = "Tools"
	tagHooks     = "Hooks"
	tagRuns      = "Runs"
	tagSessions  = "Sessions"
	tagApprovals = "Approvals"
	tagKeys      = "Keys"
	tagSettings  = "Settings"
	tagModels    = "Model providers"
	tagUsage     = "Usage"
	tagAudit     = "Audit"
	tagServer    = "Server"
)

// routes is the table of all routes.
func routes() []route {
	const get, post, patch, put, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete
	const read, run, configure, admin = hob.ScopeRead, hob.ScopeRun, hob.ScopeConfigure, hob.ScopeAdmin
	list := []route{
		{method: get, path: "/api/agents", handle: listAgents, scope: read, tag: tagAgents, summary: "List agents", out: agentList{}, status: 200, query: agentListQuery()},
		{method: post, path: "/api/agents", create: createAgent, scope: configure, tag: tagAgents, summary: "Create an agent", in: agentInput{}, out: agentAnswer{}, status: 201},
		{method: get, path: "/api/agents/{id}", handle: getAgent, scope: read, tag: tagAgents, summary: "Get an agent", out: agentAnswer{}, status: 200, errors: []int{404}},
		{method: patch, path: "/api/agents/{id}", handle: updateAgent, scope: configure, tag: tagAgents, summary: "Change an agent; settings are replaced whole", in: agentInput{}, out: agentAnswer{}, status: 200, errors: []int{404}},
		{method: del, path: "/api/agents/{id}", handle: deleteAgent, scope: configure, tag: tagAgents, summary: "Delete an agent and its tool assignments; its sessions stay", out: messageAnswer{}, status: 200, errors: []int{404}},

		{method: get, path: "/api/agents/{id}/tools", handle: listAssignments, scope: read, tag: tagAgents, summary: "List an agent's tools", out: assignmentList{}, status: 200, errors: []int{404}},
		{method: get, path: "/api/agents/{id}/tools/effective", handle: listEffective, scope: read, tag: tagAgents, summary: "List what the agent's next run would be offered, assigned or named by its tool_ids, and what not and why", out: effectiveList{}, status: 200, errors: []int{404}},
		{method: post, path: "/api/agents/{id}/tools", create: assign, scope: configure, tag: tagAgents, summary: "Give an agent a tool", in: assignmentInput{}, out: assignmentAnswer{}, status: 201, errors: []int{404, 409}},
		{method: patch, path: "/api/agents/{id}/tools/{assignment_id}", handle: updateAssignment, scope: configure, tag: tagAgents, summary: "Replace the configuration of an agent's tool", in: overrideInput{}, bodyless: true, out: assignmentAnswer{}, status: 200, errors: []int{404}},
		{method: del, path: "/api/agents/{id}/tools/{assignment_id}", handle: unassign, scope: configure, tag: tagAgents, summary: "Take a tool from an agent", out: deletedAnswer{}, status: 200, errors: []int{404}},

		{method: post, path: "/api/agents/{id}/run", handle: runSync, scope: run, bigBody: true, tag: tagRuns, summary: "Run an agent and wait for its answer", in: runInput{}, out: hob.RunResult{}, status: 200, errors: []int{404, 409, 413, 422, 503}, query: idempotencyParam()},
		{method: post, path: "/api/agents/{id}/run/stream", handle: runStream, scope: run, bigBody: true, stream: true, tag: tagRuns, summary: "Run an agent and stream its events", in: runInput{}, status: 200, errors: []int{404, 409, 413, 422, 503}, query: idempotencyParam()},
		{method: get, path: "/api/agents/runs/{run_id}", handle: getRun, tag: tagRuns, summary: "Get a run with its whole story", out: hob.RunRecord{}, status: 200, errors: []int{404}},
		{method: get, path: "/api/agents/runs/{run_id}/events", handle: runEvents, stream: true, tag: tagRuns, summary: "Follow a run's events from any position", status: 200, errors: []int{404}, query: eventsQuery()},
		{method: post, path: "/api/agents/runs/{run_id}/cancel", handle: cancelRun, scope: run, tag: tagRuns, summary: "Cancel a run; one that has ended answers 200 with its end", out: cancelAnswer{}, status: 202, also: 200, errors: []int{404}},

		{method: get, path: "/api/runs/held", handle: listHeld, scope: admin, tag: tagRuns, summary: "List the runs that a restore brought back unfinished and that wait until they are released", out: heldList{}, status: 200},
		{method: post, path: "/api/runs/held/release", handle: releaseHeld, scope: admin, tag: tagRuns, summary: "Let held runs go on; one that is not held any more stays as it is, an id that is no run's is 404 and releases none", in: releaseInput{}, out: releasedAnswer{}, status: 200, errors: []int{404}},

		{method: get, path: "/api/agents/{id}/sessions", handle: listSessions, scope: read, tag: tagSessions, summary: "List an agent's sessions", out: sessionList{}, status: 200, errors: []int{404}, query: sessionListQuery()},
		{method: post, path: "/api/agents/{id}/sessions", create: createSession, scope: run, bigBody: true, tag: tagSessions, summary: "Create a session, seeded with earlier turns where given", in: sessionInput{}, bodyless: true, out: sessionCreated{}, status: 201, errors: []int{404, 413}},
		{method: del, path: "/api/agents/{id}/sessions/{session_id}", handle: deleteAgentSession, scope: run, tag: tagSessions, summary: "Delete an agent's session with its runs", status: 204, errors: []int{404}},
		{method: get, path: "/api/sessions/{session_id}", handle: getSession, scope: read, tag: tagSessions, summary: "Get a session", out: hob.Session{}, status: 200, errors: []int{404}},
		{method: get, path: "/api/sessions/{session_id}/messages", handle: listMessages, scope: read, tag: tagSessions, summary: "List the messages of a session's completed runs", out: messageList{}, status: 200, errors: []int{404}, query: limitQuery("of runs, from the oldest; all where absent, at most 200 where given")},
		{method: get, path: "/api/sessions/{session_id}/runs", handle: listRuns, scope: read, tag: tagSessions, summary: "List a session's runs with their stories", out: runList{}, status: 200, errors: []int{404}, query: pageQuery("at most 100, which is also the default")},
		{method: get, path: "/api/sessions/{session_id}/runs/{run_id}/retrieved-context", handle: retrievedContext, scope: read, tag: tagSessions, summary: "Get what a run retrieved", out: retrievedAnswer{}, status: 200, errors: []int{404}},
		{method: del, path: "/api/sessions/{session_id}", handle: deleteSession, scope: run, tag: tagSessions, summary: "Delete a session with its runs", out: sessionDeleted{}, status: 200, errors: []int{404}},

		{method: get, path: "/api/tools", handle: listTools, scope: read, tag: tagTools, summary: "List tools, builtin ones first", out: toolList{}, status: 200},
		{method: post, path: "/api/tools", create: createTool, scope: configure, tag: tagTools, summary: "Create a tool", in: toolInput{}, out: toolAnswer{}, status: 201, errors: []int{409}},
		{method: get, path: "/api/tools/{id}", handle: getTool, scope: read, tag: tagTools, summary: "Get a tool, by its id or name", out: toolAnswer{}, status: 200, errors: []int{404}},
		{method: put, path: "/api/tools/{id}", handle: updateTool, scope: configure, tag: tagTools, summary: "Change a tool: what is given, also of config; of a builtin one is_active, description_suffix and config", in: toolInput{}, out: toolAnswer{}, status: 200, errors: []int{404, 409}},
		{method: del, path: "/api/tools/{id}", handle: deleteTool, scope: configure, tag: tagTools, summary: "Delete a tool, its versions and its assignments; the answer names the agents that had it", out: toolDeleted{}, status: 200, errors: []int{404, 409}},
		{method: post, path: "/api/tools/{id}/test", handle: testTool, scope: admin, tag: tagTools, summary: "Try a tool, by its id or name: one call outside of any run, through all that a run's calls pass", in: toolTestInput{}, bodyless: true, out: toolTestAnswer{}, status: 200, errors: []int{404, 409, 429, 503}, query: tryParam()},
		{method: get, path: "/api/tools/{id}/versions", handle: listVersions, scope: read, tag: tagTools, summary: "List what a tool was after each change, newest first", out: versionList{}, status: 200, errors: []int{404}, query: pageQuery("20 where absent, at most 100")},
		{method: post, path: "/api/tools/{id}/versions/{version}/restore", handle: restoreVersion, scope: configure, tag: tagTools, summary: "Make a tool what it was at a version, its secrets included; whether it is switched on stays as it is", out: toolAnswer{}, status: 200, errors: []int{400, 404, 409}},

		{method: get, path: "/api/keys", handle: listKeys, scope: hob.ScopeAdmin, tag: tagKeys, summary: "List API keys", out: keyList{}, status: 200},
		{method: post, path: "/api/keys", create: createKey, scope: hob.ScopeAdmin, tag: tagKeys, summary: "Create an API key; its secret is shown this once", in: keyInput{}, out: keyCreated{}, status: 201},
		{method: get, path: "/api/keys/{key_id}", handle: getKey, scope: hob.ScopeAdmin, tag: tagKeys, summary: "Get an API key", out: hob.Key{}, status: 200, errors: []int{404}},
		{method: del, path: "/api/keys/{key_id}", handle: revokeKey, scope: hob.ScopeAdmin, tag: tagKeys, summary: "Revoke an API key", out: keyRevoked{}, status: 200, errors: []int{404}},

		{method: get, path: "/api/settings", handle: listSettings, scope: admin, tag: tagSettings, summary: "List the workspace's settings by category", out: settingsAnswer{}, status: 200, errors: []int{503}},
		{method: put, path: "/api/settings", handle: putSettings, scope: admin, tag: tagSettings, summary: "Change settings, all or none", in: settingsInput{}, out: settingsChanged{}, status: 200, errors: []int{503}},
		{method: get, path: "/api/settings/{key}", handle: getSetting, scope: admin, tag: tagSettings, summary: "Get one setting, as the list has it", out: hob.Setting{}, status: 200, errors: []int{404, 503}},
		{method: put, path: "/api/settings/{key}", handle: putSetting, scope: admin, tag: tagSettings, summary: "Change one setting", in: settingInput{}, out: settingChanged{}, status: 200, errors: []int{404, 503}},
		{method: del, path: "/api/settings/{key}", handle: resetSetting, scope: admin, tag: tagSettings, summary: "Give a setting its default again", out: settingReset{}, status: 200, errors: []int{404, 503}},
		{method: post, path: "/api/settings/reset-category", handle: resetCategory, scope: admin, tag: tagSettings, summary: "Give all settings of a category their defaults again", in: categoryInput{}, out: categoryReset{}, status: 200, errors: []int{503}},

		{method: get, path: "/api/ai-provider-keys", handle: listProviderKeys, scope: admin, tag: tagModels, summary: "List the workspace's keys for model providers, masked", out: providerKeyList{}, status: 200},
		{method: get, path: "/api/ai-provider-keys/platform_supported", handle: platformProviders, scope: admin, tag: tagModels, summary: "List the providers that the operator configured, which need no key of the workspace", out: providersAnswer{}, status: 200},
		{method: post, path: "/api/ai-provider-keys", create: putProviderKey, scope: admin, tag: tagModels, summary: "Set the key for a provider, or an endpoint that speaks OpenAI's API", in: providerKeyInput{}, out: providerKeyAnswer{}, status: 201, also: 200},
		{method: put, path: "/api/ai-provider-keys", handle: putProviderKeys, scope: admin, tag: tagModels, summary: "Set keys for several providers, all or none; null and empty ones stay as they are", in: providerKeysInput{}, out: providerKeyList{}, status: 200},
		{method: del, path: "/api/ai-provider-keys/{provider}", handle: deleteProviderKey, scope: admin, tag: tagModels, summary: "Delete the key for a provider", status: 204, errors: []int{400, 404}},
		{method: post, path: "/api/ai-provider-keys/validate", handle: validateProviderKey, scope: admin, tag: tagModels, summary: "Ask a provider whether it takes a key; nothing is stored", in: providerKeyInput{}, out: validAnswer{}, status: 200},
		{method: get, path: "/api/provider-profiles", handle: listProfiles, scope: admin, tag: tagModels, summary: "List what probing models at their endpoints found", out: profileList{}, status: 200},
		{method: put, path: "/api/provider-profiles", handle: putProfile, scope: admin, tag: tagModels, summary: "Keep what probing a model found", in: profileInput{}, out: profileAnswer{}, status: 200},
		{method: del, path: "/api/provider-profiles", handle: deleteProfile, scope: admin, tag: tagModels, summary: "Forget what probing a model found", status: 204, query: profileQuery(), errors: []int{404}},

		{method: get, path: "/api/usage", handle: reportUsage, scope: read, tag: tagUsage, summary: "Report tokens, cost and counts from the usage ledger", out: usageAnswer{}, status: 200, query: usageQuery()},

		{method: get, path: "/api/me", handle: whoAmI, tag: tagServer, summary: "Say who the key or token is", out: meAnswer{}, status: 200},
		{method: get, path: "/health", handle: health, open: true, tag: tagServer, summary: "Say that the server runs", out: healthAnswer{}, status: 200},
		{method: get, path: "/api/health", handle: health, open: true, tag: tagServer, summary: "Say that the server runs", out: healthAnswer{}, status: 200},
		{method: get, path: "/health/ready", handle: ready, open: true, tag: tagServer, summary: "Say whether the server can take runs", out: readyAnswer{}, status: 200, errors: []int{503}},
		{method: get, path: "/metrics", handle: exposeMetrics, scope: hob.ScopeAdmin, local: true, tag: tagServer, summary: "Counters in Prometheus' text format; on this machine without a key", status: 200},
		{method: get, path: "/api/openapi.json", handle: serveOpenAPI, open: true, tag: tagServer, summary: "This document", status: 200},
		{method: get, path: "/docs", handle: servePage("docs.html"), open: true, status: 200},
		{method: get, path: "/docs/docs.js", handle: servePage("docs.js"), open: true, status: 200},
		{method: get, path: "/docs/copy.js", handle: servePage("copy.js"), open: true, status: 200},
		{method: get, path: "/docs/index.js", handle: servePage("index.js"), open: true, status: 200},
		{method: get, path: "/docs/favicon.svg", handle: servePage("favicon.svg"), open: true, status: 200},
		{method: get, path: "/docs/docs.css", handle: servePage("docs.css"), open: true, status: 200},
		{method: get, path: "/{$}", handle: serveIndex, open: true, status: 200},
	}
	list = append(list, auditRoutes()...)
	list = slices.Concat(list, peopleRoutes(), storageRoutes())
	for i := range list {
		if list[i].in != nil {
			list[i].fields = fieldsOf(reflect.TypeOf(list[i].in), nil)
		}
		list[i].complete()
	}
	return list
}

func pageQuery(limit string) []param {
	return append(limitQuery(limit), param{"offset", "integer", "how many to skip"})
}

func limitQuery(about string) []param { return []param{{"limit", "integer", "how many: " + about}} }

func agentListQuery() []param {
	return append(pageQuery("50 where absent, at most 200"),
		param{"q", "string", "part of the name"},
		param{"sort", "string", "created_at (default), name, updated_at or last_run_at"},
		param{"order", "string", "desc (default) or asc"})
}

func sessionListQuery() []param {
	return append(pageQuery("50 where absent, at most 200"),
		param{"search", "string", "text in a message, or the session's id"},
		param{"created_after", "string", "a day or a time (RFC 3339)"},
		param{"created_before", "string", "a day, included, or a time"},
		param{"min_runs", "integer", "least number of runs"},
		param{"max_runs", "integer", "greatest number of runs"})
}

func eventsQuery() []param {
	return []param{
		{"after", "integer", "the last event you have; 0 or absent: from the start"},
		{"Last-Event-ID", "header", "the same, as browsers send it; it wins over after"},
	}
}

func tryParam() []param {
	return []param{{idempotencyHeader, "header", "the same request under the same key has the same key for the tool, too: tools that remember what they did under it do it once"}}
}

func idempotencyParam() []param {
	return []param{{idempotencyHeader, "header", "the same key with the same body gives the same run, with the header " + replayedHeader + ": true, for 24 hours; with another body 422"}}
}
