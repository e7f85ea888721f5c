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
	{name: "openrouter", model: "openrouter/meta/llama-3", keyVar: "OPENROUTER_API_KEY", keyed: true, config: func(c *provider.Config, url string) {
		c.OpenRouter = provider.Endpoint{Key: testKey, BaseURL: url + "/v1/"}
	}, extra: []string{"reasoning"}},
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
	transport := &http.Transport{}
	t.Cleanup(func() { transport.CloseIdleConnections(); srv.Close() })
	c := provider.Config{Clients: direct{&http.Client{Transport: transport}}, RetryBase: time.Millisecond}
	v.config(&c, srv.URL)
	if change != nil {
		change(&c)
	}
	m, err := provider.New(c).Open(v.model)
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

func TestProviders_RateLimitThenSuccess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Sequence(fakeai.Error(429, "slow down"), fakeai.Error(503, "busy"), fakeai.Text("Hi.")), nil)
		if a := collect(t, b.model, ask("hi")); a.Err != nil || a.Text != "Hi." || len(b.fake.Requests()) != 3 {
			t.Errorf("got %+v after %d requests", a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_ErrorsAreSortedByStatus(t *testing.T) {
	t.Parallel()
	cases := []struct {
		status int
		class  hob.ErrorClass
		tries  int
	}{
		{400, hob.ClassBadRequest, 1}, {401, hob.ClassUnauthorized, 1}, {402, hob.ClassUnauthorized, 1},
		{403, hob.ClassUnauthorized, 1}, {404, hob.ClassBadRequest, 1}, {408, hob.ClassModelError, 4},
		{409, hob.ClassModelError, 4}, {413, hob.ClassPromptTooLong, 1}, {422, hob.ClassBadRequest, 1},
		{425, hob.ClassModelError, 4}, {429, hob.ClassRateLimit, 4}, {500, hob.ClassModelError, 4},
		{501, hob.ClassModelError, 1}, {502, hob.ClassModelError, 4}, {503, hob.ClassModelError, 4},
		{504, hob.ClassModelError, 4}, {529, hob.ClassModelError, 4},
	}
	each(t, func(t *testing.T, v vendor) {
		said := "no"
		if v.keyed {
			said = "no: " + testKey
		}
		for _, c := range cases {
			b := newBed(t, v, fakeai.Always(fakeai.Error(c.status, said)), nil)
			a := collect(t, b.model, ask("hi"))
			if a.Err == nil || a.Err.Class != c.class || a.Err.Status != c.status || len(b.fake.Requests()) != c.tries {
				t.Errorf("%d gave %+v after %d tries", c.status, a.Err, len(b.fake.Requests()))
				continue
			}
			if a.Deltas != 0 || v.keyed && !strings.Contains(a.Err.Message, hob.Mask) {
				t.Errorf("%d: %d deltas, message %q", c.status, a.Deltas, a.Err.Message)
			}
			if c.class == hob.ClassUnauthorized && !strings.Contains(a.Err.Message, v.keyVar) {
				t.Errorf("%d does not name %s: %q", c.status, v.keyVar, a.Err.Message)
			}
		}
	})
}

func TestProviders_WrongKeyNamesTheVariable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		if !v.keyed {
			return
		}
		b := newBed(t, v, nil, func(c *provider.Config) {
			for _, e := range []*provider.Endpoint{&c.OpenAI, &c.Anthropic, &c.OpenRouter} {
				e.Key = "sk-wrong-key-0000"
			}
		})
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassUnauthorized || !strings.Contains(a.Err.Message, v.keyVar) ||
			strings.Contains(a.Err.Message, "sk-wrong-key-0000") {
			t.Errorf("got %+v", a.Err)
		}
	})
}

func TestProviders_CutBeforeTheFirstDeltaIsTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		atOnce := fakeai.Text("lost")
		atOnce.CutAfter = -1
		behindTheHead := fakeai.Text("lost")
		behindTheHead.CutAfter = 1
		b := newBed(t, v, fakeai.Sequence(atOnce, behindTheHead, fakeai.Text("Hi.")), nil)
		if a := collect(t, b.model, ask("hi")); a.Err != nil || a.Text != "Hi." || len(b.fake.Requests()) != 3 {
			t.Errorf("got %+v after %d requests", a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_CutForGoodIsAModelError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Reply{CutAfter: -1}), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassModelError || len(b.fake.Requests()) != 1+provider.DefaultRetries {
			t.Errorf("got %+v after %d requests", a.Err, len(b.fake.Requests()))
		}
	})
}

func TestProviders_CutBehindTheFirstDeltaIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		cut := fakeai.Tokens(10)
		cut.CutAfter, cut.Interval = 6, time.Millisecond
		b := newBed(t, v, fakeai.Sequence(cut, fakeai.Text("again")), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassCut || !strings.HasPrefix(a.Text, " tok0 tok1") || len(b.fake.Requests()) != 1 {
			t.Errorf("got %+v %+v after %d requests", a.Err, a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_ErrorInsideTheStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		broken := fakeai.Tokens(10)
		broken.ErrorAfter, broken.Type, broken.Message = 6, "overloaded_error", "Overloaded"
		early := broken
		early.ErrorAfter = 1
		b := newBed(t, v, fakeai.Sequence(early, broken), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassCut || !strings.Contains(a.Err.Message, "Overloaded") || len(b.fake.Requests()) != 2 {
			t.Errorf("got %+v after %d requests", a.Err, len(b.fake.Requests()))
		}
	})
}

func TestProviders_SilenceEndsTheTry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		silent := fakeai.Reply{Hang: true, CutAfter: 0, Wait: time.Minute}
		stuck := fakeai.Tokens(3)
		stuck.Hang = true
		b := newBed(t, v, fakeai.Sequence(silent, stuck), func(c *provider.Config) {
			c.FirstWait, c.Idle = 80*time.Millisecond, 80*time.Millisecond
		})
		a := collect(t, b.model, ask("hi"))
		if len(b.fake.Requests()) != 2 || a.Text != " tok0 tok1 tok2" {
			t.Errorf("got %+v after %d requests", a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_IdleStreamIsCut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		slow := fakeai.Tokens(3)
		slow.Interval = 10 * time.Second
		b := newBed(t, v, func(p fakeai.Parsed) fakeai.Reply {
			r := slow
			if p.Number == 1 {
				r.Text = nil
			}
			return r
		}, func(c *provider.Config) {
			c.FirstWait, c.Idle, c.Retries = 100*time.Millisecond, 100*time.Millisecond, -1
		})
		if a := collect(t, b.model, ask("hi")); a.Err == nil || a.Err.Class != hob.ClassModelError || !strings.Contains(a.Err.Message, "silent") {
			t.Errorf("got %+v", a.Err)
		}
	})
}

func TestProviders_TotalTimeBoundsAllTries(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		endless := fakeai.Tokens(1_000)
		endless.Interval = 5 * time.Millisecond
		b := newBed(t, v, fakeai.Always(endless), func(c *provider.Config) { c.Total = 400 * time.Millisecond })
		start := time.Now()
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassCut || a.Text == "" || time.Since(start) > 5*time.Second {
			t.Errorf("after %s: %+v", time.Since(start), a.Err)
		}
	})
}

func TestProviders_CancelAmidTheStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		endless := fakeai.Tokens(2_000)
		endless.Interval = 5 * time.Millisecond
		b := newBed(t, v, fakeai.Always(endless), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		r := ask("hi")
		r.Model = b.model.Model
		for d, err := range b.model.Provider.Stream(ctx, r) {
			if d.Text != "" {
				cancel()
			}
			last = err
		}
		var e *hob.ProviderError
		if !errors.As(last, &e) || e.Class != hob.ClassCancelled || !errors.Is(e, context.Canceled) {
			t.Errorf("got %v", last)
		}
	})
}

func TestProviders_LeavingTheRangeEndsTheRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		gone := make(chan struct{})
		fake := fakeai.New(fakeai.Options{Extra: v.extra, Reply: fakeai.Always(fakeai.Reply{Text: []string{"a", "b"}, Interval: time.Millisecond, Hang: true})})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fake.ServeHTTP(w, r)
			close(gone)
		}))
		defer srv.Close()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		c := provider.Config{Clients: direct{&http.Client{Transport: transport}}}
		v.config(&c, srv.URL)
		m, err := provider.New(c).Open(v.model)
		if err != nil {
			t.Fatal(err)
		}
		r := ask("hi")
		r.Model = m.Model
		for d := range m.Provider.Stream(t.Context(), r) {
			if d.Text != "" {
				break
			}
		}
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Error("the request goes on although nobody listens")
		}
	})
}

func TestProviders_RetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Sequence(fakeai.Error(429, "slow down").WithRetryAfter("0.3"), fakeai.Text("Hi.")), nil)
		start := time.Now()
		a := collect(t, b.model, ask("hi"))
		if d := time.Since(start); a.Text != "Hi." || d < 300*time.Millisecond {
			t.Errorf("tried again after %s: %+v", d, a)
		}
	})
}

func TestProviders_AWaitBeyondTheDeadlineIsNotBegun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Error(429, "slow down").WithRetryAfter("30")), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		a := collectWith(ctx, t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassRateLimit || a.Err.RetryAfter != 30*time.Second || time.Since(start) > 2*time.Second {
			t.Errorf("after %s: %+v", time.Since(start), a.Err)
		}
	})
}

func TestProviders_ShouldRetryHeaderDecides(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		no := fakeai.Error(500, "for good")
		no.Header = http.Header{"X-Should-Retry": {"false"}}
		b := newBed(t, v, fakeai.Always(no), nil)
		if collect(t, b.model, ask("hi")); len(b.fake.Requests()) != 1 {
			t.Errorf("x-should-retry: false was tried %d times", len(b.fake.Requests()))
		}
		yes := fakeai.Error(400, "once more")
		yes.Header = http.Header{"X-Should-Retry": {"true"}}
		b = newBed(t, v, fakeai.Sequence(yes, fakeai.Text("Hi.")), nil)
		if a := collect(t, b.model, ask("hi")); a.Text != "Hi." {
			t.Errorf("x-should-retry: true was not tried again: %+v", a.Err)
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
		m, err := provider.New(c).Open(v.model)
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
