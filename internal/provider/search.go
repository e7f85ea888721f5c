package provider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

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

// MaxPauses is how often one answer of Anthropic's may pause while it searches; what has come by then is the answer.
const MaxPauses = 4

// pausedTurn is an answer of Anthropic's that paused: the API wants it back as it is, and goes on with it.
type pausedTurn struct {
	blocks   []json.RawMessage // of the answer so far, all of them
	back     []backBlock
	usage    messagesUsage
	told     bool // usage was
	searches int
}

// goesOn is the answer after a further part of it.
func (t *pausedTurn) goesOn(d *messagesDecoder) {
	t.blocks, t.back = d.kept, d.back
	t.searches += d.searches
	if d.usage != nil {
		t.told = true
		t.usage.sum(d.usage)
	}
}

// backBlock is a block that goes back with the message; served ones only while the turn is under way.
type backBlock struct {
	raw    json.RawMessage
	served bool
}

// textKept is a block of text as it goes back in a turn that paused.
func textKept(text []byte, cited []json.RawMessage) json.RawMessage {
	said := strings.TrimRight(string(text), " \t\r\n") // no turn may end in blanks
	if strings.TrimSpace(said) == "" {
		return nil
	}
	out := append([]byte(nil), `{"type":"text","text":`...)
	out = appendString(out, said)
	if len(cited) > 0 {
		out = append(append(out, `,"citations":`...), joinBlocks(cited)...)
	}
	return append(out, '}')
}

// call is the search with an id that the answer began before it paused, nil where there is none.
func (t *pausedTurn) call(id string) json.RawMessage {
	if t == nil {
		return nil
	}
	for _, b := range t.blocks {
		var block struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		}
		if unmarshal(b, &block) == nil && block.Type == servedCall && block.ID == id {
			return b
		}
	}
	return nil
}
