package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"hob"
	"hob/internal/api"
)

// warned are the warnings of an answer.
func warned(t *testing.T, r reply, status int) string {
	t.Helper()
	return strings.Join(as[struct{ Warnings []string }](t, r, status).Warnings, "\n")
}

func TestModels_AMistypedProviderIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := "/api/agents/" + string(w.agent("fixed"))
	const stray = `"mistyped" names no provider and no provider key, so openai is asked for the model "mistyped/tiny"; if that is meant, write "openai/mistyped/tiny"`
	const nobody = `no provider serves the model "nobody's"`
	for _, c := range []struct{ name, method, path, body, want string }{
		{"create", "POST", "/api/agents", `{"name":"a","model":"mistyped/tiny"}`, stray},
		{"update", "PATCH", agent, `{"model":"mistyped/tiny"}`, stray},
		{"of another provider", "POST", "/api/agents", `{"name":"a","model":"openrouter/openai/gpt-4o"}`, ""},
		{"of a named endpoint", "POST", "/api/agents", `{"name":"a","model":"mine/tiny"}`, ""},
		{"fallback", "POST", "/api/agents", `{"name":"a","model":"fixed","settings":{"fallback_model":"mistyped/tiny"}}`, "settings.fallback_model: " + stray},
		{"fallback of nobody", "PATCH", agent, `{"settings":{"fallback_model":"nobody's"}}`, "settings.fallback_model: " + nobody},
		{"good fallback", "PATCH", agent, `{"settings":{"fallback_model":"fixed"}}`, ""},
		{
			"settings", "PUT", "/api/settings", `{"settings":{"AGENT_DEFAULT_MODEL":"nobody's","COMPACTION_MODEL":"mistyped/tiny"}}`,
			"AGENT_DEFAULT_MODEL: " + nobody + "\nCOMPACTION_MODEL: " + stray,
		},
		{"one setting", "PUT", "/api/settings/AGENT_DEFAULT_MODEL", `{"value":"mistyped/tiny"}`, "AGENT_DEFAULT_MODEL: " + stray},
		{"a model that nobody serves", "PUT", "/api/settings/VISION_MODEL", `{"value":"mistyped/tiny"}`, "VISION_MODEL: " + stray},
		{"the run's own model", "PUT", "/api/settings/COMPACTION_MODEL", `{"value":"same"}`, ""},
		{"no model", "PUT", "/api/settings/COMPACTION_MODEL", `{"value":""}`, ""},
		{"good model", "PUT", "/api/settings/COMPACTION_MODEL", `{"value":"fixed"}`, ""},
	} {
		r := w.do(ask{c.method, c.path, w.service, c.body, nil})
		status := http.StatusOK
		if c.method == http.MethodPost {
			status = http.StatusCreated
		}
		if got := warned(t, r, status); got != c.want {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRun_SaysWherePicturesGo(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	r := w.do(ask{"POST", "/api/agents/" + string(w.agent("fixed")) + "/run", w.service, `{"message":"hi","images":["https://x.example/a.png"]}`, nil})
	if got := warned(t, r, http.StatusOK); !strings.Contains(got, `unknown field ignored: "images"`) || !strings.Contains(got, `"type": "image_url"`) {
		t.Errorf("warnings %q", got)
	}
	r = w.do(ask{"POST", "/api/agents/" + string(w.agent("fixed")) + "/run", w.service, `{"message":"hi","pictures":[]}`, nil})
	if got := warned(t, r, http.StatusOK); strings.Contains(got, "image_url") {
		t.Errorf("warnings %q", got)
	}
}

// refusing are settings that answer with an error of their own.
type refusing struct {
	api.Settings
	err error
}

func (r refusing) List(context.Context, hob.WorkspaceID) (map[string]hob.SettingCategory, error) {
	return nil, r.err
}

func TestFail_RetryAfterIsSentWhereWaitingHelps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   hob.Kind
		after  time.Duration
		status int
		want   string
	}{
		"no end":        {hob.RateLimited, 0, http.StatusTooManyRequests, ""},
		"a while":       {hob.RateLimited, 1500 * time.Millisecond, http.StatusTooManyRequests, "2"},
		"an instant":    {hob.RateLimited, time.Nanosecond, http.StatusTooManyRequests, "1"},
		"not available": {hob.Unavailable, 0, http.StatusServiceUnavailable, "1"},
	} {
		w := begin(t, func(cfg *api.Config) {
			err := hob.Errorf(c.kind, "no")
			err.RetryAfter = c.after
			cfg.Settings = refusing{err: err}
		})
		r := w.do(ask{"GET", "/api/settings", w.service, "", nil})
		if r.status != c.status || r.header.Get("Retry-After") != c.want {
			t.Errorf("%s: status %d, Retry-After %q, want %q", name, r.status, r.header.Get("Retry-After"), c.want)
		}
	}
}

func TestUsage_NamesTheParametersThereAre(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	f := wantFault(t, w.do(ask{"GET", "/api/usage?groupby=model", w.service, "", nil}), http.StatusBadRequest,
		`unknown parameter "groupby"; there are since, until, group_by, agent_id, model, run_id`)
	if f.Code != "unknown_parameter" || f.Details["field"] != "groupby" {
		t.Errorf("got %+v", f)
	}
}

// Every frame that a run sends is one of the described forms, and of one alone.
func TestOpenAPI_FramesFitTheSchemaOfEvents(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	_, schemas := requestBodies(t, w)
	schema := schemaOf(t, schemas, "Event")
	seen := map[string]bool{}
	for _, model := range []string{"fixed", "calls", "broken"} {
		events := w.stream(ask{"POST", "/api/agents/" + string(w.agent(model)) + "/run/stream", w.service, `{"message":"hi"}`, nil})
		for _, e := range events.rest() {
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(e.raw)))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s is no event: %v", e.raw, err)
			}
			seen[string(e.Type)] = true
		}
	}
	for _, kind := range []hob.EventType{hob.EventStart, hob.EventStepStarted, hob.EventChunk, hob.EventError, hob.EventComplete} {
		if !seen[string(kind)] {
			t.Errorf("no %s was seen", kind)
		}
	}
	for _, bad := range []string{`{}`, `{"event":"start","type":"complete"}`, `{"event":"party","type":"party","seq":1,"run_id":"run_1","ts":null}`} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(bad))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(v) == nil {
			t.Errorf("%s is taken for an event", bad)
		}
	}
}

// The codes of runs in the description are those of the page about errors.
func TestOpenAPI_CodesOfRunsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| code of a run |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, m[1])
	}
	w := begin(t, nil)
	_, schemas := requestBodies(t, w)
	var s struct {
		Properties struct {
			Code struct{ Enum []*string }
		}
	}
	if err := json.Unmarshal(schemas["RunResult"], &s); err != nil {
		t.Fatal(err)
	}
	var described []string
	null := false
	for _, code := range s.Properties.Code.Enum {
		if null = null || code == nil; code != nil {
			described = append(described, *code)
		}
	}
	slices.Sort(documented)
	slices.Sort(described)
	if !slices.Equal(documented, described) || !null || len(described) == 0 {
		t.Errorf("documented %v, described %v, null %t", documented, described, null)
	}
}
