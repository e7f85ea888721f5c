package builtin

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func TestQueryString(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`{}`:                                 "",
		`{"a":"x y+z&b=c#d%"}`:               "a=x%20y%2Bz%26b%3Dc%23d%25",
		`{"a":1.50,"b":true,"c":null}`:       "a=1.50&b=true",
		`{"a":1e400}`:                        "a=1e400",
		`{"a":[1,"b",null,[2, 3],{"k": 1}]}`: "a=1&a=b&a=%5B2%2C3%5D&a=%7B%22k%22%3A1%7D",
		`{"a":[],"b":{}}`:                    "b=%7B%7D",
		`{"a&b":"","":"x"}`:                  "a%26b=&=x",
		`{"a":"line\r\nbreak"}`:              "a=line%0D%0Abreak",
	} {
		if got, err := queryString(json.RawMessage(args), nil); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", args, got, err, want)
		}
	}
	for _, args := range []string{``, `[]`, `null`, `{"a":1}x`, `{`} {
		if got, err := queryString(json.RawMessage(args), nil); hob.KindOf(err) != hob.Invalid {
			t.Errorf("%s: %q, %v", args, got, err)
		}
	}
}

func TestWithQuery(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"http://h/p":       "http://h/p?q=1",
		"http://h/p#f":     "http://h/p?q=1",
		"http://h/p?":      "http://h/p?q=1",
		"http://h/p?a=b":   "http://h/p?a=b&q=1",
		"http://h/p?a=b&":  "http://h/p?a=b&q=1",
		"http://h/p?a#b?c": "http://h/p?a&q=1",
	} {
		if got := withQuery(endpoint, "q=1"); got != want {
			t.Errorf("%s: %s, want %s", endpoint, got, want)
		}
	}
}

// Whatever a model sends: the query reads back as exactly the values that were sent, and the rest of the URL is the
// endpoint's.
func FuzzQueryString(f *testing.F) {
	for _, s := range []string{`{"a":"b&c=d#e"}`, `{"a":[1,[2],{"x":"\u2028"}],"b":null}`, `{"user":1}`, `{"a":"\r\n","é":"+"}`, `{"a":1e9}`} {
		f.Add([]byte(s))
	}
	const endpoint = "https://api.example.com/v1/items?user=me"
	fixed := url.Values{"user": {"me"}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, err := hob.Canonical(raw)
		if err != nil {
			return
		}
		query, err := queryString(args, fixed)
		if err != nil {
			return
		}
		u, err := url.Parse(withQuery(endpoint, query))
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if u.Host != "api.example.com" || u.Path != "/v1/items" || u.Fragment != "" {
			t.Errorf("the arguments changed the URL: %s", u)
		}
		got, err := url.ParseQuery(u.RawQuery)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if diff := cmp.Diff(expected(t, args), got); diff != "" {
			t.Errorf("%s\n%s", args, diff)
		}
	})
}

// expected is the specification of queryString by the general JSON decoder.
func expected(t *testing.T, args json.RawMessage) url.Values {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	want := url.Values{"user": {"me"}}
	for name, v := range m {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, e := range list {
			switch e := e.(type) {
			case nil:
			case string:
				want[name] = append(want[name], e)
			default:
				want[name] = append(want[name], string(encode(e)))
			}
		}
	}
	return want
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		n    int
		want string
		more bool
	}{
		{"", 0, "", false},
		{"a", 0, "", true},
		{"abc", 3, "abc", false},
		{"abcd", 3, "abc", true},
		{"üüü", 3, "üüü", false},
		{"üüüü", 3, "üüü", true},
		{"🙂🙂", 1, "🙂", true},
	} {
		if got, more := cut(tt.in, tt.n); got != tt.want || more != tt.more {
			t.Errorf("cut(%q, %d) = %q, %t", tt.in, tt.n, got, more)
		}
	}
}

func TestWithout_TakesPinnedArgumentsOutOfEveryPartBesideThem(t *testing.T) {
	t.Parallel()
	pinned := hob.PinnedArgs{"a": json.RawMessage("1")}
	for schema, want := range map[string]string{
		`{"required":["a"],"type":"object"}`: `{"type":"object"}`,
		`{"required":["b","a"]}`:             `{"required":["b"]}`,
		`{"properties":{"z":{},"a":{},"b":{"properties":{"a":{}},"required":["a"]}}}`:                                `{"properties":{"z":{},"b":{"properties":{"a":{}},"required":["a"]}}}`,
		`{"anyOf":[{"required":["a"]},{"required":["b"]}]}`:                                                          `{"anyOf":[{},{"required":["b"]}]}`,
		`{"allOf":[{"properties":{"a":{},"c":{}}},true]}`:                                                            `{"allOf":[{"properties":{"c":{}}},true]}`,
		`{"not":{"required":["a"]},"if":{"required":["a"]},"then":{"required":["a","c"]},"else":{"required":["a"]}}`: `{"not":{"required":["a"]},"if":{"required":["a"]},"then":{"required":["c"]},"else":{}}`,
		`{"dependentRequired":{"a":["b"],"b":["a","c"]}}`:                                                            `{"dependentRequired":{"b":["c"]}}`,
		`{"dependencies":{"a":["b"],"b":{"minProperties":1}}}`:                                                       `{"dependencies":{"b":{"minProperties":1}}}`,
		`{"title":"a","x":1.50,"required":5}`:                                                                        `{"title":"a","x":1.50,"required":5}`,
		`true`:                                                                                                       `true`,
	} {
		if got := string(without(json.RawMessage(schema), pinned)); got != want {
			t.Errorf("%s\n got %s\nwant %s", schema, got, want)
		}
	}
}

// Removing arguments never makes JSON invalid, and a compiled schema stays one that compiles.
func FuzzWithout(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`), "a")
	f.Add([]byte(`{"anyOf":[{"required":["a"]}],"dependencies":{"a":["b"]},"then":{"else":true}}`), "b")
	f.Fuzz(func(t *testing.T, raw []byte, name string) {
		s, err := parseSchema(raw)
		if err != nil {
			if hob.KindOf(err) != hob.Invalid || !utf8.ValidString(err.Error()) || strings.Contains(err.Error(), schemaURL) {
				t.Errorf("error %v", err)
			}
			return
		}
		out := without(s.raw, hob.PinnedArgs{name: json.RawMessage("1")})
		stripped, err := parseSchema(out)
		if err != nil {
			t.Fatalf("%s became %s: %v", s.raw, out, err)
		}
		if stripped.has(name) && !s.refers {
			t.Errorf("%q is still a property of %s", name, out)
		}
	})
}

func TestBindings_ForgetEverythingOverTheirBound(t *testing.T) {
	t.Parallel()
	c := newBindings(2000)
	b := &binding{fromSchema: make([]byte, 400)} // counts 912
	c.put(1, b)
	c.put(1, b)
	c.put(2, b)
	if c.get(1) == nil || c.get(2) == nil || c.size != 2*912 {
		t.Fatalf("size %d", c.size)
	}
	c.put(3, b)
	if c.get(1) != nil || c.get(2) != nil || c.get(3) == nil || c.size != 912 {
		t.Errorf("size %d", c.size)
	}
}

// Equal inputs share one binding, and two contents that meet under one key are told apart.
func TestBindings_AreFoundByContent(t *testing.T) {
	t.Parallel()
	s := New(Deps{})
	src := source{name: "x", schema: json.RawMessage(`{"type":"object","properties":{"a":{}}}`)}
	config := json.RawMessage(`{"a":1}`)
	first := s.bind(src, config)
	if s.bind(src, bytes.Clone(config)) != first {
		t.Error("bound twice")
	}
	for name, other := range map[string]struct {
		src    source
		config json.RawMessage
	}{
		"name":   {source{name: "y", schema: src.schema}, config},
		"schema": {source{name: "x", schema: json.RawMessage(`{}`)}, config},
		"config": {src, json.RawMessage(`{}`)},
	} {
		s.bindings.put(s.bindings.key(other.src, other.config), first) // as if the keys were equal
		if s.bind(other.src, other.config) == first {
			t.Errorf("another %s got the same binding", name)
		}
	}
}

func TestDescriptions_AreBoundedInNumber(t *testing.T) {
	t.Parallel()
	d := newDescriptions(hob.SystemClock, defaultDescribeFor)
	for i := range 3 * maxDescriptions {
		if _, mine := d.claim(strings.Repeat("x", i)); !mine {
			t.Fatal("not mine")
		}
	}
	if len(d.byKey) > maxDescriptions {
		t.Errorf("%d kept", len(d.byKey))
	}
}

// No secret shorter than minRedacted is hidden, every longer one is, and the longest spelling goes first.
func TestRedactor(t *testing.T) {
	t.Parallel()
	if r := redactor(map[string]hob.Secret{"X-Key": "short", "Accept": "application/json"}); r != nil {
		t.Errorf("nothing was to hide: %q", r.Replace("short application/json"))
	}
	r := redactor(map[string]hob.Secret{"X-Key": "abcdef", "X-Other": "abcdef-and-more", "Authorization": "Bearer zzzzzz"})
	if got := r.Replace("abcdef-and-more abcdef zzzzzz Bearer zzzzzz"); strings.ContainsAny(got, "abcdfmoz-") {
		t.Errorf("left %q", got)
	}
	if got := secretsIn("Basic dTpwYXNzd29yZA=="); !slices.Contains(got, "password") || !slices.Contains(got, "u:password") {
		t.Errorf("%q", got)
	}
}

func TestRowsText_StaysJSONBelowTheCap(t *testing.T) {
	t.Parallel()
	const most = 100
	row := func(n int) string { return `{"a":"` + strings.Repeat("ü", n-8) + `"}` } // of n characters
	tests := map[string]struct {
		rows      string
		truncated bool
		kept      int
		bare      bool
	}{
		"fits":                    {"[" + row(98) + "]", false, 1, true},
		"fits, some missing":      {"[" + row(70) + "]", true, 1, false},
		"no room for the mark":    {"[" + row(40) + "," + row(40) + "]", true, 1, false},
		"longer than the cap":     {"[" + row(30) + "," + row(30) + "," + row(50) + "]", false, 2, false},
		"one row over everything": {"[" + row(200) + "]", false, 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := rowsText(json.RawMessage(tt.rows), tt.truncated, most)
			if n := utf8.RuneCountInString(text); n > most {
				t.Errorf("%d characters", n)
			}
			var rows []json.RawMessage
			var cut struct {
				Rows      []json.RawMessage
				Truncated bool
			}
			if tt.bare {
				if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != tt.kept {
					t.Errorf("%s: %v", text, err)
				}
				return
			}
			if err := json.Unmarshal([]byte(text), &cut); err != nil || len(cut.Rows) != tt.kept || !cut.Truncated {
				t.Errorf("%d rows, truncated %t, %v: %s", len(cut.Rows), cut.Truncated, err, text)
			}
		})
	}
}

func TestSettings_WhatIsNotSetHasItsDefault(t *testing.T) {
	t.Parallel()
	want := Settings{HTTPTimeout: 30 * time.Second, CustomTimeout: 30 * time.Second, MaxOutput: 10_000, MaxResult: 50_000, DescribeFor: 30 * time.Second}
	for _, given := range []Settings{{}, {HTTPTimeout: -1, CustomTimeout: -1, MaxOutput: -1, MaxResult: -1, DescribeFor: -1}} {
		if diff := cmp.Diff(want, given.withDefaults()); diff != "" {
			t.Error(diff)
		}
	}
	if got := want.withDefaults(); got != want {
		t.Errorf("%+v", got)
	}
}

// Whatever fills a placeholder: the URL's other parts are the endpoint's, and the part reads back as what was given.
func FuzzFilled(f *testing.F) {
	for _, s := range []string{"42", "../x", "a/b", "%2e%2e", "?x=1", "#", "日本", "\\..\\", "@host", "..;", "\x00", "{id}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if !utf8.ValidString(value) {
			return
		}
		address, rest, err := filled("https://api.example.com/v1/{id}/x?q={id}", object([]member{{"id", encode(value)}, {"n", json.RawMessage("1")}}))
		if err != nil {
			return
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		parts := strings.Split(u.EscapedPath(), "/")
		if u.Host != "api.example.com" || u.User != nil || u.Fragment != "" || len(parts) != 4 || parts[3] != "x" || string(rest) != `{"n":1}` {
			t.Fatalf("%q made %s and left %s", value, address, rest)
		}
		if back, err := url.PathUnescape(parts[2]); err != nil || back != value || u.Query().Get("q") != value || back == "." || back == ".." {
			t.Errorf("%q reads back as %q and %q", value, back, u.Query().Get("q"))
		}
	})
}
