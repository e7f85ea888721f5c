package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/egress"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// obedient answers as a model would that does what it is told. alter changes the calls it makes.
func obedient(alter func(fakeai.Reply) fakeai.Reply) func(fakeai.Parsed) fakeai.Reply {
	return func(p fakeai.Parsed) fakeai.Reply {
		last := p.Messages[len(p.Messages)-1]
		all := p.System
		for _, m := range p.Messages {
			all += "\n" + m.Text
		}
		switch {
		case last.Role == "tool":
			return fakeai.Text("It rains, at 7 degrees.")
		case last.Images > 0:
			return fakeai.Text("Red.")
		case len(p.Tools) > 0 && p.ToolChoice != "none":
			var r fakeai.Reply
			for _, city := range []string{"Oslo", "Rome"} {
				if strings.Contains(last.Text, city) {
					r.Calls = append(r.Calls, fakeai.Call{ID: "call_" + city, Name: p.Tools[0].Name, Arguments: `{"city":"` + city + `"}`})
				}
			}
			if alter != nil {
				r = alter(r)
			}
			return r
		case strings.HasPrefix(last.Text, "effort "):
			return fakeai.Text(last.Text)
		case bytes.Contains(p.Body, []byte(`"response_format"`)), strings.Contains(all, "Answer with one JSON"), bytes.Contains(p.Body, []byte(`"format":{`)):
			return fakeai.Text(`{"colour": "red"}`)
		case strings.Contains(all, "BANANA"):
			return fakeai.Text("BANANA")
		case p.MaxTokens > 0 && p.MaxTokens <= 16:
			r := fakeai.Text("one two three")
			r.Finish = "length"
			return r
		}
		return fakeai.Text("pong")
	}
}

// oddity is how a server deviates: a refusal of a request, "" to take it, or a change of its body.
type oddity func(body map[string]any) (refusal string)

// oddServer is a fake of OpenAI with an oddity before it. models is its list of models, "" = the fake's own.
func oddServer(t *testing.T, odd oddity, alter func(fakeai.Reply) fakeai.Reply, models string) string {
	t.Helper()
	fake := fakeai.New(fakeai.Options{Reply: obedient(alter), Key: testKey, Extra: []string{"always_usage"}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && models != "" {
			_, _ = io.WriteString(w, models)
			return
		}
		if r.Method == http.MethodPost && odd != nil {
			var body map[string]any
			raw, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(raw, &body); err != nil {
				t.Errorf("the request is no JSON: %s", raw)
			}
			if why := odd(body); why != "" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, why)
				return
			}
			raw, _ = json.Marshal(body)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

func newGuard(t *testing.T) *egress.Guard {
	t.Helper()
	guard := egress.New(egress.Config{})
	t.Cleanup(guard.Close)
	return guard
}

func probeAt(t *testing.T, url, model string) provider.ProbeReport {
	t.Helper()
	report, err := provider.Probe(t.Context(), provider.ProbeConfig{
		Dialect: "openai", BaseURL: url, Key: testKey, KeyName: "THE_KEY", Model: model, Clients: newGuard(t), Each: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// modelAt opens a model with profiles or without.
func modelAt(t *testing.T, url, model string, list ...hob.ModelProfile) hob.Model {
	t.Helper()
	m, err := provider.New(provider.Config{
		OpenAI: provider.Endpoint{Key: testKey, BaseURL: url}, Clients: newGuard(t), Retries: -1,
		Profiles: func(context.Context) ([]hob.ModelProfile, error) { return list, nil },
	}).Open(t.Context(), hob.DefaultWorkspace, "openai/"+model)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func messagesOf(body map[string]any) []map[string]any {
	var out []map[string]any
	list, _ := body["messages"].([]any)
	for _, m := range list {
		out = append(out, m.(map[string]any))
	}
	return out
}

func has(body map[string]any, member string) bool { _, ok := body[member]; return ok }

// refuses is the oddity of a server that does not know a member.
func refuses(member string) oddity {
	return func(body map[string]any) string {
		if has(body, member) {
			return "unknown field " + member
		}
		return ""
	}
}

// member is the response_format's strictness and kind.
func formOf(body map[string]any) (kind string, strict bool) {
	form, _ := body["response_format"].(map[string]any)
	kind, _ = form["type"].(string)
	schema, _ := form["json_schema"].(map[string]any)
	strict, _ = schema["strict"].(bool)
	return kind, strict
}

// behindCalls is a history with calls and their results.
func behindCalls(cities ...string) hob.Request {
	r := ask("Weather?")
	r.Tools = []hob.ToolSpec{weather}
	m := hob.Message{Role: hob.RoleAssistant, Reasoning: &hob.Reasoning{Provider: "openai", Text: "Let me see."}}
	for i := range cities {
		m.Calls = append(m.Calls, hob.ToolCall{ID: hob.CallID(fmt.Sprint("call_", i)), Name: "weather", Arguments: json.RawMessage(`{}`)})
	}
	r.Messages = append(r.Messages, m)
	for _, c := range m.Calls {
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: "weather", Content: "rain"})
	}
	return r
}

func with(r hob.Request, change func(*hob.Request)) hob.Request { change(&r); return r }

func shaped(s fakeai.Shape) func(fakeai.Reply) fakeai.Reply {
	return func(r fakeai.Reply) fakeai.Reply { r.Shape = s; return r }
}

func thoughtful(r fakeai.Reply) fakeai.Reply { r.Reasoning = []string{"Let me see."}; return r }

// echoEffort makes the model say which effort it was asked for.
func echoEffort(body map[string]any) string {
	if e, ok := body["reasoning_effort"].(string); ok {
		list := messagesOf(body)
		list[len(list)-1]["content"] = "effort " + e
		delete(body, "reasoning_effort")
	}
	return ""
}

// shortNames is the oddity of a server that takes longer names than the fake behind it does.
func shortNames(body map[string]any) string {
	tools, _ := body["tools"].([]any)
	for _, tool := range tools {
		if f := tool.(map[string]any)["function"].(map[string]any); len(f["name"].(string)) > 64 {
			delete(body, "tools") // it answers without a call, as models may
		}
	}
	return ""
}

// TestProbe_FindsWhatIsOddAndTheProfileMakesItWork probes servers that are odd in one way each. ask is a request that the
// table's way of writing makes them refuse, or that they answer wrongly, as good tells, and that works with the profile.
func TestProbe_FindsWhatIsOddAndTheProfileMakesItWork(t *testing.T) {
	t.Parallel()
	temperature := 0.5
	long := strings.Repeat("n", 64)
	schema := json.RawMessage(`{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"type":"object","properties":{},"required":[],"additionalProperties":false}}}`)
	for name, c := range map[string]struct {
		odd    oddity
		alter  func(fakeai.Reply) fakeai.Reply
		models string
		model  string // "" = m, which the tables do not know
		want   string // some of the facts
		ask    hob.Request
		good   func(answer) bool // nil = it is answered
	}{
		"nothing": {
			want: `{"stream_options":true,"usage":"stream_options","system_role":"system","max_tokens_field":"max_tokens","temperature":true,
				"tools":true,"call_ids":"present","parallel_calls":true,"tools_needed_on_last_step":false,"tool_choice_none":true,"reasoning":"none",
				"name_limit":64,"reasoning_effort":"refused","response_format":"json_schema","strict_schemas":true,"images":true,"finish_reasons":["length","stop","tool_calls"]}`,
		},
		"no usage": {
			odd: func(b map[string]any) string { delete(b, "stream_options"); return "" }, want: `{"stream_options":true,"usage":"never"}`,
		},
		"refuses stream_options": {
			odd: refuses("stream_options"), want: `{"stream_options":false,"usage":"never"}`, ask: ask("hi"),
		},
		"usage unasked": {
			odd: func(b map[string]any) string {
				if has(b, "stream_options") {
					return "unknown field stream_options"
				}
				b["stream_options"] = map[string]any{"include_usage": true}
				return ""
			},
			want: `{"stream_options":false,"usage":"always"}`, ask: ask("hi"),
			good: func(a answer) bool { return a.Last.Usage != nil },
		},
		"whole calls":       {alter: shaped(fakeai.WholeCalls), want: `{"deltas":"whole","call_ids":"present"}`},
		"cumulative calls":  {alter: shaped(fakeai.Cumulative), want: `{"deltas":"cumulative","call_ids":"present"}`},
		"calls without ids": {alter: shaped(fakeai.NoIDs), want: `{"call_ids":"missing"}`},
		"calls with one id": {
			alter: func(r fakeai.Reply) fakeai.Reply {
				r.Shape = fakeai.NoIndex
				for i := range r.Calls {
					r.Calls[i].ID = "call_x"
				}
				return r
			},
			want: `{"call_ids":"duplicate","parallel_calls":true}`,
			ask:  with(ask("Oslo and Rome"), func(r *hob.Request) { r.Tools = []hob.ToolSpec{weather} }),
			good: func(a answer) bool { return len(a.Calls) == 2 && a.Calls[1].Arguments == `{"city":"Rome"}` },
		},
		"refuses the developer's role": {
			model: "gpt-5", want: `{"system_role":"system"}`, ask: with(ask("hi"), func(r *hob.Request) { r.System = "Be brief." }),
			odd: func(b map[string]any) string {
				if messagesOf(b)[0]["role"] == "developer" {
					return "unknown role"
				}
				return ""
			},
		},
		"wants instructions of the user": {
			want: `{"system_role":"user"}`, ask: with(ask("hi"), func(r *hob.Request) { r.System = "Be brief." }),
			odd: func(b map[string]any) string {
				if role := messagesOf(b)[0]["role"]; role != "user" {
					return "conversations must begin with the user"
				}
				return ""
			},
		},
		"wants max_completion_tokens": {
			odd: refuses("max_tokens"), want: `{"max_tokens_field":"max_completion_tokens"}`,
			ask: with(ask("hi"), func(r *hob.Request) { r.MaxTokens = 9 }),
		},
		"wants max_tokens": {
			model: "gpt-5",
			odd: func(b map[string]any) string {
				if has(b, "max_completion_tokens") {
					return "unknown field max_completion_tokens"
				}
				if n, ok := b["max_tokens"]; ok { // the fake knows gpt-5 as its vendor has it
					b["max_completion_tokens"] = n
					delete(b, "max_tokens")
				}
				return ""
			},
			want: `{"max_tokens_field":"max_tokens"}`,
			ask:  with(ask("hi"), func(r *hob.Request) { r.MaxTokens = 9 }),
		},
		"refuses a temperature": {
			odd: refuses("temperature"), want: `{"temperature":false}`,
			ask: with(ask("hi"), func(r *hob.Request) { r.Temperature = &temperature }),
		},
		"wants tools on the last step": {
			want: `{"tools_needed_on_last_step":true,"tool_choice_none":true}`, ask: with(behindCalls("Oslo"), func(r *hob.Request) { r.NoToolUse = true }),
			odd: func(b map[string]any) string {
				for _, m := range messagesOf(b) {
					if m["role"] == "tool" && !has(b, "tools") {
						return "tools must be given where the history has calls"
					}
				}
				return ""
			},
		},
		"refuses tool_choice": {odd: refuses("tool_choice"), want: `{"tool_choice_none":false,"tools_needed_on_last_step":false}`},
		"wants tools on the last step and refuses tool_choice": {
			want: `{"tools_needed_on_last_step":true,"tool_choice_none":false}`, ask: with(behindCalls("Oslo"), func(r *hob.Request) { r.NoToolUse = true }),
			odd: func(b map[string]any) string {
				for _, m := range messagesOf(b) {
					if m["role"] == "tool" && !has(b, "tools") {
						return "tools must be given where the history has calls"
					}
				}
				return refuses("tool_choice")(b)
			},
		},
		"refuses long names": {
			want: `{"name_limit":32}`, ask: with(ask("Oslo"), func(r *hob.Request) { r.Tools = []hob.ToolSpec{{Name: long}} }),
			good: func(a answer) bool { return len(a.Calls) == 1 && a.Calls[0].Name == long },
			odd: func(b map[string]any) string {
				tools, _ := b["tools"].([]any)
				for _, tool := range tools {
					if f := tool.(map[string]any)["function"].(map[string]any); len(f["name"].(string)) > 40 {
						return "name too long"
					}
				}
				return ""
			},
		},
		"refuses strict schemas": {
			want: `{"response_format":"json_schema","strict_schemas":false}`, ask: with(ask("hi"), func(r *hob.Request) { r.ResponseFormat = schema }),
			odd: func(b map[string]any) string {
				if _, strict := formOf(b); strict {
					return "strict is not supported"
				}
				return ""
			},
		},
		"refuses schemas": {
			want: `{"response_format":"json_object"}`, ask: with(ask("hi"), func(r *hob.Request) { r.ResponseFormat = schema }),
			odd: func(b map[string]any) string {
				if kind, _ := formOf(b); kind == "json_schema" {
					return "unknown response_format"
				}
				return ""
			},
		},
		"refuses every form": {
			odd: refuses("response_format"), want: `{"response_format":"none"}`,
			ask:  with(ask("hi"), func(r *hob.Request) { r.ResponseFormat = schema }),
			good: func(a answer) bool { return a.Err == nil && json.Valid([]byte(a.Text)) },
		},
		"has no limit of names": {
			want: `{"name_limit":null,"tools":true}`, odd: shortNames,
		},
		"refuses a reasoning effort": {
			model: "gpt-oss", odd: refuses("reasoning_effort"), want: `{"reasoning_effort":"refused"}`,
			ask: with(ask("hi"), func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh }),
		},
		"thinks as it is told": {
			want: `{"reasoning_effort":"none"}`, odd: echoEffort,
			ask:  with(ask("hi"), func(r *hob.Request) { r.ReasoningEffort = hob.EffortHigh }),
			good: func(a answer) bool { return a.Text == "effort high" },
		},
		"thinks at least a little": {
			want: `{"reasoning_effort":"low"}`,
			ask:  with(ask("hi"), func(r *hob.Request) { r.ReasoningEffort = hob.EffortNone }),
			good: func(a answer) bool { return a.Text == "effort low" },
			odd: func(b map[string]any) string {
				if e := b["reasoning_effort"]; e == "none" || e == "minimal" {
					return "reasoning_effort must be low, medium or high"
				}
				return echoEffort(b)
			},
		},
		"refuses images": {
			want: `{"images":false}`,
			odd: func(b map[string]any) string {
				for _, m := range messagesOf(b) {
					if _, list := m["content"].([]any); list {
						return "content must be a string"
					}
				}
				return ""
			},
		},
		"wants its reasoning back": {
			alter: thoughtful, want: `{"reasoning":"reasoning_content","reasoning_echo":"needed"}`, ask: behindCalls("Oslo"),
			odd: func(b map[string]any) string {
				for _, m := range messagesOf(b) {
					if m["role"] == "assistant" && !has(m, "reasoning_content") {
						return "reasoning_content is missing"
					}
					delete(m, "reasoning_content")
				}
				return ""
			},
		},
		"refuses its reasoning": {
			alter: thoughtful, model: "deepseek-reasoner", want: `{"reasoning":"reasoning_content","reasoning_echo":"refused"}`, ask: behindCalls("Oslo"),
			odd: func(b map[string]any) string {
				for _, m := range messagesOf(b) {
					if has(m, "reasoning_content") {
						return "reasoning_content is unknown"
					}
				}
				return ""
			},
		},
		"refuses the results of two calls": {
			want: `{"parallel_calls":false,"parallel_tool_calls":true}`,
			ask:  with(ask("Oslo and Rome"), func(r *hob.Request) { r.Tools = []hob.ToolSpec{weather} }),
			good: func(a answer) bool { return len(a.Calls) == 1 },
			odd: func(b map[string]any) string {
				list := messagesOf(b)
				for _, m := range list {
					if calls, _ := m["tool_calls"].([]any); len(calls) > 1 {
						return "one call at a time"
					}
				}
				if b["parallel_tool_calls"] == false { // then the model keeps to it
					list[len(list)-1]["content"] = "Oslo"
				}
				return ""
			},
		},
		"refuses tools": {odd: refuses("tools"), want: `{"tools":false}`},
		"tells its window": {
			models: `{"data":[{"id":"other","max_model_len":1},{"id":"m","max_model_len":4096}]}`, want: `{"window":4096}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.model == "" {
				c.model = "m"
			}
			url := oddServer(t, c.odd, c.alter, c.models)
			report := probeAt(t, url, c.model)
			if !report.Usable || report.Calls == 0 || report.Tokens == 0 {
				t.Fatalf("the report: %+v", report)
			}
			profile, err := report.Profile(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			wantFacts(t, profile.Facts, c.want)
			if c.ask.Messages == nil {
				return
			}
			good := c.good
			if good == nil {
				good = func(a answer) bool { return a.Err == nil && (a.Text != "" || len(a.Calls) > 0) }
			}
			if a := collect(t, modelAt(t, url, c.model), c.ask); good(a) {
				t.Errorf("it works without the profile: %+v", a)
			}
			if a := collect(t, modelAt(t, url, c.model, profile), c.ask); !good(a) {
				t.Errorf("it does not work with the profile: %+v, %v\nfacts %s", a, a.Err, profile.Facts)
			}
		})
	}
}

func wantFacts(t *testing.T, facts json.RawMessage, want string) {
	t.Helper()
	var got, some map[string]any
	if err := json.Unmarshal(facts, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &some); err != nil {
		t.Fatal(err)
	}
	for name, value := range some {
		if diff := cmp.Diff(value, got[name]); diff != "" {
			t.Errorf("the fact %s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := provider.ReadFacts(facts); err != nil {
		t.Errorf("the facts cannot be read again: %v", err)
	}
}

func TestProbe_AnthropicsDialect(t *testing.T) {
	t.Parallel()
	fake := fakeai.New(fakeai.Options{Reply: obedient(nil), Key: testKey})
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	var told []string
	report, err := provider.Probe(t.Context(), provider.ProbeConfig{
		Dialect: "anthropic", BaseURL: srv.URL, Key: testKey, Model: "claude-sonnet-4-5", Clients: newGuard(t),
		Told: func(c provider.Check) { told = append(told, c.Name) },
	})
	if err != nil || !report.Usable {
		t.Fatalf("%v, %+v", err, report)
	}
	want := map[string]provider.Outcome{
		"plain answer": provider.Yes, "streaming": provider.Yes, "usage": provider.Yes, "instructions": provider.Yes, "max tokens": provider.Yes,
		"temperature": provider.Yes, "tool call": provider.Yes, "tool result": provider.Yes, "parallel calls": provider.Yes, "last step": provider.Yes,
		"tool_choice none": provider.Yes, "tool name of 64": provider.Yes, "response format": provider.Yes, "image": provider.Yes,
		"window": provider.Unclear, "reasoning sent back": provider.Unclear,
	}
	for _, c := range report.Checks {
		if w, ok := want[c.Name]; ok && c.Outcome != w {
			t.Errorf("%s: %s (%s), want %s", c.Name, c.Outcome, c.Note, w)
		}
		delete(want, c.Name)
	}
	if len(want) > 0 || len(told) != len(report.Checks) {
		t.Errorf("not checked: %v; told %v", want, told)
	}
	if report.Estimated || report.Tokens == 0 {
		t.Errorf("%d tokens, estimated %t, although usage was told", report.Tokens, report.Estimated)
	}
}

func TestProbe_AnEndpointThatCannotBeUsedEndsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		note   string
	}{
		"wrong key":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, "401: Unauthorized (check THE_KEY)"},
		"no such model":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "404: Not Found (check the model's name and the address http://127.0.0.1:"},
		"a web page":         {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "web page"},
		"refuses everything": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(c.handle)
			t.Cleanup(srv.Close)
			report := probeAt(t, srv.URL+"/v1", "m")
			if report.Usable || len(report.Checks) != 1 || report.Checks[0].Outcome != provider.No || !strings.Contains(report.Checks[0].Note, c.note) {
				t.Errorf("got %+v", report)
			}
		})
	}
}

func TestProbe_AsksWhetherTheVersionIsMissing(t *testing.T) {
	t.Parallel()
	url := strings.TrimSuffix(oddServer(t, nil, nil, ""), "/v1")
	report := probeAt(t, url, "m")
	if report.Usable || !strings.Contains(report.Checks[0].Note, "does the address lack /v1?") || !strings.Contains(report.Checks[0].Note, url) {
		t.Errorf("got %+v", report)
	}
}

func TestProbe_ABadDayIsNotTakenForAFact(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	url := oddServer(t, nil, nil, "")
	inner, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	fake := fakeai.New(fakeai.Options{Reply: obedient(nil), Key: testKey})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 1 { // all but the first
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		r.Host = inner.Host
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	report := probeAt(t, srv.URL+"/v1", "m")
	if !report.Usable || report.Facts.Temperature != nil || report.Facts.Tools != nil || report.Facts.Images != nil ||
		report.Facts.MaxTokensField != "" || report.Facts.ResponseFormat != "" || report.Facts.NameLimit != 0 {
		t.Errorf("facts %+v", report.Facts)
	}
	for _, c := range report.Checks[3:] {
		if c.Outcome != provider.Unclear {
			t.Errorf("%s: %s (%s)", c.Name, c.Outcome, c.Note)
		}
	}
}

func TestProbe_KeepsToItsTime(t *testing.T) {
	t.Parallel()
	fake := fakeai.New(fakeai.Options{Key: testKey, Reply: func(p fakeai.Parsed) fakeai.Reply {
		if p.Number == 1 {
			return fakeai.Text("pong")
		}
		return fakeai.Reply{Wait: time.Minute}
	}})
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	start := time.Now()
	report, err := provider.Probe(t.Context(), provider.ProbeConfig{
		Dialect: "openai", BaseURL: srv.URL + "/v1", Key: testKey, Model: "m", Clients: newGuard(t),
		Each: 100 * time.Millisecond, Total: 700 * time.Millisecond,
	})
	if err != nil || !report.Usable || time.Since(start) > 20*time.Second {
		t.Errorf("after %s: %v, %+v", time.Since(start), err, report)
	}
	if i := slices.IndexFunc(report.Checks, func(c provider.Check) bool { return c.Name == "image" }); i < 0 || report.Checks[i].Outcome != provider.Unclear {
		t.Errorf("checks %+v", report.Checks)
	}
}

func TestProbe_RefusesWhatItCannotAsk(t *testing.T) {
	t.Parallel()
	good := provider.ProbeConfig{Dialect: "openai", BaseURL: "http://127.0.0.1:1/v1", Model: "m", Clients: newGuard(t)}
	for name, change := range map[string]func(*provider.ProbeConfig){
		"dialect": func(c *provider.ProbeConfig) { c.Dialect = "morse" },
		"address": func(c *provider.ProbeConfig) { c.BaseURL = " " },
		"no URL":  func(c *provider.ProbeConfig) { c.BaseURL = "here" },
		"model":   func(c *provider.ProbeConfig) { c.Model = "" },
	} {
		c := good
		change(&c)
		if _, err := provider.Probe(t.Context(), c); hob.KindOf(err) != hob.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProfiles_CountForAWorkspacesOwnEndpointAndItsWindow(t *testing.T) {
	t.Parallel()
	url := oddServer(t, refuses("stream_options"), nil, "")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	r := provider.New(provider.Config{
		Clients: direct{&http.Client{Transport: transport}}, Retries: -1,
		Keys: func(context.Context, hob.WorkspaceID) ([]hob.ProviderKey, error) {
			return []hob.ProviderKey{{Provider: "mine", BaseURL: url, Key: testKey}}, nil
		},
		Profiles: func(context.Context) ([]hob.ModelProfile, error) {
			return []hob.ModelProfile{{Endpoint: url, Model: "m", Facts: json.RawMessage(`{"stream_options":false,"window":7000}`)}}, nil
		},
	})
	for model, works := range map[string]bool{"mine/m": true, "mine/other": false} {
		m, err := r.Open(t.Context(), hob.DefaultWorkspace, model)
		if err != nil {
			t.Fatal(err)
		}
		if a := collect(t, m, ask("hi")); (a.Err == nil) != works {
			t.Errorf("%s: %+v", model, a.Err)
		}
		if (m.Window == 7_000) != works {
			t.Errorf("%s has a window of %d", model, m.Window)
		}
	}
}
