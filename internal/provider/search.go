package provider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"hob"
)

// DefaultSearches is how often one answer may be searched for where the request does not say.
const DefaultSearches = 5

// resultsPerSearch is how many results OpenRouter gives for a search; its bound is one on results.
const resultsPerSearch = 5

// maxSources bounds the pages that are told of one search; further ones are left out.
const maxSources = 50

// searchSkill is what a provider can do of searching the web by itself for a model.
type searchSkill struct {
	can     bool
	alone   bool // only where no functions are offered
	domains bool // its searches can be held to domains
}

// searchOf says how a provider's model can search.
func searchOf(p hob.Provider, model string) searchSkill {
	switch p := p.(type) {
	case *chat:
		return p.searches(p.family(model))
	case *messages:
		return searchSkill{can: p.family(model).search, domains: true}
	case *gemini:
		return searchSkill{can: p.family(model).search, alone: true}
	case *scripted:
		return searchSkill{can: model == searchName, domains: true}
	}
	return searchSkill{}
}

// searches says how a model of this server can search: any of OpenRouter's, and OpenAI's search models, which take no
// functions and no domains.
func (p *chat) searches(f family) searchSkill {
	if p.style.searches {
		return searchSkill{can: true, domains: true}
	}
	return searchSkill{can: f.search && p.caller.name == openaiName, alone: true}
}

// checkSearch refuses a search that the model cannot make, and bounds that its provider would not keep.
func checkSearch(provider string, r *hob.Request, skill searchSkill) error {
	o := r.WebSearch
	switch {
	case o == nil:
		return nil
	case !skill.can:
		return noSearch(provider, r.Model)
	case len(o.AllowedDomains) > 0 && len(o.BlockedDomains) > 0:
		return refusedBefore(provider, "a search takes allowed_domains or blocked_domains, not both")
	case !skill.domains && len(o.AllowedDomains)+len(o.BlockedDomains) > 0:
		return refusedBefore(provider, "the search of the model %s cannot be held to domains; take allowed_domains and blocked_domains "+
			"away, or use another model", quote(r.Model))
	}
	return nil
}

// searches is how often an answer may be searched for, at least once.
func searches(o *hob.WebSearchOptions) int {
	if o.MaxUses <= 0 {
		return DefaultSearches
	}
	return o.MaxUses
}

// appendDomains writes a member that lists domains, where there are some.
func appendDomains(b []byte, name string, domains []string) []byte {
	if len(domains) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":[`...)
	for i, d := range domains {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, d)
	}
	return append(b, ']')
}

// sources gathers the pages that an answer names as found, each once.
type sources struct {
	list []hob.WebResult
	seen map[string]bool
}

func (s *sources) add(title, url string) {
	if url == "" || s.seen[url] || len(s.list) >= maxSources {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[url] = true
	s.list = append(s.list, hob.WebResult{Title: title, URL: url})
}

// citations are the annotations of a chat completion that name a page.
type citations []struct {
	Type     string `json:"type"`
	Citation struct {
		URL   string `json:"url"`
		Title string `json:"title"`
	} `json:"url_citation"`
}

// cite takes the annotations of a delta.
func (s *sources) cite(raw json.RawMessage) {
	var list citations
	if !present(raw) || unmarshal(raw, &list) != nil {
		return
	}
	for _, c := range list {
		if c.Type == "url_citation" {
			s.add(c.Citation.Title, c.Citation.URL)
		}
	}
}

// searchUsage is how often a provider says that it searched.
type searchUsage struct {
	Requests int `json:"web_search_requests"`
}

// plausibleSearches is a count of searches, 0 where it cannot be true.
func plausibleSearches(n int) int {
	const most = 1_000
	if n < 0 || n > most {
		return 0
	}
	return n
}

// The blocks of Anthropic's search.
const (
	servedCall   = "server_tool_use"
	servedResult = "web_search_tool_result"
)

// servedMark stands in every artefact that holds a search, and in no text of one, where its quotes would be escaped.
const servedMark = `"type":"` + servedResult + `"`

// servedSearch is the content of a web_search_tool_result: a list of pages, or an error.
func servedSearch(query string, content json.RawMessage) hob.WebSearch {
	s := hob.WebSearch{Query: query, Results: []hob.WebResult{}}
	var pages []struct {
		URL   string `json:"url"`
		Title string `json:"title"`
	}
	if len(content) > 0 && content[0] == '[' && unmarshal(content, &pages) == nil {
		var found sources
		for _, p := range pages {
			found.add(p.Title, p.URL)
		}
		s.Results = append(s.Results, found.list...)
		return s
	}
	var fault struct {
		Code string `json:"error_code"`
	}
	if unmarshal(content, &fault); fault.Code == "" { //nolint:errcheck // what cannot be read names no code
		fault.Code = "unavailable"
	}
	s.Error = fault.Code
	return s
}

// queryOf is the query of a search's input.
func queryOf(input json.RawMessage) string {
	var in struct {
		Query string `json:"query"`
	}
	if unmarshal(input, &in) != nil {
		return ""
	}
	return in.Query
}

// withoutServed takes the searches out of an artefact of Anthropic's: a request that allows none, and a later turn, go
// without them.
func withoutServed(artefact json.RawMessage) json.RawMessage {
	if !bytes.Contains(artefact, []byte(servedMark)) {
		return artefact
	}
	var blocks []json.RawMessage
	if json.Unmarshal(artefact, &blocks) != nil {
		return nil
	}
	blocks = slices.DeleteFunc(blocks, func(b json.RawMessage) bool {
		var block struct {
			Type string `json:"type"`
		}
		return unmarshal(b, &block) != nil || block.Type == servedCall || block.Type == servedResult
	})
	return joinBlocks(blocks)
}

// joinBlocks is a list of blocks.
func joinBlocks(blocks []json.RawMessage) json.RawMessage {
	out := append([]byte{'['}, bytes.Join(rawBytes(blocks), []byte{','})...)
	return append(out, ']')
}

// appendServerSearch writes the search that OpenRouter makes when the model wants it. Which domains are kept is sure with
// one engine only: models' own searches pass over some of these lists.
func appendServerSearch(b []byte, o *hob.WebSearchOptions) []byte {
	b = append(b, `{"type":"openrouter:web_search","parameters":{"max_total_results":`...)
	b = strconv.AppendInt(b, int64(searches(o)*resultsPerSearch), 10)
	if len(o.AllowedDomains)+len(o.BlockedDomains) > 0 {
		b = append(b, `,"engine":"exa"`...)
	}
	b = appendDomains(b, "allowed_domains", o.AllowedDomains)
	b = appendDomains(b, "excluded_domains", o.BlockedDomains)
	return append(b, `}}`...)
}
