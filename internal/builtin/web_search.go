package builtin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

//go:embed web_search.md
var webSearchText string

// Exa, and what a workspace sets of it.
const (
	exaBase        = "https://api.exa.ai"
	settingExaKey  = "EXA_API_KEY"
	settingExaRate = "EXA_RATE_LIMIT_PER_MINUTE" // requests
	defaultExaRate = 60
	searchTimeout  = 30 * time.Second // of one try
	exaMissing     = "Exa API key not configured. Set it in Settings > Tools."
	exaLacks       = exaMissing + ` An administrator sets it with PUT /api/settings/EXA_API_KEY {"value":"…"}`
)

// Bounds of a search.
const (
	defaultResults = 5
	maxResults     = 10
	maxQuery       = 2000 // characters
	maxDomains     = 100
	compactText    = 3000   // characters of each result's text
	maxSearch      = 20_000 // characters of all results
	maxSearchFull  = 50_000 // … with the whole texts
)

// searchWait is what a search may take in all.
const searchWait = limitWait + 2*searchTimeout + retryWithin + callGrace

// What arguments of web_search may be.
var (
	searchTypes      = []string{"auto", "neural", "keyword", "deep", "deep-reasoning"}
	searchCategories = []string{"company", "news", "research paper", "tweet", "github", "wikipedia", "personal site"}
	contentModes     = []string{"highlights", "compact_text", "full_text"}
)

// searchSchema is of the arguments of a search.
const searchSchema = `{"type":"object","properties":{` +
	`"query":{"type":"string","description":"What to search for"},` +
	`"num_results":{"type":"integer","default":5,"description":"How many results, 1 to 10"},` +
	`"search_type":{"type":"string","enum":["auto","neural","keyword","deep","deep-reasoning"],"default":"auto","description":"neural: by meaning; keyword: exact terms; deep and deep-reasoning: slower and dearer, for hard questions"},` +
	`"include_domains":{"type":"array","items":{"type":"string"},"description":"Only from these domains"},` +
	`"exclude_domains":{"type":"array","items":{"type":"string"},"description":"Not from these domains"},` +
	`"start_date":{"type":"string","description":"Published on or after this date, ISO 8601"},` +
	`"end_date":{"type":"string","description":"Published on or before this date, ISO 8601"},` +
	`"category":{"type":"string","enum":["company","news","research paper","tweet","github","wikipedia","personal site"]},` +
	`"content_mode":{"type":"string","enum":["highlights","compact_text","full_text"],"default":"highlights","description":"What comes with each result"}` +
	`},"required":["query"],"additionalProperties":false}`

func init() {
	add(builtin{
		name:        "web_search",
		description: webSearchText,
		schema:      json.RawMessage(searchSchema),
		effect:      hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		keys:    []string{maxCharsKey, maxCallsKey},
		options: func(_ *Set, keys map[string]json.RawMessage) (any, error) { return readLimits(keys) },
		unavailable: func(ctx context.Context, s *Set, ws hob.WorkspaceID) string {
			if s.exa(ctx, ws).key == "" {
				return exaLacks
			}
			return ""
		},
		open: func(o opening) (hob.ToolRunner, string) {
			o.spec.Timeout = searchWait
			return &webSearch{set: o.set, spec: o.spec, numbers: o.numbers, limits: o.options.(*limits), ws: o.grant.Agent.Workspace}, ""
		},
	})
}

// webSearch asks Exa.
type webSearch struct {
	set     *Set
	spec    hob.ToolSpec
	numbers *Settings // of the workspace
	limits  *limits
	ws      hob.WorkspaceID
}

// searchArgs are the arguments of web_search.
type searchArgs struct {
	Query          string   `json:"query"`
	NumResults     *float64 `json:"num_results"`
	SearchType     string   `json:"search_type"`
	IncludeDomains []string `json:"include_domains"`
	ExcludeDomains []string `json:"exclude_domains"`
	StartDate      string   `json:"start_date"`
	EndDate        string   `json:"end_date"`
	Category       string   `json:"category"`
	ContentMode    string   `json:"content_mode"`
}

// exaQuery is the body of POST /search.
type exaQuery struct {
	Query              string      `json:"query"`
	NumResults         int         `json:"numResults"`
	Type               string      `json:"type"`
	Contents           exaContents `json:"contents"`
	IncludeDomains     []string    `json:"includeDomains,omitempty"`
	ExcludeDomains     []string    `json:"excludeDomains,omitempty"`
	StartPublishedDate string      `json:"startPublishedDate,omitempty"`
	EndPublishedDate   string      `json:"endPublishedDate,omitempty"`
	Category           string      `json:"category,omitempty"`
}

type exaContents struct {
	Highlights bool `json:"highlights,omitempty"`
	Text       any  `json:"text,omitempty"` // true, or exaText
}

type exaText struct {
	MaxCharacters int `json:"maxCharacters"`
}

// searchResult is a page that was found, as Exa tells it and as the model reads it.
type searchResult struct {
	Title         string   `json:"title"`
	URL           string   `json:"url"`
	PublishedDate *string  `json:"publishedDate"` // null where Exa does not know it
	Highlights    []string `json:"highlights"`
	Text          string   `json:"text,omitempty"`
}

// exa is the service with a workspace's key, or the operator's.
func (s *Set) exa(ctx context.Context, ws hob.WorkspaceID) service {
	return service{
		name: "Exa", base: cmp.Or(s.deps.Exa.BaseURL, exaBase), operator: true,
		key: s.services.text(ctx, ws, settingExaKey, string(s.deps.Exa.Key)),
	}
}

// Spec describes the tool.
func (t *webSearch) Spec() hob.ToolSpec { return t.spec }

// Call searches. Its result is a JSON list of results, {"results","truncated"} where they were cut, or {"error"}. The
// error is that of a cancelled ctx.
func (t *webSearch) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	in, err := readSearch(c.Arguments)
	if err != nil {
		return *free("%s", messageOf(err)), nil
	}
	return t.find(ctx, c, in)
}

// readSearch reads the arguments of a search. The error is Invalid and says what to write.
func readSearch(args json.RawMessage) (*searchArgs, error) {
	in := &searchArgs{}
	if err := decode(args, in); err != nil {
		return nil, err
	}
	return in, in.check()
}

// find makes a search whose arguments were judged.
func (t *webSearch) find(ctx context.Context, c hob.Call, in *searchArgs) (hob.Result, error) {
	exa := t.set.exa(ctx, t.ws)
	if exa.key == "" {
		return *free("%s", exaMissing), nil
	}
	if !t.set.calls.take(c, t.limits.maxCalls) {
		return *free("%s", t.limits.spent(c.Name)), nil
	}
	res, err := t.search(ctx, c, exa, in)
	res.Action = searchAction(in.SearchType)
	return res, err
}

func (t *webSearch) search(ctx context.Context, c hob.Call, exa service, in *searchArgs) (hob.Result, error) {
	body, fault, err := t.set.ask(ctx, c, serviceRequest{
		service: exa, path: "/search", body: in.query(), timeout: searchTimeout, ws: t.ws,
		header: func(h http.Header) { h.Set("X-Api-Key", exa.key) },
		limit:  t.set.exaLimit, most: t.set.services.number(ctx, t.ws, settingExaRate, defaultExaRate),
	})
	if err != nil {
		return hob.Result{}, err
	}
	if fault != nil {
		return *fault, nil
	}
	var answer struct {
		Results *[]searchResult `json:"results"` // nil where there are none at all, which is no answer
	}
	if !reads(body, &answer) || answer.Results == nil {
		return *free("Exa answered with something that is no list of results"), nil
	}
	most := maxSearch
	if in.ContentMode == "full_text" {
		most = maxSearchFull
	}
	return hob.Result{Text: string(fitResults(in.tidy(*answer.Results), min(t.limits.chars(most), most, t.numbers.MaxResult)))}, nil
}

// searchAction is what a search counts as in the ledger: what Exa was really asked for.
func searchAction(searchType string) string {
	switch searchType {
	case "deep":
		return hob.ActionWebSearchDeep
	case "deep-reasoning":
		return hob.ActionWebSearchDeepReasoning
	default:
		return hob.ActionWebSearch
	}
}

// check fills in the defaults and judges the arguments. The error is Invalid and says what to write.
func (in *searchArgs) check() error {
	in.Query = strings.TrimSpace(in.Query)
	in.SearchType = cmp.Or(in.SearchType, searchTypes[0])
	in.ContentMode = cmp.Or(in.ContentMode, contentModes[0])
	switch n := utf8.RuneCountInString(in.Query); {
	case n == 0:
		return hob.Errorf(hob.Invalid, "query is required")
	case n > maxQuery:
		return hob.Errorf(hob.Invalid, "query must have at most %d characters", maxQuery)
	}
	for _, choice := range []struct {
		name, value string
		of          []string
	}{{"search_type", in.SearchType, searchTypes}, {"content_mode", in.ContentMode, contentModes}, {"category", in.Category, searchCategories}} {
		if choice.value != "" && !slices.Contains(choice.of, choice.value) {
			return hob.Errorf(hob.Invalid, "%s must be one of %s, not %q", choice.name, strings.Join(choice.of, ", "), shorten(choice.value))
		}
	}
	if err := checkDomains("include_domains", in.IncludeDomains); err != nil {
		return err
	}
	if err := checkDomains("exclude_domains", in.ExcludeDomains); err != nil {
		return err
	}
	return in.checkDates()
}

// domainForm is a domain as Exa takes it: labels, perhaps a wildcard before them and a path behind.
var domainForm = regexp.MustCompile(`^(\*\.)?[\p{L}\p{N}_]([\p{L}\p{N}_-]*[\p{L}\p{N}])?(\.[\p{L}\p{N}_]([\p{L}\p{N}_-]*[\p{L}\p{N}])?)+(/[^\s?#]*)?$`)

// checkDomains judges a list of domains and writes them in lower case, without the scheme that models put before them.
func checkDomains(name string, domains []string) error {
	if len(domains) > maxDomains {
		return hob.Errorf(hob.Invalid, "%s must have at most %d domains", name, maxDomains)
	}
	for i, d := range domains {
		d = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(d)), "/")
		d = strings.TrimPrefix(strings.TrimPrefix(d, "https://"), "http://")
		if len(d) > 255 || !domainForm.MatchString(d) {
			return hob.Errorf(hob.Invalid, "%s has %q, which is no domain; write it like example.com", name, shorten(domains[i]))
		}
		domains[i] = d
	}
	return nil
}

func (in *searchArgs) checkDates() error {
	from, err := searchDate("start_date", &in.StartDate)
	if err != nil {
		return err
	}
	to, err := searchDate("end_date", &in.EndDate)
	if err != nil {
		return err
	}
	if !from.IsZero() && !to.IsZero() && from.After(to) {
		return hob.Errorf(hob.Invalid, "start_date %s is after end_date %s", in.StartDate, in.EndDate)
	}
	return nil
}

// searchDate reads a date; "" is none.
func searchDate(name string, text *string) (time.Time, error) {
	*text = strings.TrimSpace(*text)
	if *text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, *text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, hob.Errorf(hob.Invalid, "%s must be an ISO 8601 date like 2026-01-31 or 2026-01-31T12:00:00Z, not %q", name, shorten(*text))
}

// query is what Exa is asked.
func (in *searchArgs) query() exaQuery {
	n := defaultResults
	if in.NumResults != nil {
		n = int(max(1, min(maxResults, *in.NumResults)))
	}
	q := exaQuery{
		Query: in.Query, NumResults: n, Type: in.SearchType, IncludeDomains: in.IncludeDomains, ExcludeDomains: in.ExcludeDomains,
		StartPublishedDate: in.StartDate, EndPublishedDate: in.EndDate, Category: in.Category,
	}
	switch in.ContentMode {
	case "full_text":
		q.Contents.Text = true
	case "compact_text":
		q.Contents.Text = exaText{MaxCharacters: compactText}
	default:
		q.Contents.Highlights = true
	}
	return q
}

// tidy leaves of the results what was asked for.
func (in *searchArgs) tidy(results []searchResult) []searchResult {
	results = results[:min(len(results), maxResults)]
	for i := range results {
		r := &results[i]
		if r.Highlights == nil {
			r.Highlights = []string{}
		}
		switch in.ContentMode {
		case "highlights":
			r.Text = ""
		case "compact_text":
			r.Text, _ = cut(r.Text, compactText)
		}
	}
	return append([]searchResult{}, results...)
}
