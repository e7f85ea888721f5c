package engine

import (
	"slices"

	"hob"
)

// settingSearch is what searches are called that the agent's setting web_search allows, and no tool.
const settingSearch = "web_search"

// functions are the tools that the model is offered as functions: all but those which its provider carries out by itself.
func (p *plan) functions() []hob.ToolSpec {
	if !slices.ContainsFunc(p.pin.Tools, isNative) {
		return p.pin.Tools
	}
	return slices.DeleteFunc(slices.Clone(p.pin.Tools), isNative)
}

func isNative(t hob.ToolSpec) bool { return t.Native }

// searchBy is the tool that the provider's searches go by: the first native one, else the agent's setting.
func (p *plan) searchBy() string {
	if i := slices.IndexFunc(p.pin.Tools, isNative); i >= 0 {
		return p.pin.Tools[i].Name
	}
	return settingSearch
}

// search is what a step's request allows the provider to search for by itself, nil where nothing: what the setting and the
// native tools allow together. Like any tool, the native ones are not used in the run's last step. A fallback model may not
// be able to search, or not as it is asked for; the run then goes on without.
func (p *plan) search(last bool) *hob.WebSearchOptions {
	if p.settings.WebSearch && !p.guards(settingSearch) { // it knows no bounds
		return &hob.WebSearchOptions{Always: true}
	}
	var out *hob.WebSearchOptions
	if last {
		return nil
	}
	for i := range p.pin.Tools {
		if t := &p.pin.Tools[i]; t.Native {
			o := hob.WebSearchOptions{}
			if t.Search != nil {
				o = *t.Search
			}
			out = widen(out, o)
		}
	}
	if out == nil || !p.canSearch(len(out.AllowedDomains)+len(out.BlockedDomains) > 0) {
		return nil
	}
	return out
}

// canSearch says whether the run's model can search by itself beside the run's functions, and be held to domains.
func (p *plan) canSearch(domains bool) bool {
	m := p.model
	return m.Search && (m.SearchDomains || !domains) && (!m.SearchAlone || len(p.functions()) == 0)
}

// widen is what either of two tools allows. a may be nil: nothing.
func widen(a *hob.WebSearchOptions, b hob.WebSearchOptions) *hob.WebSearchOptions {
	if a == nil {
		return &b
	}
	out := hob.WebSearchOptions{MaxUses: max(a.MaxUses, b.MaxUses)}
	switch {
	case len(a.AllowedDomains) > 0 && len(b.AllowedDomains) > 0:
		out.AllowedDomains = slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.AllowedDomains, b.AllowedDomains))))
	case len(a.AllowedDomains) > 0:
		out.BlockedDomains = less(b.BlockedDomains, a.AllowedDomains)
	case len(b.AllowedDomains) > 0:
		out.BlockedDomains = less(a.BlockedDomains, b.AllowedDomains)
	default:
		out.BlockedDomains = slices.DeleteFunc(slices.Clone(a.BlockedDomains), func(d string) bool {
			return !slices.Contains(b.BlockedDomains, d)
		})
	}
	return &out
}

// less is a list without the members of another.
func less(list, without []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(d string) bool { return slices.Contains(without, d) })
}

// maxResults bounds the pages that one event names.
const maxResults = 50

// searched tells of what the provider searched for.
func (a *active) searched(step int, searches []hob.WebSearch) {
	for _, s := range searches {
		found := make([]hob.WebResult, 0, len(s.Results))
		for _, r := range s.Results[:min(len(s.Results), maxResults)] {
			found = append(found, hob.WebResult{Title: preview(clean(r.Title), maxTitle), URL: preview(clean(r.URL), maxAddress)})
		}
		a.log.write(func(b *batch) {
			b.event(hob.EventWebSearch, func(h hob.EventHead) any {
				return hob.WebSearchEvent{
					EventHead: h, Step: step, ToolName: a.plan.searchBy(), Query: preview(clean(s.Query), maxQuery), Results: found,
					Error: preview(clean(s.Error), maxTitle),
				}
			})
		})
	}
}

// Characters of an event's texts.
const (
	maxQuery   = 1_000
	maxTitle   = 300
	maxAddress = 2_000
)

// fruitful is how many searches a delta brought that came to something.
func fruitful(searches []hob.WebSearch) int {
	n := 0
	for i := range searches {
		if searches[i].Error == "" {
			n++
		}
	}
	return n
}

// spendSearches books the searches of a model call: as many as the provider counted, else those that were seen.
func (a *active) spendSearches(step, seen, counted int) {
	n := counted
	if n == 0 {
		n = seen
	}
	if n == 0 {
		return
	}
	a.log.note(func(b *batch) {
		b.usage(hob.UsageEntry{Action: hob.ActionWebSearch, Quantity: int64(n), Model: a.run.Model, Step: step, Tool: a.plan.searchBy()})
	})
}
