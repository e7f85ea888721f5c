package provider_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// searched gathers what an answer searched for, with where in its text each search stood.
type searched struct {
	answer
	Searches []hob.WebSearch
	At       []string // the text that was said before each
}

func search(t *testing.T, m hob.Model, r hob.Request) searched {
	t.Helper()
	var s searched
	inner := m
	inner.Provider = tap{m.Provider, func(d hob.Delta, text string) {
		for _, one := range d.Searches {
			s.Searches, s.At = append(s.Searches, one), append(s.At, text)
		}
	}}
	s.answer = collect(t, inner, r)
	return s
}

// tap shows a provider's deltas, each with the text before it.
type tap struct {
	inner hob.Provider
	see   func(d hob.Delta, before string)
}

func (p tap) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return func(yield func(hob.Delta, error) bool) {
		text := ""
		for d, err := range p.inner.Stream(ctx, r) {
			p.see(d, text)
			text += d.Text
			if !yield(d, err) {
				return
			}
		}
	}
}

var (
	yr  = fakeai.Page{Title: "Yr", URL: "https://yr.no/oslo"}
	met = fakeai.Page{Title: "MET", URL: "https://met.no"}
)

func results(pages ...fakeai.Page) []hob.WebResult {
	out := []hob.WebResult{}
	for _, p := range pages {
		out = append(out, hob.WebResult{Title: p.Title, URL: p.URL})
	}
	return out
}

// TestSearch_IsToldOfByEveryDialect plays one answer in each vendor's words, also byte by byte and as one document.
func TestSearch_IsToldOfByEveryDialect(t *testing.T) {
	t.Parallel()
	reply := fakeai.Text("It rains there now.")
	reply.Searches = []fakeai.Search{{Query: "weather oslo", Pages: []fakeai.Page{yr, met}}}
	cases := []struct {
		model    string
		query    string
		searched int
	}{
		{"anthropic/claude-sonnet-4-5", "weather oslo", 1},
		{"openrouter/meta/llama-3", "", 1},
		{"openai/gpt-4o-search-preview", "", 0},
		{"gemini/gemini-2.5-flash", "weather oslo", 1},
	}
	for _, c := range cases {
		for name, change := range map[string]func(*fakeai.Reply){
			"whole": func(*fakeai.Reply) {}, "slowly": func(r *fakeai.Reply) { r.PerByte = 1 },
		} {
			t.Run(c.model+"/"+name, func(t *testing.T) {
				t.Parallel()
				said := reply
				change(&said)
				b := newBed(t, vendorOf(t, c.model), fakeai.Always(said), nil)
				r := ask("Weather in Oslo?")
				r.WebSearch = &hob.WebSearchOptions{}
				got := search(t, b.model, r)
				want := []hob.WebSearch{{Query: c.query, Results: results(yr, met)}}
				if got.Err != nil || got.Text != "It rains there now." || got.Last.Searched != c.searched || !cmp.Equal(want, got.Searches) {
					t.Errorf("%v %q, %d times: %+v\nrefusals: %v", got.Err, got.Text, got.Last.Searched, got.Searches, b.fake.Refusals())
				}
			})
		}
	}
}

func TestSearch_AFailedOneIsToldOfAndNotCounted(t *testing.T) {
	t.Parallel()
	reply := fakeai.Text("I could not look.")
	reply.Searches = []fakeai.Search{{Query: "weather", Error: "too_many_requests"}}
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Always(reply), nil)
	r := ask("Weather?")
	r.WebSearch = &hob.WebSearchOptions{}
	got := search(t, b.model, r)
	want := []hob.WebSearch{{Query: "weather", Results: results(), Error: "too_many_requests"}}
	if got.Err != nil || got.Last.Searched != 0 || !cmp.Equal(want, got.Searches) {
		t.Errorf("%v: %+v", got.Err, got)
	}
}

// TestSearch_APausedTurnGoesOn is of an answer that stops amid its searches: it is sent back as it came, and what both
// calls gave is one answer.
func TestSearch_APausedTurnGoesOn(t *testing.T) {
	t.Parallel()
	first := fakeai.Text("I look. ")
	first.Searches = []fakeai.Search{{Query: "a", Pages: []fakeai.Page{yr}}}
	first.Finish = "pause_turn"
	first.Usage = &fakeai.Usage{Prompt: 10, Completion: 5}
	second := fakeai.Text("It rains.")
	second.Searches = []fakeai.Search{{Query: "b", Pages: []fakeai.Page{met}}}
	second.Usage = &fakeai.Usage{Prompt: 30, Completion: 7}
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Steps(first, second), nil)
	r := ask("Weather?")
	r.WebSearch = &hob.WebSearchOptions{MaxUses: 4}
	r.Tools = []hob.ToolSpec{weather}
	got := search(t, b.model, r)
	if got.Err != nil || got.Text != "I look. It rains." || got.Last.Finish != hob.FinishStop || got.Last.Searched != 2 ||
		got.Last.Usage.PromptTokens != 40 || got.Last.Usage.CompletionTokens != 12 || len(got.Searches) != 2 {
		t.Fatalf("%v %+v\nrefusals: %v", got.Err, got, b.fake.Refusals())
	}
	if at := got.At; !slices.Equal(at, []string{"", "I look. "}) {
		t.Errorf("the searches stood behind %q", at)
	}
	sent := b.fake.Requests()
	if len(sent) != 2 || sent[1].Messages[1].Searches != 1 || sent[1].Messages[1].Text != "I look." {
		t.Fatalf("sent %d requests: %+v", len(sent), sent)
	}
	if body := string(sent[1].Body); !strings.Contains(body, `"max_uses":3`) || !strings.Contains(body, `"encrypted_content":"c2VhbGVk"`) {
		t.Errorf("the second request: %s", body)
	}
}

func TestSearch_PausesAreBounded(t *testing.T) {
	t.Parallel()
	reply := fakeai.Text("On. ")
	reply.Searches = []fakeai.Search{{Query: "a", Pages: []fakeai.Page{yr}}}
	reply.Finish = "pause_turn"
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Always(reply), nil)
	r := ask("Weather?")
	r.WebSearch = &hob.WebSearchOptions{}
	got := search(t, b.model, r)
	const most = 5 // the first call and four that go on
	if got.Err != nil || len(b.fake.Requests()) != most || got.Last.Finish != hob.FinishLength || got.Text != strings.Repeat("On. ", most) {
		t.Errorf("%v after %d requests: %+v", got.Err, len(b.fake.Requests()), got)
	}
}

// TestSearch_AFaultBehindAPauseIsACut: what was said before stands, so nobody may make the call again as if it had not been.
func TestSearch_AFaultBehindAPauseIsACut(t *testing.T) {
	t.Parallel()
	first := fakeai.Text("I look. ")
	first.Searches = []fakeai.Search{{Query: "a", Pages: []fakeai.Page{yr}}}
	first.Finish = "pause_turn"
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Steps(first, fakeai.Error(http.StatusInternalServerError, "no")), nil)
	r := ask("Weather?")
	r.WebSearch = &hob.WebSearchOptions{}
	got := search(t, b.model, r)
	if got.Err == nil || got.Err.Class != hob.ClassCut || got.Text != "I look. " || len(got.Searches) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestSearch_GoesBackWithinTheTurn is of a step that searched and then called a tool: the next one knows what was found,
// a later turn and a request without the search go without.
func TestSearch_GoesBackWithinTheTurn(t *testing.T) {
	t.Parallel()
	reply := fakeai.Calls(fakeai.Call{ID: "call_1", Name: "weather", Arguments: `{"city":"Oslo"}`})
	reply.Reasoning, reply.Text = []string{"Hm."}, []string{"I look."}
	reply.Searches = []fakeai.Search{{Query: "a", Pages: []fakeai.Page{yr}}}
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Steps(reply, fakeai.Text("Done.")), nil)
	r := ask("Weather?")
	r.WebSearch, r.Tools = &hob.WebSearchOptions{}, []hob.ToolSpec{weather}
	got := search(t, b.model, r)
	if got.Err != nil || len(got.Calls) != 1 || !strings.Contains(string(got.Artefact), "web_search_tool_result") {
		t.Fatalf("%v %+v", got.Err, got)
	}
	turn := append(r.Messages, hob.Message{
		Role: hob.RoleAssistant, Content: got.Text, Reasoning: &hob.Reasoning{Provider: "anthropic", Artefact: got.Artefact},
		Calls: []hob.ToolCall{{ID: "call_1", Name: "weather", Arguments: json.RawMessage(got.Calls[0].Arguments)}},
	}, hob.Message{Role: hob.RoleTool, CallID: "call_1", Name: "weather", Content: "rain"})
	for name, c := range map[string]struct {
		change   func(*hob.Request)
		searches int
	}{
		"the next step": {func(*hob.Request) {}, 1},
		"no search":     {func(r *hob.Request) { r.WebSearch = nil }, 0},
		"a later turn": {func(r *hob.Request) {
			r.Messages = append(slices.Clone(r.Messages), hob.Message{Role: hob.RoleAssistant, Content: "Done."}, hob.Message{Role: hob.RoleUser, Content: "And now?"})
		}, 0},
		"the last step, thinking": {func(r *hob.Request) { r.NoToolUse, r.ReasoningEffort = true, hob.EffortLow }, 1},
	} {
		next := r
		next.Messages = turn
		c.change(&next)
		a := collect(t, b.model, next)
		requests := b.fake.Requests()
		sent := requests[len(requests)-1].Messages[1]
		if a.Err != nil || sent.Searches != c.searches || sent.Thoughts != 1 || len(sent.Calls) != 1 {
			t.Errorf("%s: %v, sent back %+v; refusals: %v", name, a.Err, sent, b.fake.Refusals())
		}
	}
}

// TestSearch_WithoutThoughtsNoThinkingIsAsked: a turn whose call has searches before it and no thoughts is refused where
// thinking is on.
func TestSearch_WithoutThoughtsNoThinkingIsAsked(t *testing.T) {
	t.Parallel()
	reply := fakeai.Calls(fakeai.Call{ID: "call_1", Name: "weather", Arguments: `{}`})
	reply.Searches = []fakeai.Search{{Query: "a", Pages: []fakeai.Page{yr}}}
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Steps(reply, fakeai.Text("Done.")), nil)
	r := ask("Weather?")
	r.WebSearch, r.Tools = &hob.WebSearchOptions{}, []hob.ToolSpec{weather}
	got := search(t, b.model, r)
	r.ReasoningEffort = hob.EffortHigh
	r.Messages = append(r.Messages, hob.Message{
		Role: hob.RoleAssistant, Reasoning: &hob.Reasoning{Provider: "anthropic", Artefact: got.Artefact},
		Calls: []hob.ToolCall{{ID: "call_1", Name: "weather", Arguments: json.RawMessage(`{}`)}},
	}, hob.Message{Role: hob.RoleTool, CallID: "call_1", Name: "weather", Content: "rain"})
	if a := collect(t, b.model, r); a.Err != nil || b.fake.Requests()[1].Messages[1].Searches != 1 {
		t.Errorf("%v; refusals: %v", a.Err, b.fake.Refusals())
	}
}

func TestSearch_BoundsThatTheProviderWouldNotKeepAreRefused(t *testing.T) {
	t.Parallel()
	domains := []string{"yr.no"}
	for _, c := range []struct {
		model  string
		search hob.WebSearchOptions
		error  string // "" = it is asked for
	}{
		{"openrouter/meta/llama-3", hob.WebSearchOptions{AllowedDomains: domains}, ""},
		{"anthropic/claude-sonnet-4-5", hob.WebSearchOptions{BlockedDomains: domains}, ""},
		{"anthropic/claude-sonnet-4-5", hob.WebSearchOptions{AllowedDomains: domains, BlockedDomains: domains}, "not both"},
		{"gemini/gemini-2.5-flash", hob.WebSearchOptions{AllowedDomains: domains}, "held to domains"},
		{"openai/gpt-4o-search-preview", hob.WebSearchOptions{BlockedDomains: domains}, "held to domains"},
	} {
		b := newBed(t, vendorOf(t, c.model), nil, nil)
		r := ask("Weather?")
		r.WebSearch = &c.search
		a := collect(t, b.model, r)
		if c.error == "" {
			if a.Err != nil || !strings.Contains(string(b.fake.Requests()[0].Body), `_domains":["yr.no"]`) {
				t.Errorf("%s: %v", c.model, a.Err)
			}
			continue
		}
		if a.Err == nil || !strings.Contains(a.Err.Message, c.error) || len(b.fake.Requests()) != 0 {
			t.Errorf("%s: %v after %d requests", c.model, a.Err, len(b.fake.Requests()))
		}
	}
}

// TestOpen_TellsHowAModelSearches pins what runs plan by.
func TestOpen_TellsHowAModelSearches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model               string
		can, alone, domains bool
	}{
		{"openrouter/meta/llama-3", true, false, true},
		{"anthropic/claude-sonnet-4-5", true, false, true},
		{"anthropic/claude-3-haiku-20240307", false, false, true},
		{"gemini/gemini-2.5-flash", true, true, false},
		{"gemini/gemini-1.5-flash", false, true, false},
		{"openai/gpt-4o-search-preview", true, true, false},
		{"openai/gpt-4o", false, true, false},
		{"ollama/llama3", false, true, false},
	} {
		m := newBed(t, vendorOf(t, c.model), nil, nil).model
		if m.Search != c.can || m.Search && (m.SearchAlone != c.alone || m.SearchDomains != c.domains) {
			t.Errorf("%s: search %t, alone %t, domains %t", c.model, m.Search, m.SearchAlone, m.SearchDomains)
		}
	}
}

func TestScripted_SearchesOnlyWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	const script = `text: I look. ` + "\n" + `search: {"query":"weather","results":[{"title":"Yr","url":"https://yr.no/oslo"}]}` + "\ntext: It rains.\n"
	for _, c := range []struct {
		model    string
		allowed  bool
		searches int
	}{{"scripted/search", true, 1}, {"scripted/search", false, 0}, {"scripted", true, 0}} {
		m := open(t, c.model, provider.Config{})
		r := ask("Weather?")
		r.Script, r.Step = script, 1
		if c.allowed {
			r.WebSearch = &hob.WebSearchOptions{}
		}
		got := search(t, m, r)
		if got.Err != nil || len(got.Searches) != c.searches || !strings.HasSuffix(got.Text, "It rains.") || m.Search != (c.model == "scripted/search") {
			t.Errorf("%s, allowed %t: %v %+v", c.model, c.allowed, got.Err, got)
		}
	}
}

// TestSearch_BlocksAreBounded: what is kept to be sent back may not fill the memory.
func TestSearch_BlocksAreBounded(t *testing.T) {
	t.Parallel()
	reply := fakeai.Text("ok")
	for range 5 {
		reply.Searches = append(reply.Searches, fakeai.Search{Query: "a", Pages: []fakeai.Page{{Title: strings.Repeat("x", provider.MaxCallBytes/4), URL: "https://a.example"}}})
	}
	b := newBed(t, vendorOf(t, "anthropic/claude-sonnet-4-5"), fakeai.Always(reply), nil)
	r := ask("Weather?")
	r.WebSearch = &hob.WebSearchOptions{}
	if got := search(t, b.model, r); got.Err == nil || len(got.Searches) != 3 {
		t.Errorf("%v after %d searches", got.Err, len(got.Searches))
	}
}
