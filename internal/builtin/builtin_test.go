package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"hob"
	"hob/internal/builtin"
)

var update = flag.Bool("update", false, "rewrite golden files")

// everyTool is one assignment of each tool there is, a custom one included.
func everyTool(t *testing.T) (s *builtin.Set, assigned []hob.AssignedTool) {
	t.Helper()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // only a cancelled call ends
	})
	exa := builtin.Service{Key: "a key", BaseURL: srv.URL}
	s = newSet(t, builtin.Deps{Database: &tables{text: "main.t(id INTEGER)", count: 1}, Exa: exa}, srv)
	for _, row := range s.Rows() {
		config := ""
		if strings.HasPrefix(row.Name, "database_") {
			config = `{"schemas":{"main":["t"]}}`
		}
		assigned = append(assigned, assign(row.Name, config))
	}
	assigned = append(assigned, assignCustom(customRow(srv.URL, "POST"), ""))
	return s, assigned
}

func TestTools_EachKeepsTheContract(t *testing.T) {
	t.Parallel()
	s, assigned := everyTool(t)
	tools, warnings := load(t, s, assigned...)
	if len(warnings) > 0 || len(tools) != len(assigned) {
		t.Fatalf("%d of %d tools loaded, warnings %q", len(tools), len(assigned), warnings)
	}
	for _, r := range tools {
		t.Run(r.Spec().Name, func(t *testing.T) {
			t.Parallel()
			checkSpec(t, r.Spec())
			if _, can := r.(hob.Previewer); can != slices.Contains(s.Previews(), r.Spec().Name) {
				t.Errorf("it has a preview: %t, but those that have one are said to be %q", can, s.Previews())
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			inputs := []string{``, `{}`, `null`, `[]`, `{"`, `"x"`, `{"url":5,"query":[],"timezone":{}}`, `{"query":"SELECT 1","url":"http://10.0.0.1/","x":1}`}
			for _, args := range inputs {
				res, err := r.Call(gone, callOf(r, args))
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("input %s: error %v; only that of the context may be one", args, err)
				}
				if err == nil && (!utf8.ValidString(res.Text) || res.Text == "" || utf8.RuneCountInString(res.Text) > builtin.DefaultMaxResult) {
					t.Errorf("input %s: result %q is empty, too long or no valid text", args, res.Text)
				}
			}
		})
	}
}

func TestTools_RequiredArgumentsAreAskedFor(t *testing.T) {
	t.Parallel()
	s, assigned := everyTool(t)
	want := map[string]string{"http_request": `{"error":"url is required"}`, "database_query": `{"error":"query is required"}`}
	for _, a := range assigned {
		if text := want[a.ToolName]; text != "" {
			if res := call(t, one(t, s, a), `{}`); res.Text != text || !res.IsError {
				t.Errorf("%s without arguments: %+v, want the error %s", a.ToolName, res, text)
			}
		}
	}
}

func checkSpec(t *testing.T, spec hob.ToolSpec) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.Schema))
	if err != nil {
		t.Fatalf("schema: %v", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:x", doc); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compile("mem:x"); err != nil {
		t.Errorf("schema does not compile: %v", err)
	}
	top, _ := doc.(map[string]any)
	if top["type"] != "object" || top["additionalProperties"] != false {
		t.Errorf("schema must be of a closed object: %s", spec.Schema)
	}
	switch {
	case spec.Name == "" || spec.Ref == "" || spec.Kind == "" || spec.Recovery == "" || spec.Effect == "":
		t.Errorf("spec has gaps: %+v", spec)
	case strings.TrimSpace(spec.Description) == "":
		t.Error("no description")
	case spec.Parallel && spec.Recovery != hob.RecoverRead:
		t.Error("only tools without effect may run beside others")
	}
}

// The inventory is reviewed as a file: a new tool, a wider schema or a weaker class shows up in its diff. It is not parallel,
// so that with -update the file is there before the parallel tests, which run afterwards, read it.
func TestInventory(t *testing.T) {
	s, assigned := everyTool(t)
	tools, _ := load(t, s, assigned...)
	var b strings.Builder
	for _, r := range tools {
		spec := r.Spec()
		if !strings.HasPrefix(spec.Ref, "builtin:") {
			continue
		}
		fmt.Fprintf(&b, "%s effect=%s recovery=%s parallel=%t timeout=%s\n  %s\n", spec.Name, spec.Effect, spec.Recovery, spec.Parallel, spec.Timeout, spec.Schema)
	}
	golden := filepath.Join("testdata", "inventory.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("inventory changed; run go test -update and review (-want +got)\n%s", diff)
	}
}

func TestRows_ListBuiltinsByNameWithoutID(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	var names []string
	for _, row := range s.Rows() {
		names = append(names, row.Name)
		kind := hob.BuiltinTool
		if row.Name == "web_browsing" {
			kind = hob.WebTool
		}
		if row.ID != "" || row.Type != kind || !row.IsActive || !json.Valid(row.InputSchema) || row.Description == "" {
			t.Errorf("row %+v", row)
		}
		if !s.Has(row.Name) {
			t.Errorf("Has(%q) = false", row.Name)
		}
	}
	inventory, err := os.ReadFile(filepath.Join("testdata", "inventory.golden"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(inventory)) {
		if name, _, _ := strings.Cut(line, " "); name != "" { // indented lines are schemas
			want = append(want, name)
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if s.Has("no_such_tool") {
		t.Error("a tool that does not exist is known")
	}
}
