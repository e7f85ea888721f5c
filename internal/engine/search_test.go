package engine_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// Parts of scripts: a model that has searched, found two pages and answers.
const (
	looked   = `search: {"query":"weather","results":[{"title":"Yr","url":"https://yr.no"},{"url":"https://met.no"}]}`
	searches = "text: I look. \n" + looked + "\ntext: It rains."
)

// searching makes the world's model one that can search by itself, changed by change.
func (w *world) searching(change func(*hob.Model)) {
	inner := w.models
	w.models = func(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
		if name != "scripted" {
			return inner(ctx, ws, name)
		}
		m, err := inner(ctx, ws, "scripted/search")
		change(&m)
		return m, err
	}
}

func (w *world) offered(requests []hob.Request) (all []string) {
	for _, r := range requests {
		var names []string
		for _, t := range r.Tools {
			names = append(names, t.Name)
		}
		all = append(all, strings.Join(names, " "))
	}
	return all
}

// webSearches are the events of a run that tell of searches.
func (w *world) webSearches(id hob.RunID) (all []hob.WebSearchEvent) {
	for _, ev := range w.log(id) {
		if ev.Type == hob.EventWebSearch {
			var e hob.WebSearchEvent
			if err := json.Unmarshal(ev.Data, &e); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	return all
}

// actions are what a run did by the ledger.
func (w *world) actionsOf(id hob.RunID) map[string]int64 {
	rows, err := w.store.Usage(w.t.Context(), w.by, hob.UsageFilter{Run: id, GroupBy: hob.ByAction})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]int64{}
	for _, r := range rows {
		out[r.Key] = r.Quantity
	}
	return out
}

// TestSearch_ANativeToolIsAskedForAndNoFunction: what it searches for stands in the log where it happened, and is booked.
func TestSearch_ANativeToolIsAskedForAndNoFunction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": searches}, "browse", "read")
	w.searching(func(*hob.Model) {})
	asked := w.watchModel()
	w.begin(nil)
	run := w.wait(w.start("Weather?", hob.RunOptions{}).ID)
	want := &hob.WebSearchOptions{MaxUses: 3, AllowedDomains: []string{"yr.no"}}
	if r := asked(); len(r) != 1 || w.offered(r)[0] != "read" || !cmp.Equal(want, r[0].WebSearch) {
		t.Errorf("asked %+v", r)
	}
	var order []string
	for _, ev := range w.log(run.ID) {
		if ev.Type == hob.EventContentDelta || ev.Type == hob.EventWebSearch {
			order = append(order, string(ev.Type))
		}
	}
	if diff := cmp.Diff([]string{"content_delta", "web_search", "content_delta"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	found := w.webSearches(run.ID)
	results := []hob.WebResult{{Title: "Yr", URL: "https://yr.no"}, {URL: "https://met.no"}}
	if len(found) != 1 || found[0].Step != 1 || found[0].ToolName != "browse" || found[0].Query != "weather" || !cmp.Equal(results, found[0].Results) {
		t.Errorf("searches %+v", found)
	}
	if got := w.actionsOf(run.ID); got[hob.ActionWebSearch] != 1 || got[hob.ActionToolCall] != 0 {
		t.Errorf("the ledger has %v", got)
	}
	rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{Run: run.ID, GroupBy: hob.ByTool})
	if err != nil || len(rows) != 1 || rows[0].Key != "browse" || rows[0].Quantity != 1 {
		t.Errorf("by tool the ledger has %+v, %v", rows, err)
	}
	if run.Status != hob.Completed || run.Content != "I look. It rains." {
		t.Errorf("%+v", run)
	}
	w.valid(run)
}

func TestSearch_ACallOfANativeToolIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: browse {}\n---\ntext: Oh."}, "browse")
	w.searching(func(*hob.Model) {})
	w.begin(nil)
	run := w.wait(w.start("Weather?", hob.RunOptions{}).ID)
	messages := w.valid(run)
	if run.Content != "Oh." || len(w.tools.calls()) != 0 || !strings.Contains(messages[2].Content, "searches by itself") {
		t.Errorf("%+v, carried out %v", messages, w.tools.calls())
	}
	if got := w.actionsOf(run.ID); got[hob.ActionToolCall] != 0 || got[hob.ActionWebSearch] != 0 {
		t.Errorf("the ledger has %v", got)
	}
}

// TestSearch_WhoSearches: the provider where it can, beside functions where it can that too, and the server elsewhere.
func TestSearch_WhoSearches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tools   []string
		model   func(*hob.Model)
		native  bool
		offered string
	}{
		"the provider":                       {[]string{"browse"}, func(*hob.Model) {}, true, ""},
		"the server":                         {[]string{"browse"}, func(m *hob.Model) { m.Search = false }, false, "browse"},
		"the provider, alone":                {[]string{"browse"}, func(m *hob.Model) { m.SearchAlone = true }, true, ""},
		"the server, as there are functions": {[]string{"browse", "read"}, func(m *hob.Model) { m.SearchAlone = true }, false, "read browse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": "text: ok"}, c.tools...)
			w.searching(c.model)
			asked := w.watchModel()
			w.begin(nil)
			w.wait(w.start("Weather?", hob.RunOptions{}).ID)
			if r := asked(); len(r) != 1 || (r[0].WebSearch != nil) != c.native || w.offered(r)[0] != c.offered {
				t.Errorf("asked for %q, search %+v", w.offered(r), r[0].WebSearch)
			}
		})
	}
}

// TestSearch_TheLastStepUsesNoTool, and a native one is one; the agent's setting is none.
func TestSearch_TheLastStepUsesNoTool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings map[string]any
		searches []bool
	}{
		"a tool":      {map[string]any{"script": "call: read {}\n---\ntext: ok", "max_steps": 2}, []bool{true, false}},
		"the setting": {map[string]any{"script": "call: read {}\n---\ntext: ok", "max_steps": 2, "web_search": true}, []bool{true, true}},
	} {
		w := newWorld(t, c.settings, "browse", "read")
		w.searching(func(*hob.Model) {})
		asked := w.watchModel()
		w.begin(nil)
		w.wait(w.start("Weather?", hob.RunOptions{}).ID)
		var got []bool
		for _, r := range asked() {
			got = append(got, r.WebSearch != nil)
			if always := r.WebSearch != nil && r.WebSearch.Always; always != (c.settings["web_search"] == true) {
				t.Errorf("%s: %+v", name, r.WebSearch)
			}
		}
		if !cmp.Equal(c.searches, got) {
			t.Errorf("%s: searches allowed %v", name, got)
		}
	}
}

// TestSearch_AFallbackThatCannotSearchGoesWithout: the run comes to its answer all the same.
func TestSearch_AFallbackThatCannotSearchGoesWithout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "error: 503 no", "fallback_model": "scripted/echo"}, "browse", "read")
	w.searching(func(*hob.Model) {})
	asked := w.watchModel()
	w.begin(nil)
	run := w.wait(w.start("hello", hob.RunOptions{}).ID)
	r := asked()
	if last := r[len(r)-1]; run.Content != "hello" || r[0].WebSearch == nil || last.WebSearch != nil || w.offered(r)[len(r)-1] != "read" {
		t.Errorf("%q after %d requests, the last with %+v", run.Content, len(r), last.WebSearch)
	}
}

// TestSearch_ARunTakenUpAgainSearchesAsItBegan: what the tool is was frozen, whatever it would be by now.
func TestSearch_ARunTakenUpAgainSearchesAsItBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "call: hang {}\n---\n" + searches}, "browse", "hang")
	w.tools.hold, w.tools.came, w.tools.recovery = make(chan struct{}), make(chan struct{}, 2), hob.RecoverRead
	w.searching(func(*hob.Model) {})
	asked := w.watchModel()
	w.begin(nil)
	id := w.start("Weather?", hob.RunOptions{}).ID
	w.toolCame()
	w.stop()
	close(w.tools.hold)
	w.tools.served = true
	w.begin(nil)
	run := w.wait(id)
	r := asked()
	if len(r) != 2 || r[1].WebSearch == nil || w.offered(r)[1] != "hang" || run.Content != "I look. It rains." || run.Attempt != 2 {
		t.Errorf("%+v after %d requests, offered %q", run, len(r), w.offered(r))
	}
	if got := w.webSearches(id); len(got) != 1 || got[0].Step != 2 {
		t.Errorf("searches %+v", got)
	}
}

// TestSearch_IsBookedByTheProvidersCount, else by what was seen of it; failed searches and answers without any are not.
func TestSearch_IsBookedByTheProvidersCount(t *testing.T) {
	t.Parallel()
	one := hob.WebSearch{Query: "a", Results: []hob.WebResult{}}
	failed := hob.WebSearch{Query: "b", Error: "unavailable"}
	for name, c := range map[string]struct {
		seen    []hob.WebSearch
		counted int
		want    int64
	}{
		"counted": {[]hob.WebSearch{one}, 4, 4}, "seen": {[]hob.WebSearch{one, failed, one}, 0, 2},
		"failed": {[]hob.WebSearch{failed}, 0, 0}, "none": {nil, 0, 0},
	} {
		w := newWorld(t, map[string]any{"script": "text: ok"}, "browse")
		inner := w.models
		w.models = func(ctx context.Context, ws hob.WorkspaceID, _ string) (hob.Model, error) {
			m, err := inner(ctx, ws, "scripted/search")
			m.Provider = streamFunc(func(context.Context, hob.Request) iter.Seq2[hob.Delta, error] {
				return func(yield func(hob.Delta, error) bool) {
					for _, s := range c.seen {
						if !yield(hob.Delta{Searches: []hob.WebSearch{s}}, nil) {
							return
						}
					}
					_ = yield(hob.Delta{Text: "ok"}, nil) && yield(hob.Delta{Finish: hob.FinishStop, Searched: c.counted}, nil)
				}
			})
			return m, err
		}
		w.begin(nil)
		run := w.wait(w.start("Weather?", hob.RunOptions{}).ID)
		if got := w.actionsOf(run.ID)[hob.ActionWebSearch]; got != c.want || len(w.webSearches(run.ID)) != len(c.seen) {
			t.Errorf("%s: %d booked, %d told of", name, got, len(w.webSearches(run.ID)))
		}
	}
}

// TestSearch_AHugeSearchIsCutInItsEvent keeps what a provider sends from filling the log.
func TestSearch_AHugeSearchIsCutInItsEvent(t *testing.T) {
	t.Parallel()
	many := hob.WebSearch{Query: strings.Repeat("q", 5_000)}
	for range 60 {
		many.Results = append(many.Results, hob.WebResult{Title: strings.Repeat("t", 1_000), URL: "https://a.example/" + strings.Repeat("u", 3_000)})
	}
	raw, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, map[string]any{"script": "search: " + string(raw) + "\ntext: ok"}, "browse")
	w.searching(func(*hob.Model) {})
	w.begin(nil)
	run := w.wait(w.start("Weather?", hob.RunOptions{}).ID)
	found := w.webSearches(run.ID)
	if len(found) != 1 || len(found[0].Query) != 1_000 || len(found[0].Results) != 50 || len(found[0].Results[0].Title) != 300 ||
		len(found[0].Results[0].URL) != 2_000 {
		t.Errorf("%d searches, %.200v", len(found), found)
	}
}

// TestSearch_HooksAreAskedAboutSearches: a provider asks nobody, so that a tool or a setting whose calls hooks are to be asked
// about is not left to it.
func TestSearch_HooksAreAskedAboutSearches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		matcher  string
		settings map[string]any
		tools    []string
		native   bool
	}{
		"the tool":               {"browse", map[string]any{"script": "text: ok"}, []string{"browse"}, false},
		"every tool":             {"*", map[string]any{"script": "text: ok"}, []string{"browse"}, false},
		"another tool":           {"read", map[string]any{"script": "text: ok"}, []string{"browse", "read"}, true},
		"the setting":            {"web_search", map[string]any{"script": "text: ok", "web_search": true}, nil, false},
		"a setting left to them": {"read", map[string]any{"script": "text: ok", "web_search": true}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.settings, c.tools...)
			w.searching(func(*hob.Model) {})
			requests := w.watchModel()
			h := hob.Hook{
				Agent: w.agent.ID, Event: hob.PreToolUse, Matcher: &c.matcher, Type: hob.RuleHook, Enabled: true,
				Config: hob.HookConfig{Condition: "n CONTAINS 7"},
			}
			if _, err := w.store.CreateHook(t.Context(), w.by, h); err != nil {
				t.Fatal(err)
			}
			w.begin(nil)
			w.wait(w.start("go", hob.RunOptions{}).ID)
			if r := requests(); len(r) != 1 || (r[0].WebSearch != nil) != c.native {
				t.Errorf("%d requests, search by the provider %v, want %v", len(r), r[0].WebSearch, c.native)
			}
		})
	}
}
