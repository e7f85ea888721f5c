package builtin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"hob"
	"hob/internal/builtin"
)

// parted is a custom tool whose address has placeholders.
func parted(method, path string) func(*hob.Tool) {
	return func(row *hob.Tool) {
		row.Config.Method = method
		row.Config.Endpoint = strings.Replace(row.Config.Endpoint, "/weather", path, 1)
		row.InputSchema = json.RawMessage(`{"type":"object","properties":{"id":{},"lang":{"type":"string"},"more":{"type":"integer"}},"required":["id"]}`)
	}
}

// Whatever a model gives for a part of the address, it is that part and nothing else, and is sent nowhere else.
func TestCustom_PlaceholdersBecomeOnePartOfTheAddress(t *testing.T) {
	t.Parallel()
	srv := echo(t)
	for id, part := range map[string]string{
		`"42"`: "42", `42`: "42", `true`: "true", `1.50`: "1.50", `"a/b"`: "a%2Fb", `"?x=1"`: "%3Fx=1", `"#"`: "%23", `"a b+c"`: "a%20b+c",
		`"Zürich 日本"`: "Z%C3%BCrich%20%E6%97%A5%E6%9C%AC", `"%41"`: "%2541", `"a\\b"`: "a%5Cb", `"@evil.example:80"`: "@evil.example:80",
		`"..."`: "...", `"a..b"`: "a..b", `"{lang}"`: "%7Blang%7D", `";a=1"`: "%3Ba=1", `"//evil.example"`: "%2F%2Fevil.example",
	} {
		get := echoed(t, call(t, custom(t, srv, parted("GET", "/v1/items/{id}.json/x?k=1")), `{"id":`+id+`,"more":7}`).Text)
		if want := "/v1/items/" + part + ".json/x?k=1&more=7"; get["uri"] != want {
			t.Errorf("%s: asked for %s, want %s", id, get["uri"], want)
		}
		post := echoed(t, call(t, custom(t, srv, parted("POST", "/v1/items/{id}")), `{"more":7,"id":`+id+`}`).Text)
		if post["uri"] != "/v1/items/"+part || post["body"] != `{"more":7}` {
			t.Errorf("%s: sent %s to %s", id, post["body"], post["uri"])
		}
	}
	got := echoed(t, call(t, custom(t, srv, parted("DELETE", "/items?id={id}&lang=x{lang}")), `{"id":"..&a=b#c/?","lang":"","more":1}`).Text)
	if want := "/items?id=..%26a%3Db%23c%2F%3F&lang=x&more=1"; got["uri"] != want {
		t.Errorf("in the query: asked for %s, want %s", got["uri"], want)
	}
}

func TestCustom_PlaceholdersAreNoWayElsewhere(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the request was sent to %s", r.RequestURI) })
	for args, want := range map[string]string{
		`{"id":""}`: "must not be empty", `{"id":"."}`: ". or ..", `{"id":".."}`: ". or ..", `{"id":"../x"}`: ". or ..", `{"id":"a/../b"}`: ". or ..",
		`{"id":"..\\x"}`: ". or ..", `{"id":"%2e%2e"}`: ". or ..", `{"id":"%252e%252e%252fx"}`: ". or ..", `{"id":"..;/x"}`: ". or ..",
		`{"id":"\r\nHost: evil"}`: "URL not accepted", `{"id":null}`: "must be text, a number or a boolean", `{"id":["a"]}`: "must be text", `{"id":{"a":1}}`: "must be text", `{}`: `the argument "id" is missing`,
	} {
		if res := call(t, custom(t, srv, parted("GET", "/items/{id}")), args); !res.IsError || !res.Free || !strings.Contains(res.Text, want) {
			t.Errorf("%s: %+v, want %q", args, res, want)
		}
	}
	if res := call(t, custom(t, srv, parted("GET", "/items/{id}{lang}")), `{"id":"%2e","lang":"%2E"}`); !res.IsError || !strings.Contains(res.Text, ". or ..") {
		t.Errorf("two dots of two arguments: %+v", res)
	}
}

// A pinned argument fills its placeholder too.
func TestCustom_APinnedArgumentFillsItsPlaceholder(t *testing.T) {
	t.Parallel()
	srv := echo(t)
	row := customRow(srv.URL, "GET")
	parted("GET", "/items/{id}")(&row)
	r := one(t, newSet(t, builtin.Deps{}, srv), assignCustom(row, `{"id":"mine"}`))
	args, err := hob.Overlay(json.RawMessage(`{"more":1}`), r.Spec().Pinned)
	if err != nil {
		t.Fatal(err)
	}
	if got := echoed(t, call(t, r, string(args)).Text); got["uri"] != "/items/mine?more=1" || strings.Contains(string(r.Spec().Schema), `"id"`) {
		t.Errorf("asked for %s with the schema %s", got["uri"], r.Spec().Schema)
	}
}

func TestCheckTool_PlaceholdersAreJudgedWhenWritten(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{}, echo(t))
	for endpoint, want := range map[string]string{
		"https://x.example/items/{id}":             "",
		"https://x.example/items/{id}?ref={id}":    "",
		"https://x.example/items/{lang}":           `the placeholder {lang}, so input_schema must have the property "lang" and list it in required`,
		"https://x.example/items/{other}":          `the property "other"`,
		"https://{id}.example/items":               "outside its path and query",
		"https://{id}@x.example/items":             "outside its path and query",
		"https://x.example:{id}/items":             "outside its path and query",
		"{id}://x.example/items":                   "outside its path and query",
		"https://x.example/#{id}":                  "outside its path and query",
		"https://x.example/items?{id}=1":           "only a value can be one",
		"https://x.example/items/{id":              "a brace that is no placeholder",
		"https://x.example/items/{}":               "a brace that is no placeholder",
		"https://x.example/items/{{id}}":           "a brace that is no placeholder",
		"https://x.example/items/{a/b}":            "a brace that is no placeholder",
		"https://x.example/items/{id}?also={la g}": "a brace that is no placeholder",
	} {
		row := customRow("https://x.example", "GET")
		parted("GET", "")(&row)
		row.Config.Endpoint = endpoint
		err := s.CheckTool(row)
		if want == "" && err != nil || want != "" && (hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
}
