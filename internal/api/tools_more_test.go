package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
	"hob/internal/api"
)

func (w *world) tool(body string) string {
	w.t.Helper()
	return as[struct{ ID string }](w.t, w.do(ask{"POST", "/api/tools", w.service, body, nil}), 201).ID
}

// Who changes a tool's schema, or brings an old one back, hears which agents' settings for it do not fit any more.
func TestTools_AChangedSchemaNamesTheAgentsThatItDoesNotFit(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) {
		c.CheckAssignment = func(_ context.Context, a hob.Assignment, row *hob.Tool) (string, error) {
			switch schema := string(row.InputSchema); {
			case strings.Contains(schema, "integer") && strings.Contains(string(a.ConfigOverride), `"text"`):
				return "", hob.Errorf(hob.Invalid, "config_override.city does not fit")
			case strings.Contains(schema, "false"):
				return "config_override.city is ignored", nil
			}
			return "", nil
		}
	})
	agent := w.agent("fixed")
	id := w.tool(`{"name":"weather","endpoint":"https://x.example",` + toolBody + `}`)
	as[hob.Assignment](t, w.do(ask{"POST", "/api/agents/" + string(agent) + "/tools", w.service, `{"tool_id":"` + id + `","config_override":{"city":"text"}}`, nil}), 201)
	type answer struct{ Warnings []string }
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "", `{"input_schema":{"type":"object","properties":{"city":{"type":"integer"}}}}`, `the agent "helper": its runs go without the tool: config_override.city does not fit`},
		{"PUT", "", `{"input_schema":{"type":"object","additionalProperties":false}}`, `the agent "helper": config_override.city is ignored`},
		{"PUT", "", `{"description":"other"}`, ""},
		{"POST", "/versions/2/restore", "", `the agent "helper": its runs go without the tool: config_override.city does not fit`},
		{"POST", "/versions/1/restore", "", ""},
	} {
		got := strings.Join(as[answer](t, w.do(ask{c.method, "/api/tools/" + id + c.path, w.service, c.body, nil}), 200).Warnings, "; ")
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.path, c.body, got, c.want)
		}
	}
}

func TestTools_ManyChangesOfABuiltinAtOnceAreAllMade(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	const callers = 16
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if r := w.do(ask{"PUT", "/api/tools/clock", w.service, fmt.Sprintf(`{"description_suffix":"s%d"}`, i), nil}); r.status != 200 {
				t.Errorf("%d: %d %s", i, r.status, r.body)
			}
		})
	}
	all.Wait()
	if got := as[struct{ Version int64 }](t, w.do(ask{"GET", "/api/tools/clock", w.service, "", nil}), 200); got.Version != 1+callers {
		t.Errorf("version %d, want %d", got.Version, 1+callers)
	}
}

func TestTools_ASchemaWithoutATypeIsOfObjects(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	type answer struct {
		Schema json.RawMessage `json:"input_schema"`
	}
	for i, c := range []struct{ sent, kept string }{
		{`{}`, `{"type":"object"}`},
		{`{ "properties":{"a":{}} }`, `{"type":"object","properties":{"a":{}}}`},
		{`{"type":"object"}`, `{"type":"object"}`},
	} {
		body := fmt.Sprintf(`{"name":"t%d","description":"d","type":"http","url":"https://x.example","input_schema":%s}`, i, c.sent)
		if got := as[answer](t, w.do(ask{"POST", "/api/tools", w.service, body, nil}), 201); string(got.Schema) != c.kept {
			t.Errorf("%s is kept as %s", c.sent, got.Schema)
		}
	}
	for _, bad := range []string{
		`{"type":"array"}`, `{"allOf":[{"$ref":"#"}]}`, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
	} {
		body := `{"name":"bad","description":"d","type":"http","url":"https://x.example","input_schema":` + bad + `}`
		if f := wantFault(t, w.do(ask{"POST", "/api/tools", w.service, body, nil}), 400, ""); f.Details["field"] != "input_schema" {
			t.Errorf("%s: %+v", bad, f)
		}
	}
}

func TestTools_HeadersAreMasksOrValues(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	id := w.tool(`{"name":"weather","endpoint":"https://x.example","headers":{"A":"1","B":"2"},` + toolBody + `}`)
	put := func(headers string) reply {
		return w.do(ask{"PUT", "/api/tools/" + id, w.service, `{"config":{"headers":` + headers + `}}`, nil})
	}
	wantFault(t, put(`{"A":"`+hob.Mask+`x","B":"`+hob.Mask+`"}`), 400, "")
	got := as[struct {
		Config struct{ Headers map[string]string }
	}](t, put(`{"A":null,"B":"`+hob.Mask+`"}`), 200)
	if len(got.Config.Headers) != 1 || got.Config.Headers["B"] != hob.Mask {
		t.Errorf("headers %v, want B alone", got.Config.Headers)
	}
}

func TestTools_VersionsComeInPages(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	id := w.tool(`{"name":"weather","endpoint":"https://x.example",` + toolBody + `}`)
	for i := range 24 {
		if r := w.do(ask{"PUT", "/api/tools/" + id, w.service, fmt.Sprintf(`{"description":"d%d"}`, i), nil}); r.status != 200 {
			t.Fatal(string(r.body))
		}
	}
	for query, want := range map[string][3]int{"": {20, 25, 6}, "?limit=2&offset=1": {2, 24, 23}, "?limit=100": {25, 25, 1}, "?offset=25": {0, 0, 0}} {
		got := as[struct {
			Versions []struct{ Version int }
			Total    int
		}](t, w.do(ask{"GET", "/api/tools/" + id + "/versions" + query, w.service, "", nil}), 200)
		n := len(got.Versions)
		if n != want[0] || got.Total != 25 || n > 0 && (got.Versions[0].Version != want[1] || got.Versions[n-1].Version != want[2]) {
			t.Errorf("%s: %+v, want %v", query, got, want)
		}
	}
}

func TestBodies_AreToldByTheirFieldsNotByOurNames(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	for _, c := range []struct{ path, body, field string }{
		{"/storage/v1/bucket", `{"id":"x","public":"yes"}`, "public"},
		{"/api/tools", `{"name":"x","timeout_seconds":"1"}`, "timeout_seconds"},
		{"/api/tools", `{"name":"x","config":{"timeout_seconds":"1"}}`, "config.timeout_seconds"},
	} {
		f := as[struct {
			Message string
			Details map[string]any
		}](t, w.do(ask{"POST", c.path, w.service, c.body, nil}), 400)
		if f.Details["field"] != c.field || !strings.HasPrefix(f.Message, c.field+" must be") {
			t.Errorf("%s %s: %+v", c.path, c.body, f)
		}
	}
}

// Whatever is asked of storage, a fault is told in its form: never as a page, and never by a redirect.
func TestStorage_FaultsOfRangesAndFoldersHaveItsForm(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	w.upload("b/x", "0123456789")
	for _, c := range []struct {
		method, path, header, value, code string
		status                            int
	}{
		{"GET", "object/b/x", "Range", "bytes=10-", "range_not_satisfiable", 416},
		{"GET", "object/b/x", "Range", "bytes=-0", "range_not_satisfiable", 416},
		{"GET", "object/b/x", "Range", "bytes=-0,-00", "range_not_satisfiable", 416},
		{"GET", "object/b/x", "Range", "bytes=x", "range_not_satisfiable", 416},
		{"GET", "object/b/x", "If-Match", `"other"`, "precondition_failed", 412},
		{"GET", "object/b", "", "", "method_not_allowed", 405},
		{"POST", "object/b", "", "", "method_not_allowed", 405},
		{"PUT", "object/b", "", "", "method_not_allowed", 405},
		{"GET", "object/sign/b", "", "", "", 0},
		{"POST", "object/sign/b", "", "", "", 0},
		{"GET", "object/info/b", "", "", "", 0},
		{"GET", "object/public/b", "", "", "", 0},
		{"GET", "object/authenticated/b", "", "", "", 0},
		{"GET", "bucket/", "", "", "", 404},
		{"GET", "bucket/b/", "", "", "", 404},
		{"POST", "object/list/b/", "", "", "", 0},
	} {
		var header []string
		if c.header != "" {
			header = []string{c.header, c.value}
		}
		r := w.storage(c.method, c.path, "", header...)
		if r.status < 400 || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
			t.Errorf("%s %s %s: %d %s %s", c.method, c.path, c.value, r.status, r.header.Get("Content-Type"), r.body)
			continue
		}
		f := as[storageFault](t, r, r.status)
		if f.StatusCode != fmt.Sprint(r.status) || f.Message == "" || c.status != 0 && c.status < 410 && r.status != c.status || c.status > 410 && (r.status != c.status || f.Code != c.code) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.value, r.status, r.body)
		}
	}
	r := w.storage("GET", "object/b/x", "", "Range", "bytes=-0")
	if r.header.Get("Content-Range") != "bytes */10" {
		t.Errorf("Content-Range %q", r.header.Get("Content-Range"))
	}
	for _, body := range []string{`{"limit":0}`, `{"limit":-1}`, `{"offset":-1}`} {
		as[storageFault](t, w.storage("POST", "object/list/b", body), 400)
	}
}

// Uploads that hold their places keep others out, of one user and of the whole server, until they end.
func TestStorage_UploadsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.UploadsPerKey, c.Limits.Uploads = 2, 3 })
	w.bucket(`{"id":"b"}`)
	own := w.key(hob.Key{Name: "own", Scopes: []hob.Scope{hob.ScopeConfigure, hob.ScopeRead}})
	slow := func(name, key string) (end func()) { // it is under way when the server asks for its body
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "POST /storage/v1/object/b/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", name, key)
		answers := bufio.NewReader(conn)
		status := func() string {
			line, err := answers.ReadString('\n')
			if err != nil {
				t.Errorf("the upload of %s: %v", name, err)
			}
			return line
		}
		if line := status(); !strings.Contains(line, " 100 ") {
			t.Fatalf("the upload of %s is not begun: %s", name, line)
		}
		_ = status() // the empty line behind it
		return func() {
			_, _ = conn.Write([]byte("x"))
			if line := status(); !strings.Contains(line, " 200 ") {
				t.Errorf("the upload of %s: %s", name, line)
			}
		}
	}
	refused := func(key string, status int) bool {
		r := w.do(ask{"PUT", "/storage/v1/object/b/more", key, "x", nil})
		f := as[storageFault](t, r, status)
		return f.Code == "too_many_uploads" && r.header.Get("Retry-After") != ""
	}
	first, second := slow("one", own), slow("two", own)
	if !refused(own, 429) {
		t.Error("a third upload of one key is taken")
	}
	if r := w.do(ask{"PUT", "/storage/v1/object/b/other", w.service, "x", nil}); r.status != 200 {
		t.Errorf("another key's upload: %d %s", r.status, r.body)
	}
	third := slow("three", w.service)
	if !refused(w.service, 503) {
		t.Error("a fourth upload of the server is taken")
	}
	first()
	second()
	third()
	if r := w.do(ask{"PUT", "/storage/v1/object/b/more", own, "x", nil}); r.status != 200 {
		t.Errorf("after the others: %d %s", r.status, r.body)
	}
}
