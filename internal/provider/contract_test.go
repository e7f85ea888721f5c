package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"hob"
	"hob/internal/egress"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct gives a plain client, where the program has the egress guard's.
type direct struct{ client *http.Client }

func (d direct) OperatorClient(string) (*http.Client, error) { return d.client, nil }

const testKey = "sk-test-0123456789abcdef/\"+"

// vendor is a provider under test, each reached under the fake's address.
type vendor struct {
	name   string
	model  string
	keyVar string
	keyed  bool
	config func(*provider.Config, string)
	extra  []string
}

var vendors = []vendor{
	{name: "openai", model: "openai/gpt-4o", keyVar: "OPENAI_API_KEY", keyed: true, config: func(c *provider.Config, url string) {
		c.OpenAI = provider.Endpoint{Key: testKey, BaseURL: url + "/v1"}
	}},
	{name: "anthropic", model: "anthropic/claude-sonnet-4-5", keyVar: "ANTHROPIC_API_KEY", keyed: true, config: func(c *provider.Config, url string) {
		c.Anthropic = provider.Endpoint{Key: testKey, BaseURL: url}
	}},
	{name: "gemini", model: "gemini/gemini-2.5-flash", keyVar: "GEMINI_API_KEY", keyed: true, config: func(c *provider.Config, url string) {
		c.Gemini = provider.Endpoint{Key: testKey, BaseURL: url}
	}},
	{name: "openrouter", model: "openrouter/meta/llama-3", keyVar: "OPENROUTER_API_KEY", keyed: true, config: func(c *provider.Config, url string) {
		c.OpenRouter = provider.Endpoint{Key: testKey, BaseURL: url + "/v1/"}
	}, extra: []string{"reasoning", "plugins"}},
	{name: "ollama", model: "ollama/llama3", config: func(c *provider.Config, url string) { c.OllamaHost = url }},
}

// bed is a provider connected to a fake of its vendor.
type bed struct {
	fake  *fakeai.Server
	model hob.Model
}

func newBed(t *testing.T, v vendor, reply func(fakeai.Parsed) fakeai.Reply, change func(*provider.Config)) *bed {
	t.Helper()
	o := fakeai.Options{Reply: reply, Extra: v.extra}
	if v.keyed {
		o.Key = testKey
	}
	b := &bed{fake: fakeai.New(o)}
	srv := httptest.NewServer(b.fake)
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { guard.Close(); srv.Close() })
	c := provider.Config{Clients: guard, RetryBase: time.Millisecond}
	v.config(&c, srv.URL)
	if change != nil {
		change(&c)
	}
	m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, v.model)
	if err != nil {
		t.Fatal(err)
	}
	b.model = m
	return b
}

// answer is everything a stream gave.
type answer struct {
	Text, Reasoning string
	Calls           []hob.ModelCall
	Artefact        json.RawMessage
	Last            hob.Delta
	Deltas          int
	Err             *hob.ProviderError
}

func collect(t *testing.T, m hob.Model, r hob.Request) answer {
	t.Helper()
	return collectWith(t.Context(), t, m, r)
}

func collectWith(ctx context.Context, t *testing.T, m hob.Model, r hob.Request) answer {
	t.Helper()
	var a answer
	r.Model = m.Model
	for d, err := range m.Provider.Stream(ctx, r) {
		if a.Err != nil || a.Last.Finish != "" {
			t.Errorf("the sequence goes on behind its end: %+v, %v", d, err)
		}
		if err != nil {
			if !errors.As(err, &a.Err) {
				t.Fatalf("the error is no *hob.ProviderError: %T %v", err, err)
			}
			continue
		}
		a.Deltas++
		a.Text += d.Text
		a.Reasoning += d.Reasoning
		if d.Call != nil {
			a.Calls = append(a.Calls, *d.Call)
		}
		if d.Artefact != nil {
			a.Artefact = d.Artefact
		}
		if d.Finish != "" {
			a.Last = d
		}
	}
	if a.Err == nil && a.Last.Finish == "" {
		t.Error("the sequence ended without a finish reason and without an error")
	}
	if a.Err != nil && strings.Contains(a.Err.Error()+a.Err.Message, testKey) {
		t.Errorf("the error holds the key: %s", a.Err.Message)
	}
	return a
}

func ask(text string) hob.Request {
	return hob.Request{Step: 1, Messages: []hob.Message{{Role: hob.RoleUser, Content: text}}}
}

var weather = hob.ToolSpec{
	Name: "weather", Description: "the weather", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`),
}

// each runs a test against every provider over HTTP.
func each(t *testing.T, run func(t *testing.T, v vendor)) {
	t.Helper()
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) { t.Parallel(); run(t, v) })
	}
}

func TestProviders_Text(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Text("Hello, wörld \U0001F600 and \"all\"\n.")), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err != nil || a.Text != "Hello, wörld \U0001F600 and \"all\"\n." || a.Last.Finish != hob.FinishStop {
			t.Errorf("got %+v", a)
		}
		if a.Last.Usage == nil || a.Last.Usage.PromptTokens == 0 || a.Last.Usage.TotalTokens != a.Last.Usage.PromptTokens+a.Last.Usage.CompletionTokens {
			t.Errorf("usage %+v", a.Last.Usage)
		}
		if a.Last.Model != b.model.Model {
			t.Errorf("the model that answered is %q", a.Last.Model)
		}
	})
}

func TestProviders_SlowTextComesAsItIsWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		reply := fakeai.Tokens(5)
		reply.Interval = 30 * time.Millisecond
		b := newBed(t, v, fakeai.Always(reply), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err != nil || a.Deltas < 5 {
			t.Errorf("5 tokens at intervals came in %d deltas: %+v", a.Deltas, a)
		}
	})
}

// turn is a whole step as the engine stores it.
func turn(r hob.Request, a answer, results ...string) hob.Request {
	m := hob.Message{Role: hob.RoleAssistant, Content: a.Text}
	for _, c := range a.Calls {
		args, err := hob.ParseArguments(c.Arguments)
		if err != nil {
			args = json.RawMessage("{}")
		}
		m.Calls = append(m.Calls, hob.ToolCall{ID: hob.CallID(c.ID), Name: c.Name, Arguments: args})
	}
	r.Messages = append(slices.Clone(r.Messages), m)
	for i, c := range m.Calls {
		r.Messages = append(r.Messages, hob.Message{Role: hob.RoleTool, CallID: c.ID, Name: c.Name, Content: results[i]})
	}
	r.Step++
	return r
}

func TestProviders_ToolCallAndItsResult(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Steps(
			fakeai.Reply{Text: []string{"Let me ", "look."}, Calls: []fakeai.Call{{ID: "call_1", Name: "weather", Arguments: `{"city":"Oslo"}`}}},
			fakeai.Text("It rains."),
		), nil)
		r := ask("weather in Oslo?")
		r.Tools = []hob.ToolSpec{weather}
		a := collect(t, b.model, r)
		want := []hob.ModelCall{{ID: "call_1", Name: "weather", Arguments: `{"city":"Oslo"}`}}
		if diff := cmp.Diff(want, a.Calls); diff != "" || a.Text != "Let me look." || a.Last.Finish != hob.FinishToolCalls {
			t.Fatalf("got %+v\n%s", a, diff)
		}
		a = collect(t, b.model, turn(r, a, "rain"))
		if a.Err != nil || a.Text != "It rains." || a.Last.Finish != hob.FinishStop {
			t.Fatalf("second step: %+v", a)
		}
		sent := b.fake.Requests()[1].Messages
		wantSent := []fakeai.Message{
			{Role: "user", Text: "weather in Oslo?"},
			{Role: "assistant", Text: "Let me look.", Calls: []fakeai.Call{{ID: "call_1", Name: "weather", Arguments: `{"city":"Oslo"}`}}},
			{Role: "tool", Text: "rain", CallID: "call_1"},
		}
		if diff := cmp.Diff(wantSent, sent); diff != "" {
			t.Errorf("sent history (-want +got):\n%s", diff)
		}
	})
}

func TestProviders_ParallelCalls(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Steps(
			fakeai.Calls(
				fakeai.Call{ID: "a", Name: "weather", Arguments: `{"city":"Oslo"}`}, fakeai.Call{ID: "b", Name: "weather", Arguments: `{}`},
				fakeai.Call{ID: "c", Name: "weather", Arguments: `{"city":"Rome"}`}),
			fakeai.Text("Done."),
		), nil)
		r := ask("weather?")
		r.Tools = []hob.ToolSpec{weather}
		a := collect(t, b.model, r)
		var ids []string
		for _, c := range a.Calls {
			ids = append(ids, c.ID)
		}
		if !slices.Equal(ids, []string{"a", "b", "c"}) || a.Calls[2].Arguments != `{"city":"Rome"}` {
			t.Fatalf("calls %+v", a.Calls)
		}
		if a = collect(t, b.model, turn(r, a, "rain", "sun", "fog")); a.Text != "Done." {
			t.Errorf("the history with three results was refused: %+v, %v", a.Err, b.fake.Refusals())
		}
	})
}

func TestProviders_LengthIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Reply{Text: []string{"Once"}, Finish: "length"}), nil)
		if a := collect(t, b.model, ask("hi")); a.Last.Finish != hob.FinishLength {
			t.Errorf("got %+v", a.Last)
		}
	})
}

func TestProviders_ConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		fake := fakeai.New(fakeai.Options{Extra: v.extra})
		seen := map[string]bool{}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen[r.RemoteAddr] = true // one request after the other
			fake.ServeHTTP(w, r)
		}))
		defer srv.Close()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		c := provider.Config{Clients: direct{&http.Client{Transport: transport}}}
		v.config(&c, srv.URL)
		m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, v.model)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if a := collect(t, m, ask("hi")); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		if len(seen) != 1 {
			t.Errorf("5 calls took %d connections", len(seen))
		}
	})
}

func TestChat_ReadsEveryShapeOfCalls(t *testing.T) {
	t.Parallel()
	shapes := map[string]fakeai.Shape{
		"standard": fakeai.Standard, "whole": fakeai.WholeCalls, "no ids": fakeai.NoIDs, "no index": fakeai.NoIndex,
		"objects": fakeai.ObjectArgs, "cumulative": fakeai.Cumulative, "stop": fakeai.StopWithCall, "legacy": fakeai.Legacy,
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := []fakeai.Call{
				{ID: "a", Name: "weather", Arguments: `{"city":"Oslo","days":[1,2,3]}`},
				{ID: "b", Name: "weather", Arguments: `{"city":"Rome"}`},
			}
			if shape == fakeai.Legacy {
				calls = calls[:1]
			}
			b := newBed(t, vendors[0], fakeai.Always(fakeai.Reply{Text: []string{"Hm."}, Calls: calls, Shape: shape}), nil)
			r := ask("weather?")
			r.Tools = []hob.ToolSpec{weather}
			a := collect(t, b.model, r)
			if a.Err != nil || len(a.Calls) != len(calls) || a.Last.Finish != hob.FinishToolCalls || a.Text != "Hm." {
				t.Fatalf("got %+v, %v", a, a.Err)
			}
			for i, c := range a.Calls {
				if c.Name != "weather" || c.Arguments != calls[i].Arguments {
					t.Errorf("call %d: %+v", i, c)
				}
			}
		})
	}
}

func TestMessages_ThoughtsGoBackAsTheyCame(t *testing.T) {
	t.Parallel()
	b := newBed(t, vendors[1], fakeai.Steps(
		fakeai.Reply{Reasoning: []string{"Let me ", "think."}, Calls: []fakeai.Call{{ID: "a", Name: "weather", Arguments: "{}"}}},
		fakeai.Text("Done."),
	), nil)
	r := ask("weather?")
	r.Tools, r.ReasoningEffort = []hob.ToolSpec{weather}, hob.EffortLow
	a := collect(t, b.model, r)
	if a.Reasoning != "Let me think." || a.Artefact == nil {
		t.Fatalf("got %+v", a)
	}
	r = turn(r, a, "rain")
	r.Messages[1].Reasoning = &hob.Reasoning{Provider: b.model.Name, Text: a.Reasoning, Artefact: a.Artefact}
	if a = collect(t, b.model, r); a.Text != "Done." {
		t.Fatalf("got %+v, %v", a.Err, b.fake.Refusals())
	}
	if sent := b.fake.Requests()[1].Messages[1]; sent.Thoughts != 1 {
		t.Errorf("sent back %+v", sent)
	}
	r.Messages[1].Reasoning.Provider = "openrouter"
	if a = collect(t, b.model, r); a.Text != "Done." || b.fake.Requests()[2].Messages[1].Thoughts != 0 {
		t.Errorf("another provider's thoughts: %+v, %v", a.Err, b.fake.Refusals())
	}
}

func TestProviders_ToolNamesBeyondTheLimitComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		name := "mcp__" + strings.Repeat("länge_", 12)
		b := newBed(t, v, func(p fakeai.Parsed) fakeai.Reply {
			return fakeai.Calls(fakeai.Call{ID: "a", Name: p.Tools[0].Name, Arguments: "{}"})
		}, nil)
		r := ask("x")
		r.Tools = []hob.ToolSpec{{Name: name}}
		if a := collect(t, b.model, r); len(a.Calls) != 1 || a.Calls[0].Name != name {
			t.Errorf("got %+v, %v", a.Calls, b.fake.Refusals())
		}
	})
}

func TestProviders_ManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, func(p fakeai.Parsed) fakeai.Reply { return fakeai.Text("you said " + p.LastText() + ".") }, nil)
		done := make(chan string)
		for i := range 32 {
			go func() {
				text := strings.Repeat("x", i+1)
				for range 5 {
					if a := collect(t, b.model, ask(text)); a.Text != "you said "+text+"." {
						done <- a.Text
						return
					}
				}
				done <- ""
			}()
		}
		for range 32 {
			if got := <-done; got != "" {
				t.Errorf("streams mixed: %q", got)
			}
		}
	})
}

func TestChat_LongDescriptionsGoToTheInstructions(t *testing.T) {
	t.Parallel()
	b := newBed(t, vendors[0], nil, nil)
	long := strings.Repeat("é", 1_020) + "12345"
	r := ask("x")
	r.System = "Be brief."
	r.Tools = []hob.ToolSpec{{Name: "short", Description: long[:len(long)-1]}, {Name: "long", Description: long}}
	if a := collect(t, b.model, r); a.Err != nil {
		t.Fatal(a.Err)
	}
	p := b.fake.Requests()[0]
	if p.System != "Be brief.\n\nThe tool long:\n"+long || p.Tools[0].Description != r.Tools[0].Description ||
		!strings.HasPrefix(p.Tools[1].Description, "ééé") || !strings.HasSuffix(p.Tools[1].Description, "in the instructions)") {
		t.Errorf("instructions %q, tools %+v", p.System, p.Tools)
	}
	r.NoToolUse = true
	if a := collect(t, b.model, r); a.Err != nil || b.fake.Requests()[1].System != "Be brief." {
		t.Errorf("without tools: %v, %q", a.Err, b.fake.Requests()[1].System)
	}
}

func TestChat_OtherModelsGetTheWholeDescription(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1_025)
	r := ask("x")
	r.Tools = []hob.ToolSpec{{Name: "long", Description: long}}
	if sent := string(capture(t, "ollama/llama3", r)); strings.Count(sent, long) != 1 || strings.Contains(sent, `"system"`) {
		t.Errorf("sent %s", sent)
	}
}
