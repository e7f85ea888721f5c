package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
	"hob/internal/fakeweb"
	"hob/internal/settings"
)

const (
	exaKey       = "exa-key-for-tests"
	firecrawlKey = "firecrawl-key-for-tests"
)

// web is an internet for a stage: Exa, Firecrawl, and a site with pages, pictures and an API.
type web struct {
	exa   *fakeweb.Exa
	crawl *fakeweb.Firecrawl

	exaURL, crawlURL, site string
	looking, most          atomic.Int32 // pictures that are fetched, and the most of it
}

func newWeb(t *testing.T) *web {
	t.Helper()
	w := &web{exa: fakeweb.NewExa(exaKey), crawl: fakeweb.NewFirecrawl(firecrawlKey)}
	for _, s := range []struct {
		at *string
		h  http.Handler
	}{{&w.exaURL, w.exa}, {&w.crawlURL, w.crawl}, {&w.site, w}} {
		srv := httptest.NewServer(s.h)
		t.Cleanup(srv.Close)
		*s.at = srv.URL
	}
	return w
}

// allow is the HOB_EGRESS_ALLOW that opens the site and Firecrawl.
func (w *web) allow() string {
	return strings.TrimPrefix(w.site, "http://") + "," + strings.TrimPrefix(w.crawlURL, "http://")
}

// ServeHTTP is the site.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/long":
		_, _ = io.WriteString(rw, "<html><body><p>"+strings.Repeat("word ", 20_000)+"</p></body></html>")
	case r.URL.Path == "/gallery":
		rw.Header().Set("Content-Type", "text/markdown")
		for i := range 12 {
			_, _ = fmt.Fprintf(rw, "![picture](%s/%d.png)\n\n", w.site, i)
		}
	case strings.HasSuffix(r.URL.Path, ".png"):
		n := w.looking.Add(1)
		defer w.looking.Add(-1)
		for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
			continue
		}
		time.Sleep(50 * time.Millisecond) // so that others come meanwhile, where others may
		var b bytes.Buffer
		_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 4, 4)))
		_, _ = rw.Write(b.Bytes())
	case r.URL.Path == "/api":
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(rw, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	default:
		_, _ = io.WriteString(rw, "<html><head><title>A page</title></head><body><p>Read by Hob itself.</p></body></html>")
	}
}

// obey makes the calls that the user's message lists, a name and arguments a line, all in one step; asked about a picture
// it says what it sees.
func obey(p fakeai.Parsed) fakeai.Reply {
	last := p.LastText()
	switch {
	case strings.Contains(last, "Describe this image"):
		return fakeai.Text("A grey square.")
	case p.Results() > 0 || len(p.Tools) == 0:
		return fakeai.Text("Done.")
	}
	var calls []fakeai.Call
	for line := range strings.Lines(last) {
		if name, args, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			calls = append(calls, fakeai.Call{ID: fmt.Sprintf("call_%d_%d", p.Number, len(calls)), Name: name, Arguments: args})
		}
	}
	return fakeai.Calls(calls...)
}

// use makes an agent with builtin tools and has it make calls, as obey reads them. It gives the results, joined by lines.
func (s *stage) use(calls string, tools ...string) string {
	s.t.Helper()
	agent := s.agent("{}", "")
	for _, name := range tools {
		if _, err := s.c.Assign(s.t.Context(), agent, client.AssignmentInput{ToolName: name}); err != nil {
			s.t.Fatal(err)
		}
	}
	before := len(s.model.Requests())
	if _, err := s.c.Run(s.t.Context(), agent, client.RunRequest{Message: calls, Tools: true}); err != nil {
		s.t.Fatal(err)
	}
	var results []string
	asked := s.model.Requests()
	for _, m := range asked[len(asked)-1].Messages {
		if m.Role == "tool" {
			results = append(results, m.Text)
		}
	}
	if len(asked) == before || len(results) == 0 {
		s.t.Fatalf("the model was asked %d times and saw no result", len(asked)-before)
	}
	return strings.Join(results, "\n")
}

// set changes a setting.
func (s *stage) set(name string, value any) {
	s.t.Helper()
	if _, err := s.c.SetSetting(s.t.Context(), name, value); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) scrape(path string, more string) string {
	s.t.Helper()
	return s.use(fmt.Sprintf(`web_scrape {"url":"%s%s"%s}`, s.web.site, path, more), "web_scrape")
}

// described counts the pictures of the gallery that have a description.
func (s *stage) described() int {
	return strings.Count(s.scrape("/gallery", `,"include_images":true`), "A grey square.")
}

// which says which of some texts is in another.
func which(text string, parts ...string) string {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return p
		}
	}
	return text
}

// webProofs has one for each key of the tools.
func webProofs() map[string]proof {
	search := func(s *stage) string {
		return which(s.use(`web_search {"query":"go"}`, "web_search"), "Exa API key not configured", "go, part 1")
	}
	twice := func(tool, one, two string, prepare func(s *stage)) func(s *stage) string {
		return func(s *stage) string {
			if prepare != nil {
				prepare(s)
			}
			text := s.use(tool+" "+one+"\n"+tool+" "+two, tool)
			return fmt.Sprintf("limited: %t", strings.Contains(text, "rate limit of this workspace"))
		}
	}
	crawl := func(s *stage) {
		s.set(settings.FirecrawlAPIBase, s.web.crawlURL+"/v1")
		s.set(settings.FirecrawlAPIKey, firecrawlKey)
	}
	const first, second = `{"url":"https://example.com/1"}`, `{"url":"https://example.com/2"}`
	return map[string]proof{
		settings.ExaAPIKey: {value: exaKey, reply: obey, before: "Exa API key not configured", after: "go, part 1", observe: search},
		settings.ExaRateLimit: {
			value: 3, reply: obey, before: "limited: false", after: "limited: true",
			observe: twice("web_search", `{"query":"a"}`, `{"query":"b"}`, func(s *stage) { s.set(settings.ExaAPIKey, exaKey) }),
		},
		settings.FirecrawlAPIKey: {
			value: firecrawlKey, reply: obey, before: "Unauthorized", after: "Read by Firecrawl",
			observe: func(s *stage) string {
				s.set(settings.FirecrawlAPIBase, s.web.crawlURL+"/v1")
				return which(s.scrape("/", ""), "Unauthorized", "Read by Firecrawl")
			},
		},
		settings.FirecrawlRateLimit: {
			value: 3, reply: obey, before: "limited: false", after: "limited: true", observe: twice("web_scrape", first, second, crawl),
		},
		settings.WebScrapeMaxChars: {
			value: 10_000, reply: obey, before: "more than 10000: true", after: "more than 10000: false",
			observe: func(s *stage) string { return fmt.Sprintf("more than 10000: %t", len(s.scrape("/long", "")) > 10_000) },
		},
		settings.WebScrapeMaxImages: {
			value: 2, reply: obey, before: "10 pictures", after: "2 pictures",
			observe: func(s *stage) string { return fmt.Sprintf("%d pictures", s.described()) },
		},
		settings.VisionModel: {
			value: "openai/gpt-4o-mini", reply: obey, before: "gpt-4.1-mini", after: "gpt-4o-mini",
			observe: func(s *stage) string {
				s.scrape("/1.png", "")
				asked := s.model.Requests()
				i := slices.IndexFunc(asked, func(p fakeai.Parsed) bool {
					return strings.Contains(p.LastText(), "Describe this image") && !strings.Contains(s.seen, fmt.Sprintf(" %d ", p.Number))
				})
				if i < 0 {
					return "nobody looked"
				}
				s.seen += fmt.Sprintf(" %d ", asked[i].Number)
				return asked[i].Model
			},
		},
		settings.VisionTimeout: {
			value: 10, before: "A grey square.", after: "[Image could not be analyzed]",
			reply: func(p fakeai.Parsed) fakeai.Reply {
				r := obey(p)
				if strings.Contains(p.LastText(), "Describe this image") {
					r.Wait = 11 * time.Second
				}
				return r
			},
			observe: func(s *stage) string {
				return which(s.scrape("/1.png", ""), "A grey square.", "[Image could not be analyzed]")
			},
		},
		settings.VisionMaxWorkers: {
			value: 1, reply: obey, before: "3 at once", after: "1 at once",
			observe: func(s *stage) string {
				s.web.most.Store(0)
				s.described()
				return fmt.Sprintf("%d at once", s.web.most.Load())
			},
		},
	}
}

// The address of Firecrawl needs the address of a server, which a table cannot know.
func TestSettings_FirecrawlBaseChangesWhoIsAsked(t *testing.T) {
	t.Parallel()
	s := setStage(t, obey, nil)
	if got := s.scrape("/", ""); !strings.Contains(got, "Read by Hob itself") {
		t.Errorf("without: %s", got)
	}
	s.set(settings.FirecrawlAPIBase, s.web.crawlURL+"/v1")
	s.set(settings.FirecrawlAPIKey, firecrawlKey) // behind the address: a key goes to the one it was set for
	if got := s.scrape("/", ""); !strings.Contains(got, "Read by Firecrawl") {
		t.Errorf("with: %s", got)
	}
	for _, bad := range []string{"http://10.0.0.1/v1", "ftp://example.com", "nonsense", "https://example.com/v1?x=1"} {
		if _, err := s.c.SetSetting(t.Context(), settings.FirecrawlAPIBase, bad); hob.KindOf(err) != hob.Invalid {
			t.Errorf("%s is taken: %v", bad, err)
		}
	}
}

// ledgerOf are the ledger's counts of a server, by action.
func ledgerOf(t *testing.T, c *client.Client) map[string]int64 {
	t.Helper()
	u, err := c.Usage(t.Context(), hob.UsageFilter{GroupBy: hob.ByAction})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, row := range u.Usage {
		counts[row.Key] = row.Quantity
	}
	return counts
}

// TestWebTools_InRunsOfTheProgram has a scripted model use every tool that reaches the network, on both stores: the results
// come back, and the ledger counts each as what it was.
func TestWebTools_InRunsOfTheProgram(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWeb(t)
			c := install(t, map[string]string{
				"HOB_DATABASE_URL": database, "EXA_API_KEY": exaKey, "EXA_BASE_URL": w.exaURL, "HOB_EGRESS_ALLOW": w.allow(),
			}).serve().client()
			search, custom := string(hob.HTTPTool), "lookup"
			tool, err := c.CreateTool(t.Context(), client.ToolInput{
				Name: &custom, Description: &custom, Type: &search, Config: &client.ToolConfigInput{Endpoint: w.site + "/api", Method: "GET"},
				InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			agent := scripted(t, c, strings.Join([]string{
				`call: web_search {"query":"agents","num_results":1}`,
				`call: web_search {"query":"agents","search_type":"deep"}`,
				`call: web_search {"query":"agents","start_date":"soon"}`,
				`call: web_scrape {"url":"` + w.site + `/page"}`,
				`call: http_request {"url":"` + w.site + `/api","method":"POST","body":{"a":1}}`,
				`call: lookup {"q":"x y"}`,
				`---`,
				`text: {{results.0}} | {{results.2}} | {{results.3}} | {{results.4}} | {{results.5}}`,
			}, "\n"))
			for _, in := range []client.AssignmentInput{
				{ToolName: "web_search"}, {ToolName: "web_scrape"}, {ToolName: "http_request"}, {ToolName: custom, ToolID: &tool.ID},
			} {
				if _, err := c.Assign(t.Context(), agent, in); err != nil {
					t.Fatal(err)
				}
			}
			r, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
			if err != nil || r.Status != hob.Completed {
				t.Fatalf("%+v, %v", r, err)
			}
			mustContain(t, "the answer", r.Content, "agents, part 1", "start_date must be an ISO 8601 date", "Read by Hob itself.",
				`POST /api {"a":1}`, "GET /api?q=x%20y")
			got := ledgerOf(t, c)
			want := map[string]int64{hob.ActionWebSearch: 1, hob.ActionWebSearchDeep: 1, hob.ActionWebScrape: 1, hob.ActionToolCall: 2}
			for action, n := range want {
				if got[action] != n {
					t.Errorf("%s: %d, want %d; all: %v", action, got[action], n, got)
				}
			}
		})
	}
}

// A missing key is told to the model and to whoever looks at the tools, and costs nothing.
func TestWebTools_AMissingKeyIsToldAndFree(t *testing.T) {
	t.Parallel()
	c := install(t, nil).serve().client()
	agent := scripted(t, c, "call: web_search {\"query\":\"q\"}\n---\ntext: {{result}}")
	if _, err := c.Assign(t.Context(), agent, client.AssignmentInput{ToolName: "web_search"}); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, "the answer", r.Content, "Exa API key not configured. Set it in Settings > Tools.")
	if n := ledgerOf(t, c)[hob.ActionWebSearch]; n != 0 {
		t.Errorf("%d searches are counted", n)
	}
}

// What is asked of a vision model for a tool is in the ledger beside the run's own calls.
func TestWebTools_VisionIsInTheLedger(t *testing.T) {
	t.Parallel()
	s := setStage(t, obey, nil)
	s.scrape("/1.png", "")
	u, err := s.c.Usage(t.Context(), hob.UsageFilter{GroupBy: hob.ByComponent})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(u.Usage, func(row hob.UsageRow) bool { return row.Key == hob.ComponentVision })
	if i < 0 || u.Usage[i].Calls != 1 || u.Usage[i].TotalTokens == 0 {
		t.Errorf("use by component: %+v", u.Usage)
	}
}
