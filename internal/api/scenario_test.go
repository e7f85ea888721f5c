package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/pgtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/name, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", path, diff)
	}
}

// step is one request of the scenario and the status it must have. $name in path and body stands for what an earlier
// step kept; keep is "name=field" of the answer.
type step struct {
	name, method, path, body string
	status                   int
	keep                     string
}

const (
	toolBody = `"description":"weather","type":"http","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}`
	noUUID   = "00000000-0000-4000-8000-000000000000"
)

// The scenario: every route, its success and its refusals, in one workspace.
func scenario() []step {
	return []step{
		{"health", "GET", "/health", "", 200, ""},
		{"health behind the gateway's path", "GET", "/api/health", "", 200, ""},
		{"ready", "GET", "/health/ready", "", 200, ""},
		{"who am I", "GET", "/api/me", "", 200, ""},
		{"nothing there", "GET", "/api/nothing", "", 404, ""},
		{"nothing there, below an agent", "GET", "/api/agents/" + noUUID + "/nothing", "", 404, ""},
		{"unclean path", "GET", "/api//agents", "", 404, ""},
		{"wrong method", "PUT", "/api/agents", "{}", 405, ""},
		{"wrong method on a run", "DELETE", "/api/agents/runs/run_000000000000", "", 405, ""},

		{"agent without name", "POST", "/api/agents", `{"model":"fixed"}`, 400, ""},
		{"agent with a blank name", "POST", "/api/agents", `{"name":"  "}`, 400, ""},
		{"agent whose name is no text", "POST", "/api/agents", `{"name":7}`, 400, ""},
		{"agent from no JSON", "POST", "/api/agents", `{"name":`, 400, ""},
		{"agent from nothing", "POST", "/api/agents", ``, 400, ""},
		{"agent from a list", "POST", "/api/agents", `[]`, 400, ""},
		{"agent from null", "POST", "/api/agents", `null`, 400, ""},
		{"agent from two values", "POST", "/api/agents", `{"name":"a"} {}`, 400, ""},
		{"agent with a key twice", "POST", "/api/agents", `{"name":"a","name":"b"}`, 400, ""},
		{"agent with NUL", "POST", "/api/agents", `{"name":"a\u0000b"}`, 400, ""},
		{"agent with wrong settings", "POST", "/api/agents", `{"name":"a","settings":{"max_steps":"many"}}`, 400, ""},
		{"agent with settings out of range", "POST", "/api/agents", `{"name":"a","settings":{"temperature":3}}`, 400, ""},
		{"agent without model", "POST", "/api/agents", `{"name":"demo"}`, 201, ""},
		{"agent with a model nobody serves", "POST", "/api/agents", `{"name":"later","model":"gpt-9"}`, 201, ""},
		{"agent with unknown fields", "POST", "/api/agents", `{"name":"helper","model":"fixed","tools":["x"],"temperature":1,"Name":"other"}`, 201, "agent=id"},
		{"agent", "GET", "/api/agents/$agent", "", 200, ""},
		{"absent agent", "GET", "/api/agents/" + noUUID, "", 404, ""},
		{"agent by no id", "GET", "/api/agents/7", "", 404, ""},
		{"agents", "GET", "/api/agents?q=help&sort=name&order=asc&limit=1000", "", 200, ""},
		{"agents, odd bounds", "GET", "/api/agents?q=nobody&limit=x&offset=-1", "", 200, ""},
		{"agents by a bad sort", "GET", "/api/agents?sort=secret", "", 400, ""},
		{"agents in a bad order", "GET", "/api/agents?order=up", "", 400, ""},
		{"agents by NUL", "GET", "/api/agents?q=%00", "", 400, ""},
		{"change nothing", "PATCH", "/api/agents/$agent", "", 400, ""},
		{"change an empty object", "PATCH", "/api/agents/$agent", "{}", 400, ""},
		{"change unknown fields only", "PATCH", "/api/agents/$agent", `{"colour":"red"}`, 400, ""},
		{"change the name to null", "PATCH", "/api/agents/$agent", `{"name":null}`, 400, ""},
		{"change an absent agent", "PATCH", "/api/agents/" + noUUID, `{"name":"x"}`, 404, ""},
		{"change", "PATCH", "/api/agents/$agent", `{"system_prompt":"Be brief.","settings":{"max_steps":3},"colour":1}`, 200, ""},
		{"change the prompt back to none", "PATCH", "/api/agents/$agent", `{"system_prompt":null}`, 200, ""},

		{"tool without a schema", "POST", "/api/tools", `{"name":"weather","description":"d","type":"http"}`, 400, ""},
		{"tool of an unknown type", "POST", "/api/tools", `{"name":"weather","description":"d","type":"soap","input_schema":{"type":"object"}}`, 400, ""},
		{"tool with a bad name", "POST", "/api/tools", `{"name":"the weather",` + toolBody + `}`, 400, ""},
		{"tool with a reserved name", "POST", "/api/tools", `{"name":"mcp__x",` + toolBody + `}`, 400, ""},
		{"tool with a builtin's name", "POST", "/api/tools", `{"name":"clock",` + toolBody + `}`, 409, ""},
		{"tool without an address", "POST", "/api/tools", `{"name":"weather",` + toolBody + `}`, 400, ""},
		{"tool with a private address", "POST", "/api/tools", `{"name":"weather","endpoint_url":"http://127.0.0.1/x",` + toolBody + `}`, 400, ""},
		{"tool with a bad method", "POST", "/api/tools", `{"name":"weather","config":{"endpoint":"https://x.example","method":"TRACE"},` + toolBody + `}`, 400, ""},
		{"tool with a header that is ours", "POST", "/api/tools", `{"name":"weather","config":{"endpoint":"https://x.example","headers":{"Host":"a"}},` + toolBody + `}`, 400, ""},
		{"tool with a split header", "POST", "/api/tools", `{"name":"weather","config":{"endpoint":"https://x.example","headers":{"X-A":"a\r\nB: c"}},` + toolBody + `}`, 400, ""},
		{"tool with a mask from nowhere", "POST", "/api/tools", `{"name":"weather","config":{"endpoint":"https://x.example","headers":{"X-A":"` + hob.Mask + `"}},` + toolBody + `}`, 400, ""},
		{"tool whose header is no text", "POST", "/api/tools", `{"name":"weather","config":{"endpoint":"https://x.example","headers":{"X-A":1}},` + toolBody + `}`, 400, ""},
		{"tool with a remote schema", "POST", "/api/tools", `{"name":"weather","description":"d","type":"http","endpoint":"https://x.example","input_schema":{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}}`, 400, ""},
		{"tool with too much time", "POST", "/api/tools", `{"name":"weather","endpoint":"https://x.example","timeout_seconds":1e9,` + toolBody + `}`, 400, ""},
		{"tool", "POST", "/api/tools", `{"name":"weather","endpoint_url":"https://api.example.com/w","method":"get","config":{"headers":{"X-Key":"s3cret"},"colour":1},` + toolBody + `}`, 201, "tool=id"},
		{"the same name again", "POST", "/api/tools", `{"name":"weather","endpoint":"https://x.example",` + toolBody + `}`, 409, ""},
		{"tools", "GET", "/api/tools", "", 200, ""},
		{"one tool", "GET", "/api/tools/$tool", "", 200, ""},
		{"absent tool", "GET", "/api/tools/" + noUUID, "", 404, ""},
		{"change nothing of a tool", "PUT", "/api/tools/$tool", "{}", 400, ""},
		{"change a tool", "PUT", "/api/tools/$tool", `{"description":"the weather","timeout_seconds":5}`, 200, ""},
		{"keep a header by its mask", "PUT", "/api/tools/$tool", `{"config":{"endpoint":"https://api.example.com/w","headers":{"X-Key":"` + hob.Mask + `"}}}`, 200, ""},
		{"move a tool: its secrets stay behind", "PUT", "/api/tools/$tool", `{"endpoint":"https://elsewhere.example.com/"}`, 200, ""},
		{"change an absent tool", "PUT", "/api/tools/" + noUUID, `{"name":"x"}`, 404, ""},

		{"assign nothing", "POST", "/api/agents/$agent/tools", `{"tool_type":"builtin"}`, 400, ""},
		{"assign to an absent agent", "POST", "/api/agents/" + noUUID + "/tools", `{"tool_name":"clock"}`, 404, ""},
		{"assign an unknown tool", "POST", "/api/agents/$agent/tools", `{"tool_name":"nothing"}`, 400, ""},
		{"assign an unknown type", "POST", "/api/agents/$agent/tools", `{"tool_name":"clock","tool_type":"magic"}`, 400, ""},
		{"assign a custom tool as builtin", "POST", "/api/agents/$agent/tools", `{"tool_name":"weather","tool_type":"builtin"}`, 400, ""},
		{"assign an absent id", "POST", "/api/agents/$agent/tools", `{"tool_id":"` + noUUID + `"}`, 400, ""},
		{"assign with rules", "POST", "/api/agents/$agent/tools", `{"tool_name":"clock","config_override":{"rules":[{"condition":"x"}]}}`, 400, ""},
		{"assign with a config that is none", "POST", "/api/agents/$agent/tools", `{"tool_name":"clock","config_override":[]}`, 400, ""},
		{"assign system tables", "POST", "/api/agents/$agent/tools", `{"tool_name":"database_query","config_override":{"schemas":{"pg_catalog":["x"]}}}`, 400, ""},
		{"assign a builtin tool", "POST", "/api/agents/$agent/tools", `{"tool_name":"clock"}`, 201, ""},
		{"assign it again", "POST", "/api/agents/$agent/tools", `{"tool_name":"clock"}`, 409, ""},
		{"assign the database without tables", "POST", "/api/agents/$agent/tools", `{"tool_name":"database_query","config_override":{"schemas":{"main":[]}}}`, 201, "assignment=id"},
		{"assign a custom tool by its name", "POST", "/api/agents/$agent/tools", `{"tool_name":"weather","tool_type":"http","config_override":{"city":"Rome","planet":"Mars"}}`, 201, ""},
		{"assignments", "GET", "/api/agents/$agent/tools", "", 200, ""},
		{"change an assignment", "PATCH", "/api/agents/$agent/tools/$assignment", `{"config_override":{"schemas":{"main":["orders"]}}}`, 200, ""},
		{"change an assignment to rules", "PATCH", "/api/agents/$agent/tools/$assignment", `{"config_override":{"rules":[1]}}`, 400, ""},
		{"change an assignment to system tables", "PATCH", "/api/agents/$agent/tools/$assignment", `{"config_override":{"schemas":{"pg_catalog":["x"]}}}`, 400, ""},
		{"change nothing of an assignment", "PATCH", "/api/agents/$agent/tools/$assignment", `{"tool_name":"x"}`, 200, ""},
		{"change an absent assignment", "PATCH", "/api/agents/$agent/tools/" + noUUID, `{"config_override":{}}`, 404, ""},
		{"unassign", "DELETE", "/api/agents/$agent/tools/$assignment", "", 200, ""},
		{"unassign again", "DELETE", "/api/agents/$agent/tools/$assignment", "", 404, ""},
		{"try a tool", "POST", "/api/tools/clock/test", `{"arguments":{"zone":"UTC"},"colour":1}`, 200, ""},
		{"try a tool with bad arguments", "POST", "/api/tools/clock/test", `{"arguments":{"zone":1}}`, 200, ""},
		{"try a tool with a model's text", "POST", "/api/tools/clock/test", `{"arguments_text":"{\"zone\":"}`, 200, ""},
		{"try a tool with both", "POST", "/api/tools/clock/test", `{"arguments":{},"arguments_text":"{}"}`, 400, ""},
		{"try a tool with a bad config", "POST", "/api/tools/clock/test", `{"config_override":{"rules":[1]}}`, 400, ""},
		{"try a tool with a config that does nothing", "POST", "/api/tools/clock/test", `{"config_override":{"planet":"mars"}}`, 200, ""},
		{"try a tool as an agent has it", "POST", "/api/tools/clock/test", `{"agent_id":"$agent"}`, 200, ""},
		{"try a tool as an agent without it", "POST", "/api/tools/database_query/test", `{"agent_id":"$agent"}`, 400, ""},
		{"try a tool as no agent", "POST", "/api/tools/clock/test", `{"agent_id":"tester"}`, 400, ""},
		{"try a tool as an absent agent", "POST", "/api/tools/clock/test", `{"agent_id":"` + noUUID + `"}`, 404, ""},
		{"try a tool without effect", "POST", "/api/tools/clock/test", `{"dry_run":true}`, 400, ""},
		{"try a tool that nobody carries out", "POST", "/api/tools/$tool/test", `{}`, 409, ""},
		{"try an absent tool", "POST", "/api/tools/" + noUUID + "/test", `{}`, 404, ""},
		{"try a tool that is none", "POST", "/api/tools/nothing/test", `{}`, 404, ""},
		{"versions of a tool", "GET", "/api/tools/$tool/versions", "", 200, ""},
		{"a tool by its name", "GET", "/api/tools/weather", "", 200, ""},
		{"try a tool by its name that nobody carries out", "POST", "/api/tools/weather/test", `{}`, 409, ""},
		{"change a tool by its name", "PUT", "/api/tools/weather", `{"description":"the weather by name"}`, 200, ""},
		{"versions of a tool by its name", "GET", "/api/tools/weather/versions", "", 200, ""},
		{"versions of an absent tool", "GET", "/api/tools/" + noUUID + "/versions", "", 404, ""},
		{"restore a version", "POST", "/api/tools/$tool/versions/1/restore", "", 200, ""},
		{"restore an absent version", "POST", "/api/tools/$tool/versions/9/restore", "", 404, ""},
		{"restore no version", "POST", "/api/tools/$tool/versions/first/restore", "", 404, ""},
		{"switch a tool off", "PUT", "/api/tools/$tool", `{"is_active":false}`, 200, ""},
		{"restore a version of a tool that is off", "POST", "/api/tools/$tool/versions/2/restore", "", 200, ""},
		{"assignments with one that is off", "GET", "/api/agents/$agent/tools", "", 200, ""},
		{"change the type of a tool", "PUT", "/api/tools/$tool", `{"type":"web"}`, 400, ""},
		{"change a tool to a builtin's name", "PUT", "/api/tools/$tool", `{"name":"clock"}`, 409, ""},
		{"change a tool to a private address", "PUT", "/api/tools/$tool", `{"url":"http://127.0.0.1/x"}`, 400, ""},
		{"tool of type mcp", "POST", "/api/tools", `{"name":"m","description":"d","type":"mcp","input_schema":{"type":"object"}}`, 400, ""},
		{"tool of type builtin", "POST", "/api/tools", `{"name":"m","description":"d","kind":"builtin","input_schema":{"type":"object"}}`, 400, ""},
		{"tool whose kind is another than its type", "POST", "/api/tools", `{"name":"m","kind":"web",` + toolBody + `}`, 400, ""},
		{"tool with an effect that is not its to have", "POST", "/api/tools", `{"name":"m","config":{"endpoint":"https://x.example","effect":"admin"},` + toolBody + `}`, 400, ""},
		{"tool with a schema of a list", "POST", "/api/tools", `{"name":"m","description":"d","type":"http","url":"https://x.example","input_schema":{"type":"array"}}`, 400, ""},
		{"tool in other words", "POST", "/api/tools", `{"name":"other-words","description":"d","kind":"http","url":"https://x.example","timeout_ms":1500,"input_schema":{"type":"object"},"config":{"effect":"read"},"description_suffix":"x"}`, 201, "words=id"},
		{"web tool", "POST", "/api/tools", `{"name":"news","description":"d","type":"web","input_schema":{"type":"object"},"config":{"allowed_domains":["example.com"],"max_uses":2}}`, 201, ""},
		{"builtin tool", "GET", "/api/tools/clock", "", 200, ""},
		{"change a builtin tool", "PUT", "/api/tools/clock", `{"is_active":false,"description_suffix":" Times are UTC. ","config":{"zone":"UTC","planet":1}}`, 200, ""},
		{"change it to the same", "PUT", "/api/tools/clock", `{"description_suffix":null,"config":null}`, 200, ""},
		{"change what is the platform's", "PUT", "/api/tools/clock", `{"name":"watch","is_active":true}`, 400, ""},
		{"change a builtin tool's switch to nothing", "PUT", "/api/tools/clock", `{"is_active":null}`, 400, ""},
		{"change nothing of a builtin tool", "PUT", "/api/tools/clock", `{}`, 400, ""},
		{"change a builtin tool's config to a list", "PUT", "/api/tools/clock", `{"config":[]}`, 400, ""},
		{"change a builtin tool's config to rules", "PUT", "/api/tools/clock", `{"config":{"rules":[1]}}`, 400, ""},
		{"delete a builtin tool", "DELETE", "/api/tools/clock", "", 409, ""},
		{"versions of a builtin tool", "GET", "/api/tools/clock/versions", "", 404, ""},
		{"restore a builtin tool", "POST", "/api/tools/clock/versions/1/restore", "", 404, ""},
		{"tools with some that are not available", "GET", "/api/tools", "", 200, ""},
		{"tool_ids that are no list", "PATCH", "/api/agents/$agent", `{"tool_ids":"clock"}`, 400, ""},
		{"tool_ids that are no tools", "PATCH", "/api/agents/$agent", `{"tool_ids":["clock","watch","weather","` + noUUID + `"]}`, 400, ""},
		{"tool_ids with a custom tool's name", "PATCH", "/api/agents/$agent", `{"tool_ids":["clock","other-words"]}`, 200, ""},
		{"tool_ids", "PATCH", "/api/agents/$agent", `{"tool_ids":["clock","$words","clock"]}`, 200, ""},
		{"assignments beside tool_ids", "GET", "/api/agents/$agent/tools", "", 200, ""},
		{"what a run would be offered", "GET", "/api/agents/$agent/tools/effective", "", 200, ""},
		{"what a run of an absent agent would be offered", "GET", "/api/agents/" + noUUID + "/tools/effective", "", 404, ""},
		{"delete a tool that tool_ids name", "DELETE", "/api/tools/$words", "", 200, ""},
		{"agent with a tool that is gone", "GET", "/api/agents/$agent", "", 200, ""},
		{"no tool_ids", "PATCH", "/api/agents/$agent", `{"tool_ids":null}`, 200, ""},
		{"agent with no tool", "POST", "/api/agents", `{"name":"bare","model":"fixed","tool_ids":[]}`, 201, ""},
		{"delete a tool", "DELETE", "/api/tools/$tool", "", 200, ""},
		{"delete it again", "DELETE", "/api/tools/$tool", "", 404, ""},

		{"run without a message", "POST", "/api/agents/$agent/run", `{}`, 400, ""},
		{"run with a blank message", "POST", "/api/agents/$agent/run", `{"message":" "}`, 400, ""},
		{"run with a number", "POST", "/api/agents/$agent/run", `{"message":7}`, 400, ""},
		{"run with two contexts", "POST", "/api/agents/$agent/run", `{"message":"hi","context_override":"a","context_items":[{"text":"b"}]}`, 400, ""},
		{"run with knowledge", "POST", "/api/agents/$agent/run", `{"message":"hi","knowledge_bases":[{"id":"` + noUUID + `"}]}`, 400, ""},
		{"run with runtime knowledge", "POST", "/api/agents/$agent/run", `{"message":"hi","runtime_knowledge_bases":[{"id":"x"}]}`, 400, ""},
		{"stream with runtime knowledge", "POST", "/api/agents/$agent/run/stream", `{"message":"hi","runtime_knowledge_bases":[{"id":"x"}]}`, 400, ""},
		{"run with too many steps", "POST", "/api/agents/$agent/run", `{"message":"hi","max_steps":101}`, 400, ""},
		{"run with a wrong type", "POST", "/api/agents/$agent/run", `{"message":"hi","temperature":"hot"}`, 400, ""},
		{"run with tools of odd form", "POST", "/api/agents/$agent/run", `{"message":"hi","tools":["clock"]}`, 400, ""},
		{"run with a bad part", "POST", "/api/agents/$agent/run", `{"message":[{"type":"audio"}]}`, 400, ""},
		{"run with a local image", "POST", "/api/agents/$agent/run", `{"message":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}`, 400, ""},
		{"run with a broken image", "POST", "/api/agents/$agent/run", `{"message":[{"type":"image_url","image_url":{"url":"data:image/png;base64,!!"}}]}`, 400, ""},
		{"run with a session id that is none", "POST", "/api/agents/$agent/run", `{"message":"hi","session_id":"a\nb"}`, 400, ""},
		{"run with dots for a session id", "POST", "/api/agents/$agent/run", `{"message":"hi","session_id":".."}`, 400, ""},
		{"run an absent agent", "POST", "/api/agents/" + noUUID + "/run", `{"message":"hi"}`, 404, ""},
		{"run", "POST", "/api/agents/$agent/run", `{"message":"hi","session_id":null,"knowledge_bases":[],"context_override":"Rome is the capital.","colour":1}`, 200, "run=run_id"},
		{"run in a chosen session", "POST", "/api/agents/$agent/run", `{"message":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"session_id":"my session"}`, 200, ""},
		{"run record", "GET", "/api/agents/runs/$run", "", 200, "session=session_id"},
		{"absent run", "GET", "/api/agents/runs/run_000000000000", "", 404, ""},
		{"cancel a finished run", "POST", "/api/agents/runs/$run/cancel", "", 200, ""},
		{"cancel an absent run", "POST", "/api/agents/runs/run_000000000000/cancel", "", 404, ""},
		{"approvals", "GET", "/api/agents/runs/$run/approvals", "", 200, ""},
		{"approvals of an absent run", "GET", "/api/agents/runs/run_000000000000/approvals", "", 404, ""},
		{"approve without a decision", "POST", "/api/agents/runs/$run/approve", "", 400, ""},
		{"approve with text", "POST", "/api/agents/runs/$run/approve", `{"approved":"true"}`, 400, ""},
		{"approve what does not wait", "POST", "/api/agents/runs/$run/approve", `{"approved":true,"reason":"fine"}`, 404, ""},

		{"an agent to be watched", "POST", "/api/agents", `{"name":"watched","model":"calls"}`, 201, "watched=id"},
		{"switch a tool on for it", "PUT", "/api/tools/clock", `{"is_active":true}`, 200, ""},
		{"its tool", "POST", "/api/agents/$watched/tools", `{"tool_name":"clock"}`, 201, ""},
		{"no hooks", "GET", "/api/agents/$watched/hooks", "", 200, ""},
		{"hook without a config", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"approval"}`, 400, ""},
		{"hook with a config of odd form", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"approval","config":[]}`, 400, ""},
		{"hook of an unknown event", "POST", "/api/agents/$watched/hooks", `{"event":"before_run","type":"approval","config":{}}`, 400, ""},
		{"hook of an unknown type", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"webhook","config":{}}`, 400, ""},
		{"hook without a rule", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"rule","config":{}}`, 400, ""},
		{"hook that asks after the deed", "POST", "/api/agents/$watched/hooks", `{"event":"PostToolUse","type":"approval","config":{}}`, 400, ""},
		{"hook at a private address", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"http","config":{"url":"http://127.0.0.1/hook"}}`, 400, ""},
		{"approval hook", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"approval","matcher":"clock","config":{"message":"May it look at the clock?","timeout":0}}`, 201, "hook=id"},
		{"http hook", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"http","position":-1,"enabled":false,"config":{"url":"https://x.example/hook","headers":{"X-Key":"v"}}}`, 201, "called=id"},
		{"rule hook", "POST", "/api/agents/$watched/hooks", `{"event":"PreToolUse","type":"rule","config":{"condition":"zone CONTAINS Mars","colour":1}}`, 201, ""},
		{"hooks", "GET", "/api/agents/$watched/hooks", "", 200, ""},
		{"one hook", "GET", "/api/agents/$watched/hooks/$called", "", 200, ""},
		{"absent hook", "GET", "/api/agents/$watched/hooks/" + noUUID, "", 404, ""},
		{"move a hook", "PATCH", "/api/agents/$watched/hooks/$called", `{"position":7}`, 200, ""},
		{"change a hook's config", "PATCH", "/api/agents/$watched/hooks/$called", `{"config":{}}`, 400, ""},
		{"change nothing of a hook", "PATCH", "/api/agents/$watched/hooks/$called", "", 400, ""},
		{"deliveries", "GET", "/api/agents/$watched/hooks/$called/deliveries", "", 200, ""},
		{"run that waits", "POST", "/api/agents/$watched/run", `{"message":"hi","tools":true}`, 200, "waiting=run_id"},
		{"what it waits for", "GET", "/api/agents/runs/$waiting/approvals?status=pending", "", 200, ""},
		{"approvals of no status", "GET", "/api/approvals?status=open", "", 400, ""},
		{"inbox", "GET", "/api/approvals?status=pending&run_id=$waiting", "", 200, ""},
		{"absent approval", "GET", "/api/approvals/appr_000000000000", "", 404, ""},
		{"refuse with other arguments", "POST", "/api/agents/runs/$waiting/approve", `{"approved":false,"modified_input":{}}`, 400, ""},
		{"approve what was not shown", "POST", "/api/agents/runs/$waiting/approve", `{"approved":true,"digest":"0"}`, 409, ""},
		{"approve", "POST", "/api/agents/runs/$waiting/approve", `{"approved":true,"reason":"fine","modified_input":{"zone":"CET"}}`, 200, ""},
		{"approve again", "POST", "/api/agents/runs/$waiting/approve", `{"approved":true}`, 409, ""},
		{"to its end", "GET", "/api/agents/runs/$waiting/events", "", 200, ""},
		{"what it waited for", "GET", "/api/agents/runs/$waiting/approvals", "", 200, ""},
		{"delete a hook", "DELETE", "/api/agents/$watched/hooks/$called", "", 200, ""},
		{"delete it once again", "DELETE", "/api/agents/$watched/hooks/$called", "", 404, ""},

		{"session", "GET", "/api/sessions/$session", "", 200, ""},
		{"absent session", "GET", "/api/sessions/sess_000000000000", "", 404, ""},
		{"messages", "GET", "/api/sessions/$session/messages", "", 200, ""},
		{"messages of a chosen session", "GET", "/api/sessions/my%20session/messages?limit=1", "", 200, ""},
		{"session's runs", "GET", "/api/sessions/$session/runs?limit=5", "", 200, ""},
		{"retrieved context", "GET", "/api/sessions/$session/runs/$run/retrieved-context", "", 200, ""},
		{"retrieved context of another session's run", "GET", "/api/sessions/my%20session/runs/$run/retrieved-context", "", 404, ""},
		{"sessions", "GET", "/api/agents/$agent/sessions?created_after=2020-01-01&min_runs=1", "", 200, ""},
		{"sessions found", "GET", "/api/agents/$agent/sessions?search=one", "", 200, ""},
		{"sessions before a bad day", "GET", "/api/agents/$agent/sessions?created_before=yesterday", "", 400, ""},
		{"sessions with a bad number", "GET", "/api/agents/$agent/sessions?min_runs=few", "", 400, ""},
		{"sessions of an absent agent", "GET", "/api/agents/" + noUUID + "/sessions", "", 404, ""},
		{"new session", "POST", "/api/agents/$agent/sessions", "", 201, "empty=session_id"},
		{"new session from a list", "POST", "/api/agents/$agent/sessions", "[]", 400, ""},
		{"seed without a user", "POST", "/api/agents/$agent/sessions", `{"initial_messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, 400, ""},
		{"seed for a bad user", "POST", "/api/agents/$agent/sessions", `{"user_id":"me","initial_messages":[]}`, 400, ""},
		{"seed an odd number", "POST", "/api/agents/$agent/sessions", `{"user_id":"` + noUUID + `","initial_messages":[{"role":"user","content":"a"}]}`, 400, ""},
		{"seed in the wrong order", "POST", "/api/agents/$agent/sessions", `{"user_id":"` + noUUID + `","initial_messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`, 400, ""},
		{"seed blank text", "POST", "/api/agents/$agent/sessions", `{"user_id":"` + noUUID + `","initial_messages":[{"role":"user","content":" "},{"role":"assistant","content":"b"}]}`, 400, ""},
		{"seed", "POST", "/api/agents/$agent/sessions", `{"user_id":"` + noUUID + `","initial_messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, 201, "seeded=session_id"},
		{"seeded messages", "GET", "/api/sessions/$seeded/messages", "", 200, ""},
		{"seeded session", "GET", "/api/sessions/$seeded", "", 200, ""},
		{"delete a session of another agent", "DELETE", "/api/agents/" + noUUID + "/sessions/$empty", "", 404, ""},
		{"delete an agent's session", "DELETE", "/api/agents/$agent/sessions/$empty", "", 204, ""},
		{"delete a session", "DELETE", "/api/sessions/$session", "", 200, ""},
		{"delete it again ", "DELETE", "/api/sessions/$session", "", 404, ""},
		{"run of a deleted session", "GET", "/api/agents/runs/$run", "", 404, ""},

		{"key without a name", "POST", "/api/keys", `{}`, 400, ""},
		{"key with an unknown scope", "POST", "/api/keys", `{"name":"k","scopes":["root"]}`, 400, ""},
		{"key with scopes of odd form", "POST", "/api/keys", `{"name":"k","scopes":"read"}`, 400, ""},
		{"key for an absent agent", "POST", "/api/keys", `{"name":"k","agent_id":"` + noUUID + `"}`, 400, ""},
		{"key from the past", "POST", "/api/keys", `{"name":"k","expires_at":"2001-01-01T00:00:00Z"}`, 400, ""},
		{"key", "POST", "/api/keys", `{"name":"k","scopes":["run","read"],"agent_id":"$agent","expires_at":"2999-01-01T00:00:00Z"}`, 201, "key=id"},
		{"one key", "GET", "/api/keys/$key", "", 200, ""},
		{"absent key", "GET", "/api/keys/" + noUUID, "", 404, ""},
		{"keys", "GET", "/api/keys", "", 200, ""},
		{"revoke a key", "DELETE", "/api/keys/$key", "", 200, ""},
		{"revoke an absent key", "DELETE", "/api/keys/" + noUUID, "", 404, ""},

		{"settings", "GET", "/api/settings", "", 200, ""},
		{"change no settings", "PUT", "/api/settings", `{"settings":{}}`, 400, ""},
		{"change settings under another name", "PUT", "/api/settings", `{"setting":{"CUSTOM_TOOL_TIMEOUT":5}}`, 400, ""},
		{"change settings from a list", "PUT", "/api/settings", `{"settings":[1]}`, 400, ""},
		{"change settings to bad values", "PUT", "/api/settings", `{"settings":{"CUSTOM_TOOL_TIMEOUT":4,"MAX_TOOL_OUTPUT_LENGTH":"long","COLOUR":"red","COMPACTION_KEEP_TURNS":5}}`, 400, ""},
		{"change settings", "PUT", "/api/settings", `{"settings":{"CUSTOM_TOOL_TIMEOUT":60,"COMPACTION_MODEL":"same","COMPACTION_KEEP_TURNS":"5"},"colour":1}`, 200, ""},
		{"change a setting", "PUT", "/api/settings/MAX_TOOL_OUTPUT_LENGTH", `{"value":2000}`, 200, ""},
		{"change a setting without a value", "PUT", "/api/settings/MAX_TOOL_OUTPUT_LENGTH", `{"values":2000}`, 400, ""},
		{"change a setting to nothing", "PUT", "/api/settings/MAX_TOOL_OUTPUT_LENGTH", `{"value":null}`, 400, ""},
		{"change a setting beyond its range", "PUT", "/api/settings/MAX_TOOL_OUTPUT_LENGTH", `{"value":200001}`, 400, ""},
		{"change an unknown setting", "PUT", "/api/settings/COLOUR", `{"value":"red"}`, 404, ""},
		{"changed settings", "GET", "/api/settings", "", 200, ""},
		{"one setting", "GET", "/api/settings/CUSTOM_TOOL_TIMEOUT", "", 200, ""},
		{"one unknown setting", "GET", "/api/settings/COLOUR", "", 404, ""},
		{"prices as an object", "PUT", "/api/settings/MODEL_PRICES", `{"value":{"my-model": {"input": 1, "output": 2}}}`, 200, ""},
		{"prices that are no JSON", "PUT", "/api/settings/MODEL_PRICES", `{"value":"{\"my-model\": {,}}"}`, 400, ""},
		{"no prices", "DELETE", "/api/settings/MODEL_PRICES", "", 200, ""},
		{"reset a setting", "DELETE", "/api/settings/CUSTOM_TOOL_TIMEOUT", "", 200, ""},
		{"reset an unknown setting", "DELETE", "/api/settings/COLOUR", "", 404, ""},
		{"reset a category", "POST", "/api/settings/reset-category", `{"category":"compaction"}`, 200, ""},
		{"reset an unknown category", "POST", "/api/settings/reset-category", `{"category":"colours"}`, 400, ""},
		{"reset no category", "POST", "/api/settings/reset-category", `{}`, 400, ""},

		{"provider keys", "GET", "/api/ai-provider-keys", "", 200, ""},
		{"providers that the operator pays", "GET", "/api/ai-provider-keys/platform_supported", "", 200, ""},
		{"provider key without a provider", "POST", "/api/ai-provider-keys", `{"api_key":"sk-0123456789"}`, 400, ""},
		{"provider key without a key", "POST", "/api/ai-provider-keys", `{"provider":"openai","key":"sk-0123456789"}`, 400, ""},
		{"provider key of an unknown provider", "POST", "/api/ai-provider-keys", `{"provider":"acme","api_key":"sk-0123456789"}`, 400, ""},
		{"provider key with blanks", "POST", "/api/ai-provider-keys", `{"provider":"openai","api_key":"sk 0123456789"}`, 400, ""},
		{"provider key that is refused", "POST", "/api/ai-provider-keys", `{"provider":"openai","api_key":"refused-0123456789"}`, 400, ""},
		{"mask of no provider key", "POST", "/api/ai-provider-keys", `{"provider":"openai","api_key":"` + hob.Mask + `6789"}`, 400, ""},
		{"provider key", "POST", "/api/ai-provider-keys", `{"provider":"OpenAI","api_key":" sk-0123456789 ","colour":1}`, 201, ""},
		{"provider key again", "POST", "/api/ai-provider-keys", `{"provider":"openai","api_key":"sk-9876543210"}`, 200, ""},
		{"provider key by its mask", "POST", "/api/ai-provider-keys", `{"provider":"openai","api_key":"` + hob.Mask + `3210"}`, 200, ""},
		{"provider key that cannot be asked about", "POST", "/api/ai-provider-keys", `{"provider":"gemini","api_key":"nobody-there-0123456789"}`, 201, ""},
		{"vendor at another address", "POST", "/api/ai-provider-keys", `{"provider":"openai","api_key":"sk-0123456789","base_url":"https://x.example/v1"}`, 400, ""},
		{"endpoint", "POST", "/api/ai-provider-keys", `{"provider":"my-server","api_key":"key-0123456789","base_url":"https://models.example.com/v1/"}`, 201, ""},
		{"endpoint with another key", "POST", "/api/ai-provider-keys", `{"provider":"my-server","api_key":"key-1111111111"}`, 200, ""},
		{"endpoint moved with its key", "POST", "/api/ai-provider-keys", `{"provider":"my-server","api_key":"` + hob.Mask + `1111","base_url":"https://elsewhere.example.com/v1"}`, 400, ""},
		{"endpoint without a key", "POST", "/api/ai-provider-keys", `{"provider":"open_server","base_url":"http://models.example.com:8000/v1"}`, 201, ""},
		{"endpoint with a bad name", "POST", "/api/ai-provider-keys", `{"provider":"my/server","base_url":"https://models.example.com/v1"}`, 400, ""},
		{"endpoint with a taken name", "POST", "/api/ai-provider-keys", `{"provider":"ollama","base_url":"https://models.example.com/v1"}`, 400, ""},
		{"endpoint with a bad address", "POST", "/api/ai-provider-keys", `{"provider":"my-server","base_url":"models.example.com"}`, 400, ""},
		{"server without its address", "POST", "/api/ai-provider-keys", `{"provider":"mistral","api_key":"x"}`, 400, ""},
		{"endpoint with a query", "POST", "/api/ai-provider-keys", `{"provider":"my-server","base_url":"https://models.example.com/v1?key=1"}`, 400, ""},
		{"endpoint with a private address", "POST", "/api/ai-provider-keys", `{"provider":"my-server","base_url":"http://127.0.0.1:8000/v1"}`, 400, ""},
		{"several provider keys, one refused", "PUT", "/api/ai-provider-keys", `{"anthropic":"sk-ant-0123456789","openrouter":"refused-0123456789"}`, 400, ""},
		{"several provider keys, one unknown", "PUT", "/api/ai-provider-keys", `{"anthropic":"sk-ant-0123456789","acme":"sk-0123456789"}`, 400, ""},
		{"one provider key under two names", "PUT", "/api/ai-provider-keys", `{"google":"g-0123456789","gemini":"g-0123456789"}`, 400, ""},
		{"several provider keys", "PUT", "/api/ai-provider-keys", `{"anthropic":"sk-ant-0123456789","openai":null,"google":"","openrouter":"` + hob.Mask + `"}`, 200, ""},
		{"no provider keys", "PUT", "/api/ai-provider-keys", `{"openai":null}`, 200, ""},
		{"validate a provider key", "POST", "/api/ai-provider-keys/validate", `{"provider":"openrouter","api_key":"sk-or-0123456789"}`, 200, ""},
		{"validate a stored provider key", "POST", "/api/ai-provider-keys/validate", `{"provider":"openai","api_key":"` + hob.Mask + `3210"}`, 200, ""},
		{"validate a provider key that is refused", "POST", "/api/ai-provider-keys/validate", `{"provider":"openrouter","api_key":"refused-0123456789"}`, 200, ""},
		{"validate nothing", "POST", "/api/ai-provider-keys/validate", `{}`, 400, ""},
		{"delete a provider key", "DELETE", "/api/ai-provider-keys/gemini", "", 204, ""},
		{"delete it again  ", "DELETE", "/api/ai-provider-keys/google", "", 404, ""},
		{"delete an endpoint", "DELETE", "/api/ai-provider-keys/my-server", "", 204, ""},
		{"delete a key of an unknown provider", "DELETE", "/api/ai-provider-keys/ollama", "", 400, ""},
		{"provider keys that are left", "GET", "/api/ai-provider-keys", "", 200, ""},

		{"model profile without facts", "PUT", "/api/provider-profiles", `{"endpoint":"https://models.example.com/v1","model":"llama3"}`, 400, ""},
		{"model profile without an endpoint", "PUT", "/api/provider-profiles", `{"model":"llama3","facts":{}}`, 400, ""},
		{"model profile without a model", "PUT", "/api/provider-profiles", `{"endpoint":"https://models.example.com/v1","facts":{}}`, 400, ""},
		{"model profile of no time", "PUT", "/api/provider-profiles", `{"endpoint":"https://models.example.com/v1","model":"llama3","facts":{},"tested_at":"yesterday"}`, 400, ""},
		{"model profile", "PUT", "/api/provider-profiles", `{"endpoint":"https://models.example.com/v1/","model":"llama3","facts":{"window":8192},"colour":1}`, 200, ""},
		{"model profiles", "GET", "/api/provider-profiles", "", 200, ""},
		{"delete a model profile of no model", "DELETE", "/api/provider-profiles?endpoint=https://models.example.com/v1", "", 400, ""},
		{"delete a model profile by a misspelt parameter", "DELETE", "/api/provider-profiles?endpoint=https://models.example.com/v1&modle=llama3", "", 400, ""},
		{"delete a model profile", "DELETE", "/api/provider-profiles?endpoint=https://models.example.com/v1/&model=llama3", "", 204, ""},
		{"delete it once more", "DELETE", "/api/provider-profiles?endpoint=https://models.example.com/v1&model=llama3", "", 404, ""},

		{"usage by nothing known", "GET", "/api/usage?group_by=colour", "", 400, ""},
		{"usage since a bad day", "GET", "/api/usage?since=yesterday", "", 400, ""},
		{"usage of no time", "GET", "/api/usage?since=2026-01-02&until=2026-01-01", "", 400, ""},
		{"usage by a misspelt parameter", "GET", "/api/usage?groupby=model", "", 400, ""},
		{"usage of a bad agent", "GET", "/api/usage?agent_id=me", "", 400, ""},
		{"usage of a bad run", "GET", "/api/usage?run_id=a%20b", "", 400, ""},
		{"usage of an absent run", "GET", "/api/usage?run_id=run_000000000000", "", 200, ""},
		{"usage", "GET", "/api/usage", "", 200, ""},
		{"usage by model", "GET", "/api/usage?group_by=model&since=2020-01-01", "", 200, ""},
		{"usage by action of an agent", "GET", "/api/usage?group_by=action&agent_id=$agent", "", 200, ""},
		{"usage of another model", "GET", "/api/usage?group_by=component&model=other", "", 200, ""},
		{"usage of times past", "GET", "/api/usage?group_by=day&until=2020-01-01", "", 200, ""},

		{"delete the agent", "DELETE", "/api/agents/$agent", "", 200, ""},
		{"delete the agent again", "DELETE", "/api/agents/$agent", "", 404, ""},
		{"stream of a deleted agent", "POST", "/api/agents/$agent/run/stream", `{"message":"hi"}`, 404, ""},
	}
}

func TestScenario_EveryRouteAnswersAsAgreed(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		play(t, begin(t, nil))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		play(t, beginOn(t, pgtest.URL(t), nil))
	})
}

// play makes the scenario's requests and compares all answers with the golden ones, which are the same for every store.
func play(t *testing.T, w *world) {
	t.Helper()
	kept := map[string]string{}
	var out bytes.Buffer
	for _, s := range scenario() {
		fill := func(text string) string {
			for name, value := range kept {
				text = strings.ReplaceAll(text, "$"+name, value)
			}
			return text
		}
		if s.name == "to its end" { // what comes then is another test's; it is the end that matters here
			w.stream(ask{s.method, fill(s.path), w.service, "", nil}).rest()
			continue
		}
		r := w.do(ask{s.method, fill(s.path), w.service, fill(s.body), nil})
		if r.status != s.status {
			t.Errorf("%s: status %d, want %d: %s", s.name, r.status, s.status, r.body)
		}
		if r.status >= 400 {
			wantFault(t, r, r.status, "")
		}
		if name, field, ok := strings.Cut(s.keep, "="); ok {
			var answer map[string]any
			if err := json.Unmarshal(r.body, &answer); err != nil {
				t.Fatalf("%s: %v: %s", s.name, err, r.body)
			}
			kept[name], _ = answer[field].(string)
		}
		fmt.Fprintf(&out, "== %s: %s %s\n", s.name, s.method, s.path)
		if s.body != "" {
			fmt.Fprintf(&out, "%s\n", s.body)
		}
		fmt.Fprintf(&out, "-- %d\n%s\n", r.status, steady(t, r.body))
	}
	golden(t, "answers.golden", out.Bytes())
}

// steady writes JSON with what changes from run to run replaced.
func steady(t *testing.T, raw []byte) string {
	t.Helper()
	if len(raw) == 0 {
		return ""
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatalf("no JSON: %v: %s", err, raw)
	}
	text := b.String()
	for pattern, put := range map[string]string{
		`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`: "UUID",
		`\b(run|sess|seed|call|appr)_[0-9a-f]{12}\b`:                    "${1}_ID",
		`\bwhsec_[0-9a-f]{48}\b`:                                        "whsec_SECRET",
		`\b[0-9a-f]{64}\b`:                                              "DIGEST",
		`\bhob_[0-9a-f]{8,}`:                                            "hob_SECRET",
		`"20\d\d-\d\d-\d\dT[0-9:.]+Z"`:                                  `"TIME"`,
		`"duration_ms": [\d.]+`:                                         `"duration_ms": 0`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, put)
	}
	return strings.ReplaceAll(text, noUUID, "NO-UUID")
}
