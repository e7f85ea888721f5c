package api

import (
	"net/http"

	"hob"
)

// peopleRoutes are the routes of hooks and approvals.
func peopleRoutes() []route {
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	const read, configure = hob.ScopeRead, hob.ScopeConfigure
	return []route{
		{method: get, path: "/api/agents/{id}/hooks", handle: listHooks, scope: read, tag: tagHooks, summary: "List an agent's hooks in the order in which they are asked", out: hookList{}, status: 200, errors: []int{404}},
		{method: post, path: "/api/agents/{id}/hooks", create: createHook, scope: configure, tag: tagHooks, summary: "Add a hook to an agent; the secret that signs its requests is shown this once", in: hookInput{}, out: hookAnswer{}, status: 201, errors: []int{404, 409}},
		{method: get, path: "/api/agents/{id}/hooks/{hook_id}", handle: getHook, scope: read, tag: tagHooks, summary: "Get a hook", out: hookAnswer{}, status: 200, errors: []int{404}},
		{method: patch, path: "/api/agents/{id}/hooks/{hook_id}", handle: updateHook, scope: configure, tag: tagHooks, summary: "Switch a hook on or off, or move it; nothing else of it changes", in: hookChange{}, out: hookAnswer{}, status: 200, errors: []int{404}},
		{method: del, path: "/api/agents/{id}/hooks/{hook_id}", handle: deleteHook, scope: configure, tag: tagHooks, summary: "Delete a hook; runs under way keep it", out: deletedAnswer{}, status: 200, errors: []int{404}},
		{method: get, path: "/api/agents/{id}/hooks/{hook_id}/deliveries", handle: listDeliveries, scope: configure, tag: tagHooks, summary: "List what is told to a hook beside its runs (OnRunComplete, and approvals to notify_url), newest first", out: deliveryList{}, status: 200, errors: []int{404}, query: limitQuery("50 where absent, at most 200")},

		{method: get, path: "/api/agents/runs/{run_id}/approvals", handle: listApprovals, tag: tagApprovals, summary: "List what a run waits for, or waited, oldest first", out: approvalList{}, status: 200, errors: []int{404}, query: statusQuery()},
		{method: post, path: "/api/agents/runs/{run_id}/approve", handle: approve, scope: hob.ScopeApprove, tag: tagApprovals, summary: "Decide what a run waits for", in: approveInput{}, out: approveAnswer{}, status: 200, errors: []int{404, 409}},
		{method: get, path: "/api/approvals", handle: listInbox, tag: tagApprovals, summary: "List the approvals that the caller may decide or sees otherwise, of all runs, oldest first", out: inbox{}, status: 200, query: inboxQuery()},
		{method: get, path: "/api/approvals/{approval_id}", handle: getApproval, tag: tagApprovals, summary: "Get an approval", out: hob.Approval{}, status: 200, errors: []int{404}},
	}
}

func statusQuery() []param {
	return []param{{"status", "string", "pending, approved, denied, expired or cancelled; all where absent"}}
}

func inboxQuery() []param {
	return append(append(statusQuery(), pageQuery("50 where absent, at most 200")...),
		param{"agent_id", "string", "of which agent"}, param{"run_id", "string", "of which run"})
}
