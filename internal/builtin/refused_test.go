package builtin_test

import (
	"net/http"
	"strings"
	"testing"

	"hob"
	"hob/internal/builtin"
)

// What was refused before anything was done is an error and is not counted, whichever tool it is.
func TestRefusedCalls_AreNotCounted(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	refusal := hob.Errorf(hob.Invalid, "not allowed").WithCode(builtin.CodeStatementRefused)
	s := newSet(t, builtin.Deps{Files: dp.Files, Code: &box{}, Database: &tables{count: 1, queryErr: refusal}})
	for _, c := range []struct{ tool, config, args string }{
		{"http_request", "", `{}`},
		{"http_request", "", `{"url":7}`},
		{"http_request", "", `{"url":"no url"}`},
		{"http_request", "", `{"url":"http://10.0.0.1/"}`},
		{"http_request", "", `{"url":"https://example.com/","method":"FETCH"}`},
		{"http_request", `{"methods":["GET"]}`, `{"url":"https://example.com/","method":"POST"}`},
		{"http_request", `{"allowed_hosts":["example.com"]}`, `{"url":"https://example.org/"}`},
		{"http_request", "", `{"url":"https://example.com/","body":{"a":1}}`},
		{"web_scrape", "", `{"url":"http://10.0.0.1/"}`},
		{"web_scrape", "", `{"url":"http://10.0.0.1/a.png"}`},
		{"web_scrape", "", `{"url":""}`},
		{"web_search", "", `{"query":" "}`},
		{"code_execute", "", `{"language":"python","code":""}`},
		{"code_execute", `{"languages":["python"]}`, `{"language":"javascript","code":"1"}`},
		{"storage_read", "", `{"operation":"download","bucket":"reports"}`},
		{"storage_read", "", `{"operation":"download","bucket":"reports","path":"../x"}`},
		{"storage_read", "", `{"operation":"list"}`},
		{"storage_read", `{"buckets":["reports"]}`, `{"operation":"list","bucket":"others"}`},
		{"storage_write", "", `{"bucket":"reports","path":"x"}`},
		{"storage_write", "", `{"bucket":"absent","path":"x","content":"y"}`},
		{"storage_write", "", `{"bucket":"reports","path":"x","content":"y","content_type":"nonsense"}`},
		{"database_query", oneTable, `{"query":" "}`},
		{"database_query", oneTable, `{"query":"DROP TABLE t"}`},
		{"database_write", oneTable, `{"table":"t","operation":"delete"}`},
		{"database_write", oneTable, `{"table":7}`},
		{"current_time", "", `{"timezone":7}`},
	} {
		res := call(t, one(t, s, assign(c.tool, c.config)), c.args)
		if !res.IsError || !res.Free || res.Unknown {
			t.Errorf("%s %s: %+v", c.tool, c.args, res)
		}
	}
	for tool, want := range map[string]string{
		"http_request": "refused: 10.0.0.1:80 is a private address; HOB_EGRESS_ALLOW=10.0.0.1:80 opens it to all tools",
		"web_scrape":   "refused: 10.0.0.1:80 is a private address; HOB_EGRESS_ALLOW=10.0.0.1:80 opens it to all tools",
	} { // which an administrator reads, and no model
		if res := call(t, one(t, s, assign(tool, "")), `{"url":"http://10.0.0.1/"}`); res.Note != want || strings.Contains(res.Text, "HOB_EGRESS_ALLOW") {
			t.Errorf("%s: %+v", tool, res)
		}
	}
	gone := serve(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	for name, r := range map[string]hob.ToolRunner{
		"refused": one(t, newSet(t, builtin.Deps{}), assignCustom(customRow("http://10.0.0.1/", "POST"), "")),
		"nobody":  one(t, newSet(t, builtin.Deps{}, gone), assignCustom(customRow(gone.URL, "POST"), "")),
	} {
		if res := call(t, r, `{"x":1}`); !res.IsError || !res.Free {
			t.Errorf("a custom tool, %s: %+v", name, res)
		}
	}
	// What was carried out counts, however it ended.
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for name, r := range map[string]hob.ToolRunner{
		"http_request":   one(t, newSet(t, builtin.Deps{}, srv), assign("http_request", "")),
		"a custom tool":  one(t, newSet(t, builtin.Deps{}, srv), assignCustom(customRow(srv.URL, "POST"), "")),
		"database_query": one(t, newSet(t, builtin.Deps{Database: &tables{count: 1, queryErr: hob.Errorf(hob.Invalid, "division by zero")}}), assign("database_query", oneTable)),
		"storage_read":   one(t, dp.set, assign("storage_read", "")),
	} {
		args := map[string]string{
			"http_request": `{"url":"` + srv.URL + `"}`, "a custom tool": `{"x":1}`, "database_query": `{"query":"SELECT 1/0"}`,
			"storage_read": `{"operation":"download","bucket":"reports","path":"absent"}`,
		}[name]
		if res := call(t, r, args); !res.IsError || res.Free {
			t.Errorf("%s, carried out: %+v", name, res)
		}
	}
}
