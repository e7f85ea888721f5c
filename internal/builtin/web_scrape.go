package builtin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/andybalholm/cascadia"

	"hob"
	"hob/internal/egress"
)

//go:embed web_scrape.md
var webScrapeText string

// Firecrawl, and what a workspace sets of it and of scraping.
const (
	firecrawlBase        = "https://api.firecrawl.dev/v1"
	settingFirecrawlKey  = "FIRECRAWL_API_KEY"
	settingFirecrawlBase = "FIRECRAWL_API_BASE"
	settingFirecrawlRate = "FIRECRAWL_RATE_LIMIT_PER_MINUTE" // requests
	settingScrapeChars   = "WEB_SCRAPE_MAX_CHARS"            // characters of a result
	defaultFirecrawlRate = 30
	defaultScrapeChars   = 200_000
	scrapeTimeout        = 60 * time.Second // of one try
	// firecrawlGrace is how long before the end of a try Firecrawl is told to give up, so that its own words are read.
	firecrawlGrace = 5 * time.Second
)

// Bounds of a scrape.
const (
	maxWaitFor   = 25_000 // milliseconds; Firecrawl takes less than half of its time
	maxSelectors = 50     // of exclude_tags
	maxSelector  = 500    // bytes of one
)

// pageFormats are the forms in which a page can be had.
var pageFormats = []string{"markdown", "html", "links"}

// imageSuffixes end the paths of addresses that are pictures themselves.
var imageSuffixes = []string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tiff"}

func init() {
	add(builtin{
		name:        "web_scrape",
		description: webScrapeText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"url":{"type":"string","description":"Absolute http or https URL of the page"},` +
			`"formats":{"type":"array","items":{"type":"string","enum":["markdown","html","links"]},"default":["markdown"]},` +
			`"include_images":{"type":"boolean","default":false,"description":"Describe the page's images in words"},` +
			`"only_main_content":{"type":"boolean","default":true,"description":"Leave out menus, headers and footers"},` +
			`"exclude_tags":{"type":"array","items":{"type":"string"},"description":"CSS selectors of parts to leave out"},` +
			`"wait_for":{"type":"integer","description":"Milliseconds to wait for the page's scripts"},` +
			`"mobile":{"type":"boolean","default":false,"description":"Ask as a mobile browser"}` +
			`},"required":["url"],"additionalProperties":false}`),
		effect: hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		keys:    []string{allowedHostsKey, maxCharsKey, maxCallsKey},
		options: func(_ *Set, keys map[string]json.RawMessage) (any, error) { return readLimits(keys) },
		open: func(o opening) (hob.ToolRunner, string) {
			o.spec.Timeout = limitWait + 2*scrapeTimeout + retryWithin + maxVision + callGrace
			return &webScrape{
				set: o.set, spec: o.spec, numbers: o.numbers, limits: o.options.(*limits), ws: o.grant.Agent.Workspace,
				pool: poolName(o.grant, o.spec.Ref),
			}, ""
		},
	})
}

// webScrape reads one page: through Firecrawl where the workspace or the operator has it, else by itself.
type webScrape struct {
	set     *Set
	spec    hob.ToolSpec
	numbers *Settings // of the workspace
	limits  *limits
	ws      hob.WorkspaceID
	pool    string
}

// scrapeArgs are the arguments of web_scrape.
type scrapeArgs struct {
	URL             string   `json:"url"`
	Formats         []string `json:"formats"`
	IncludeImages   bool     `json:"include_images"`
	OnlyMainContent *bool    `json:"only_main_content"`
	ExcludeTags     []string `json:"exclude_tags"`
	WaitFor         float64  `json:"wait_for"`
	Mobile          bool     `json:"mobile"`

	excluded []cascadia.SelectorGroup // ExcludeTags, read
}

// firecrawlQuery is the body of POST /scrape.
type firecrawlQuery struct {
	URL             string   `json:"url"`
	Formats         []string `json:"formats"`
	OnlyMainContent bool     `json:"onlyMainContent"`
	ExcludeTags     []string `json:"excludeTags,omitempty"`
	WaitFor         int      `json:"waitFor,omitempty"` // milliseconds
	Mobile          bool     `json:"mobile,omitempty"`
	Timeout         int64    `json:"timeout"` // milliseconds
}

// scraped is what was read of a page.
type scraped struct {
	page      []member // of the result
	truncated bool     // the page is longer than what was read of it
}

// firecrawl is the service with what a workspace set for itself, or the operator's. ok is false where nobody set a key or
// an address. The operator's key goes to the operator's address and to Firecrawl's own, never to one of a workspace.
func (s *Set) firecrawl(ctx context.Context, ws hob.WorkspaceID) (f service, ok bool) {
	own := s.deps.Firecrawl
	f = service{
		name: "Firecrawl", key: s.services.text(ctx, ws, settingFirecrawlKey, string(own.Key)),
		base: strings.TrimRight(s.services.text(ctx, ws, settingFirecrawlBase, cmp.Or(own.BaseURL, firecrawlBase)), "/"),
	}
	f.operator = f.base == strings.TrimRight(own.BaseURL, "/") || f.base == firecrawlBase
	if !f.operator && own.Key != "" && f.key == string(own.Key) {
		f.key = ""
	}
	return f, f.key != "" || f.base != firecrawlBase
}

// Spec describes the tool.
func (t *webScrape) Spec() hob.ToolSpec { return t.spec }

// Call reads a page. Its result is a JSON object with the formats that were asked for and "metadata", and "truncated"
// where something is missing at the end, or {"error"}. The error is that of a cancelled ctx.
func (t *webScrape) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	var in scrapeArgs
	err := decode(c.Arguments, &in)
	if err == nil {
		err = in.check()
	}
	if err != nil {
		return *free("%s", messageOf(err)), nil
	}
	if !t.set.calls.take(c, t.limits.maxCalls) {
		return *free("%s", t.limits.spent(c.Name)), nil
	}
	res, err := t.read(ctx, c, &in)
	res.Action = hob.ActionWebScrape
	return res, err
}

// read finds out what is at the address and makes the result of it.
func (t *webScrape) read(ctx context.Context, c hob.Call, in *scrapeArgs) (hob.Result, error) {
	if isImageAddress(in.URL) {
		return t.picture(ctx, c, in.URL)
	}
	got, fault, err := t.scrape(ctx, c, in)
	if err != nil {
		return hob.Result{}, err
	}
	if fault != nil {
		return *fault, nil
	}
	var used []hob.UsageEntry
	if in.IncludeImages {
		used = t.addImages(ctx, c, got.page)
		if gone := cancelled(ctx, c.Name); gone != nil {
			return hob.Result{Used: used}, gone
		}
	}
	return hob.Result{Text: string(fitPage(got.page, t.most(ctx), got.truncated)), Used: used}, nil
}

// most is how many characters a result may have.
func (t *webScrape) most(ctx context.Context) int {
	usual := t.set.services.number(ctx, t.ws, settingScrapeChars, defaultScrapeChars)
	return min(t.limits.chars(usual), usual, t.numbers.MaxResult)
}

// scrape reads a page. What Firecrawl fetches cannot be judged by the assignment's list of hosts: with one, and without
// Firecrawl, Hob fetches the page by itself.
func (t *webScrape) scrape(ctx context.Context, c hob.Call, in *scrapeArgs) (*scraped, *hob.Result, error) {
	if f, ok := t.set.firecrawl(ctx, t.ws); ok && len(t.limits.hosts) == 0 {
		return t.askFirecrawl(ctx, c, f, in)
	}
	return t.fetch(ctx, c, in)
}

func (t *webScrape) askFirecrawl(ctx context.Context, c hob.Call, f service, in *scrapeArgs) (*scraped, *hob.Result, error) {
	if err := t.set.deps.Egress.CheckURL(in.URL); err != nil {
		fault := free("%s", transportText(err, http.MethodGet))
		var e *egress.Error
		if errors.As(err, &e) && e.Kind == egress.Refused {
			fault = free("destination not allowed: private and special addresses are refused")
		}
		fault.Note = noteOf(err, asItIs)
		return nil, fault, nil
	}
	formats := slices.Clone(in.Formats)
	if in.IncludeImages && !slices.Contains(formats, "markdown") {
		formats = append(formats, "markdown")
	}
	body, fault, err := t.set.ask(ctx, c, serviceRequest{
		service: f, path: "/scrape", timeout: scrapeTimeout, ws: t.ws,
		body: firecrawlQuery{
			URL: in.URL, Formats: formats, OnlyMainContent: in.mainOnly(), ExcludeTags: in.ExcludeTags,
			WaitFor: int(in.WaitFor), Mobile: in.Mobile, Timeout: (scrapeTimeout - firecrawlGrace).Milliseconds(),
		},
		header: func(h http.Header) {
			if f.key != "" {
				h.Set("Authorization", "Bearer "+f.key)
			}
		},
		limit: t.set.firecrawlLimit, most: t.set.services.number(ctx, t.ws, settingFirecrawlRate, defaultFirecrawlRate),
	})
	if err != nil || fault != nil {
		return nil, fault, err
	}
	var answer struct {
		Success bool            `json:"success"`
		Error   string          `json:"error"`
		Data    json.RawMessage `json:"data"`
	}
	if !reads(body, &answer) {
		return nil, free("Firecrawl answered with something that is no page"), nil
	}
	page, ok := members(answer.Data)
	if !answer.Success || !ok {
		text, _ := cut(serviceRequest{service: f}.hide(cmp.Or(answer.Error, "no further information")), maxErrorBody)
		return nil, free("Firecrawl could not read the page: %s", text), nil
	}
	if !isPage(answer.Data) {
		return nil, free("Firecrawl answered with something that is no page"), nil
	}
	return &scraped{page: page}, nil, nil
}

// isPage says whether the parts of a page that are there are of the types that they have.
func isPage(data json.RawMessage) bool {
	var page struct {
		Markdown *string                    `json:"markdown"`
		HTML     *string                    `json:"html"`
		RawHTML  *string                    `json:"rawHtml"`
		Links    []string                   `json:"links"`
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	return reads(data, &page)
}

// check fills in the defaults and judges the arguments but the URL. The error is Invalid and says what to write.
func (in *scrapeArgs) check() error {
	if in.URL = strings.TrimSpace(in.URL); in.URL == "" {
		return hob.Errorf(hob.Invalid, "url is required")
	}
	if len(in.Formats) == 0 {
		in.Formats = pageFormats[:1]
	}
	for _, f := range in.Formats {
		if !slices.Contains(pageFormats, f) {
			return hob.Errorf(hob.Invalid, "formats may hold %s, not %q", strings.Join(pageFormats, ", "), shorten(f))
		}
	}
	in.WaitFor = math.Trunc(max(0, min(maxWaitFor, in.WaitFor)))
	if len(in.ExcludeTags) > maxSelectors {
		return hob.Errorf(hob.Invalid, "exclude_tags must have at most %d selectors", maxSelectors)
	}
	for _, s := range in.ExcludeTags {
		sel, err := cascadia.ParseGroup(s)
		if err != nil || len(s) > maxSelector {
			return hob.Errorf(hob.Invalid, "exclude_tags has %q, which is no CSS selector; write one like nav, .advert or #footer", shorten(s))
		}
		in.excluded = append(in.excluded, sel)
	}
	return nil
}

func (in *scrapeArgs) mainOnly() bool { return in.OnlyMainContent == nil || *in.OnlyMainContent }

// isImageAddress says whether an address is that of a picture.
func isImageAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && slices.Contains(imageSuffixes, strings.ToLower(path.Ext(u.Path)))
}
