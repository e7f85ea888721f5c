package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
	"hob/internal/fakeweb"
)

// scraped is a result of web_scrape.
type scraped struct {
	Markdown  string
	HTML      string
	Links     []string
	Truncated bool
	Error     string
	Metadata  struct {
		Title, Description, Language, SourceURL, URL, ContentType, Type string
		StatusCode                                                      int
	}
}

func scrapedFrom(t *testing.T, res hob.Result) scraped {
	t.Helper()
	var s scraped
	if err := json.Unmarshal([]byte(res.Text), &s); err != nil {
		t.Fatalf("the result is not JSON: %v\n%.300s", err, res.Text)
	}
	return s
}

// article is a page with a main part and much beside it.
const article = `<!doctype html><html lang="en"><head><title>The  Title</title><meta name="description" content="About &amp; around">
<script>alert(1)</script></head><body><nav><a href="/menu">Menu</a></nav><article><h2>Heading</h2>
<p>The first paragraph is long enough to count as content, since it has many words, commas, and a <a href="page?x=1#y">link</a> in it.</p>
<p class="advert">Buy now, while it lasts, since this is an advertisement with commas, and many words, too.</p>
<p>The second paragraph is long enough to count as content as well, since it also has many words, commas, and <b>bold</b> text in it.</p>
<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>
<a href="javascript:alert(1)">bad</a><img src="/pic.png" alt="a picture" onerror="alert(1)"></article><footer>Imprint</footer></body></html>`

func pages(t *testing.T) *httptest.Server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		kind := map[string]string{
			"/text": "text/plain", "/json": "application/json", "/feed": "application/rss+xml", "/pdf": "application/pdf", "/none": "",
			"/latin": "text/html; charset=iso-8859-1", "/meta": "text/html", "/md": "text/markdown; charset=utf-8",
		}
		body := map[string]string{
			"/text": "plain & simple", "/json": `{"a":1}`, "/feed": "<rss/>", "/pdf": "%PDF-1.7", "/none": "<html><body><p>sniffed</p></body></html>",
			"/latin": "<html><body><p>caf\xe9</p></body></html>", "/md": "# Heading", "/deep": strings.Repeat("<div>", 100_000),
			"/meta": "<html><head><meta charset=\"shift_jis\"></head><body><p>\x93\xfa\x96{</p></body></html>",
			"/wide": strings.Repeat("<b>x</b>", 150_000), "/large": "<html><body><p>" + strings.Repeat("word ", 80_000),
			"/padded": "<html><body><p>the beginning</p><!--" + strings.Repeat("x", 2<<20) + "--><p>the end</p>",
			"/agent":  "<html><body><p>" + r.UserAgent() + "</p></body></html>",
		}
		switch path := r.URL.Path; {
		case path == "/moved":
			http.Redirect(w, r, "/article", http.StatusFound)
		case path == "/gone":
			http.Error(w, "gone", http.StatusGone)
		case path == "/down":
			http.Error(w, "down", http.StatusBadGateway)
		case body[path] != "":
			if k, ok := kind[path]; ok {
				w.Header()["Content-Type"] = []string{k}
			} else {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
			}
			_, _ = io.WriteString(w, body[path])
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, article)
		}
	})
}

func TestWebScrape_ReadsAPageByItselfWithoutFirecrawl(t *testing.T) {
	t.Parallel()
	srv := pages(t)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("web_scrape", ""))
	res := call(t, r, `{"url":"`+srv.URL+`/moved","formats":["markdown","html","links"]}`)
	if res.IsError || res.Free || res.Action != hob.ActionWebScrape {
		t.Fatalf("%+v", res)
	}
	got := scrapedFrom(t, res)
	mustHold := func(what, text string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if bare, not := strings.CutPrefix(p, "no: "); not == strings.Contains(text, bare) {
				t.Errorf("%s: want %s\n%s", what, p, text)
			}
		}
	}
	mustHold("markdown", got.Markdown, "# The Title", "## Heading", "first paragraph", "[link]("+srv.URL+"/page?x=1#y)", "**bold**", "| A | B |",
		"![a picture]("+srv.URL+"/pic.png)", "no: Menu", "no: Imprint", "no: alert", "no: javascript")
	mustHold("html", got.HTML, "<b>bold</b>", srv.URL+"/pic.png", "no: onerror", "no: script", "no: Menu")
	if diff := cmp.Diff([]string{srv.URL + "/menu", srv.URL + "/page?x=1#y"}, got.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	m := got.Metadata
	if m.Title != "The Title" || m.Description != "About & around" || m.Language != "en" || m.SourceURL != srv.URL+"/moved" ||
		m.URL != srv.URL+"/article" || m.StatusCode != 200 || m.ContentType != "text/html; charset=utf-8" {
		t.Errorf("metadata %+v", m)
	}
	all := scrapedFrom(t, call(t, r, `{"url":"`+srv.URL+`/","only_main_content":false,"exclude_tags":[".advert","footer"]}`))
	mustHold("the whole page", all.Markdown, "Menu", "second paragraph", "no: Buy now", "no: Imprint", "no: alert")
	if all.HTML != "" || all.Links != nil {
		t.Errorf("more than was asked for: %+v", all)
	}
}

func TestWebScrape_TypesAndCharsets(t *testing.T) {
	t.Parallel()
	srv := pages(t)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("web_scrape", ""))
	for path, want := range map[string]string{
		"/text": "plain & simple", "/json": `{"a":1}`, "/feed": "<rss/>", "/md": "# Heading", "/none": "sniffed", "/latin": "café", "/meta": "日本",
	} {
		if got := scrapedFrom(t, call(t, r, `{"url":"`+srv.URL+path+`"}`)); got.Markdown != want {
			t.Errorf("%s: %q, want %q; %s", path, got.Markdown, want, got.Error)
		}
	}
	if got := scrapedFrom(t, call(t, r, `{"url":"`+srv.URL+`/text","formats":["html","links"]}`)); got.HTML != "<pre>plain &amp; simple</pre>" || got.Links == nil || got.Markdown != "" {
		t.Errorf("%+v", got)
	}
	if got := scrapedFrom(t, call(t, r, `{"url":"`+srv.URL+`/agent","mobile":true}`)); !strings.Contains(got.Markdown, "Mobile Safari") {
		t.Errorf("mobile: %s", got.Markdown)
	}
}

func TestWebScrape_FaultsAreToldAndSomeAreFree(t *testing.T) {
	t.Parallel()
	srv := pages(t)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("web_scrape", ""))
	for args, want := range map[string]string{
		`{"url":"` + srv.URL + `/pdf"}`:                    `{"error":"application/pdf cannot be read as a page; only HTML and plain text can"}`,
		`{"url":"` + srv.URL + `/gone"}`:                   `{"error":"the page answered with status 410 (Gone)"}`,
		`{"url":"` + srv.URL + `/down"}`:                   `free {"error":"the page answered with status 502 (Bad Gateway)"}`,
		`{"url":"` + srv.URL + `/deep"}`:                   `{"error":"the page is no usable HTML: it is nested too deeply"}`,
		`{"url":"` + srv.URL + `/wide"}`:                   `{"error":"the page has more than 100000 elements"}`,
		`{}`:                                               `free {"error":"url is required"}`,
		`{"url":"ftp://example.com/"}`:                     `free {"error":"URL not accepted: only http and https`,
		`{"url":"http://10.0.0.1/"}`:                       `free {"error":"destination not allowed or not reachable`,
		`{"url":"http://nowhere.invalid/"}`:                `free {"error":"destination not allowed or not reachable`,
		`{"url":"` + srv.URL + `","formats":["pdf"]}`:      `free {"error":"formats may hold markdown, html, links, not \"pdf\""}`,
		`{"url":"` + srv.URL + `","exclude_tags":["a[b"]}`: `free {"error":"exclude_tags has \"a[b\", which is no CSS selector`,
		`{"url":"` + srv.URL + `","exclude_tags":["` + strings.Repeat("a", 501) + `"]}`:    `free {"error":"exclude_tags has`,
		`{"url":"` + srv.URL + `","exclude_tags":[` + strings.Repeat(`"a",`, 50) + `"b"]}`: `free {"error":"exclude_tags must have at most 50 selectors"}`,
	} {
		res := call(t, r, args)
		text, free := strings.CutPrefix(want, "free ")
		if !res.IsError || res.Free != free || !strings.HasPrefix(res.Text, text) {
			t.Errorf("%.80s: %+v", args, res)
		}
	}
}

func TestWebScrape_LongPagesAreCutAndStayJSON(t *testing.T) {
	t.Parallel()
	srv := pages(t)
	for name, tt := range map[string]struct {
		settings set
		config   string
		most     int
	}{
		"as set":         {set{"WEB_SCRAPE_MAX_CHARS": "10000"}, "", 10_000},
		"by default":     {set{"DEFAULT_MAX_RESULT_CHARS": "500000"}, "", 200_000},
		"all results":    {nil, "", 50_000},
		"the assignment": {nil, `{"max_chars":1000}`, 1000},
	} {
		r := one(t, newSet(t, builtin.Deps{Setting: tt.settings.read}, srv), assign("web_scrape", tt.config))
		res := call(t, r, `{"url":"`+srv.URL+`/large","formats":["markdown","html"]}`)
		got := scrapedFrom(t, res)
		if n := utf8.RuneCountInString(res.Text); n > tt.most || n < tt.most*9/10 || !got.Truncated || got.Markdown == "" || got.HTML == "" || got.Metadata.StatusCode != 200 {
			t.Errorf("%s: %d characters, truncated %t", name, n, got.Truncated)
		}
	}
}

func TestWebScrape_OnlyTheBeginningOfALargePageIsRead(t *testing.T) {
	t.Parallel()
	srv := pages(t)
	got := scrapedFrom(t, call(t, one(t, newSet(t, builtin.Deps{}, srv), assign("web_scrape", "")), `{"url":"`+srv.URL+`/padded"}`))
	if got.Markdown != "the beginning" || !got.Truncated {
		t.Errorf("%+v", got)
	}
}

// crawler returns web_scrape at a fake Firecrawl with the operator's key.
func crawler(t *testing.T, settings set, config string, d builtin.Deps) (hob.ToolRunner, *fakeweb.Firecrawl, *httptest.Server) {
	t.Helper()
	crawl := fakeweb.NewFirecrawl("key-of-the-operator")
	srv := httptest.NewServer(crawl)
	t.Cleanup(srv.Close)
	d.Firecrawl = builtin.Service{Key: "key-of-the-operator", BaseURL: srv.URL + "/v1"}
	d.Setting = settings.read
	return one(t, newSet(t, d), assign("web_scrape", config)), crawl, srv
}

func TestWebScrape_AsksFirecrawlWhereThereIsOne(t *testing.T) {
	t.Parallel()
	r, crawl, _ := crawler(t, nil, "", builtin.Deps{})
	res := call(t, r, `{"url":"https://example.com/a","formats":["links","html"],"only_main_content":false,"exclude_tags":["nav"],"wait_for":99999,"mobile":true}`)
	want := `{"html":"<h1>Page at https://example.com/a</h1><p>Read by Firecrawl.</p>","links":["https://example.com/a#more"],"metadata":{` +
		`"contentType":"text/html","description":"A page for tests","language":"en","sourceURL":"https://example.com/a","statusCode":200,` +
		`"title":"Page at https://example.com/a","url":"https://example.com/a"}}`
	if diff := cmp.Diff(hob.Result{Text: want, Action: hob.ActionWebScrape}, hob.Result{Text: strings.ReplaceAll(strings.ReplaceAll(res.Text, `\u003c`, "<"), `\u003e`, ">"), Action: res.Action, IsError: res.IsError, Free: res.Free}); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	asked := crawl.Requests()
	body := map[string]any{
		"url": "https://example.com/a", "formats": []any{"links", "html"}, "onlyMainContent": false, "excludeTags": []any{"nav"},
		"waitFor": 25000.0, "mobile": true, "timeout": 55000.0,
	}
	if diff := cmp.Diff(body, asked[0].Body); diff != "" || asked[0].Header.Get("Authorization") != "Bearer key-of-the-operator" {
		t.Errorf("asked as %s (-want +got):\n%s", asked[0].Header, diff)
	}
	for reply, want := range map[*fakeweb.Reply]string{
		{Status: 402, Body: `{"success":false,"error":"Payment required"}`}: `{"error":"Firecrawl answered with status 402: Payment required"}`,
		{Status: 500, Body: `{"success":false,"error":"oops"}`}:             `free {"error":"Firecrawl answered with status 500: oops"}`,
		{Status: 429}: `free {"error":"Firecrawl rate limit exceeded; try again later"}`,
		{Body: `{"success":false,"error":"blocked key-of-the-operator"}`}:     `free {"error":"Firecrawl could not read the page: blocked ` + hob.Mask + `"}`,
		{Body: `{"success":true,"data":[]}`}:                                  `free {"error":"Firecrawl could not read the page: no further information"}`,
		{Body: `{"success":true,"data":{"markdown":7}}`}:                      `free {"error":"Firecrawl answered with something that is no page"}`,
		{Body: `{"success":true,"data":{"links":"x","markdown":"y"}}`}:        `free {"error":"Firecrawl answered with something that is no page"}`,
		{Body: `{"success":true,"data":{"markdown":"y","metadata":"title"}}`}: `free {"error":"Firecrawl answered with something that is no page"}`,
		{Body: `<html>`}: `free {"error":"Firecrawl answered with something that is no page"}`,
	} {
		crawl.Next(*reply)
		res := call(t, r, `{"url":"https://example.com/a"}`)
		if text, free := strings.CutPrefix(want, "free "); res.Text != text || res.Free != free || !res.IsError || res.Action != hob.ActionWebScrape {
			t.Errorf("%+v: %+v", reply, res)
		}
	}
}

func TestWebScrape_TheOperatorsKeyGoesToNoAddressOfAWorkspace(t *testing.T) {
	t.Parallel()
	theirs := fakeweb.NewFirecrawl("")
	srv := serve(t, theirs.ServeHTTP)
	for key, want := range map[string]string{"": "", "key-of-the-workspace": "Bearer key-of-the-workspace"} {
		settings := set{"FIRECRAWL_API_BASE": srv.URL + "/v1", "FIRECRAWL_API_KEY": key}
		d := builtin.Deps{Firecrawl: builtin.Service{Key: "key-of-the-operator"}, Setting: settings.read}
		res := call(t, one(t, newSet(t, d, srv), assign("web_scrape", "")), `{"url":"https://example.com/"}`)
		asked := theirs.Requests()
		if got := asked[len(asked)-1].Header.Get("Authorization"); got != want || res.IsError {
			t.Errorf("with the key %q the workspace's address was sent %q: %+v", key, got, res)
		}
	}
	// An address of a workspace is judged as that of a tool.
	private := builtin.Deps{Setting: set{"FIRECRAWL_API_BASE": srv.URL + "/v1"}.read}
	before := len(theirs.Requests())
	if res := call(t, one(t, newSet(t, private), assign("web_scrape", "")), `{"url":"https://example.com/"}`); !res.IsError || len(theirs.Requests()) != before {
		t.Errorf("a private address of a workspace: %+v", res)
	}
}

// Where Firecrawl follows a link cannot be judged by us.
func TestWebScrape_WithAllowedHostsNothingElseIsReached(t *testing.T) {
	t.Parallel()
	out := pages(t)
	in := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/out" {
			http.Redirect(w, r, out.URL, http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "<p>inside</p>")
	})
	crawl := fakeweb.NewFirecrawl("k")
	fire := httptest.NewServer(crawl)
	t.Cleanup(fire.Close)
	d := builtin.Deps{Firecrawl: builtin.Service{Key: "k", BaseURL: fire.URL + "/v1"}}
	r := one(t, newSet(t, d, in, out), assign("web_scrape", fmt.Sprintf(`{"allowed_hosts":[%q]}`, in.Listener.Addr())))
	if got := scrapedFrom(t, call(t, r, `{"url":"`+in.URL+`"}`)); got.Markdown != "inside" {
		t.Errorf("%+v", got)
	}
	for _, u := range []string{out.URL, in.URL + "/out", out.URL + "/x.png"} {
		if res := call(t, r, `{"url":"`+u+`"}`); !res.IsError {
			t.Errorf("%s: %+v", u, res)
		}
	}
	if n := len(crawl.Requests()); n != 0 {
		t.Errorf("Firecrawl was asked %d times", n)
	}
}

func TestWebScrape_OwnLimitPerWorkspace(t *testing.T) {
	t.Parallel()
	r, crawl, _ := crawler(t, set{"FIRECRAWL_RATE_LIMIT_PER_MINUTE": "1"}, "", builtin.Deps{})
	call(t, r, `{"url":"https://example.com/a"}`)
	if res := call(t, r, `{"url":"https://example.com/b"}`); !res.Free || !strings.Contains(res.Text, "Firecrawl rate limit of this workspace (1 requests a minute) reached") || len(crawl.Requests()) != 1 {
		t.Errorf("%+v", res)
	}
}

// eyes is a provider that describes images.
type eyes struct {
	seen    atomic.Int32
	now     atomic.Int32
	most    atomic.Int32
	wait    time.Duration
	failing bool
}

func (e *eyes) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return func(yield func(hob.Delta, error) bool) {
		e.seen.Add(1)
		if n := e.now.Add(1); n > e.most.Load() {
			e.most.Store(n)
		}
		defer e.now.Add(-1)
		select {
		case <-time.After(e.wait):
		case <-ctx.Done():
			yield(hob.Delta{}, &hob.ProviderError{Class: hob.ClassCancelled, Err: ctx.Err()})
			return
		}
		if e.failing {
			yield(hob.Delta{}, &hob.ProviderError{Class: hob.ClassModelError, Message: "blind"})
			return
		}
		p := r.Messages[0].Parts[1]
		_ = yield(hob.Delta{Text: fmt.Sprintf("A %s of %d bytes.\nSecond line.", p.MediaType, len(p.Data))}, nil) &&
			yield(hob.Delta{Finish: hob.FinishStop, Usage: &hob.Usage{PromptTokens: 100, CompletionTokens: 10}}, nil)
	}
}

func (e *eyes) open(_ context.Context, _ hob.WorkspaceID, model string) (hob.Model, error) {
	if model == "nobody/blind" {
		return hob.Model{}, hob.Errorf(hob.Invalid, "nobody serves it")
	}
	return hob.Model{Provider: e, Name: "openai", Model: model, Price: &hob.Price{Input: 10, Output: 100}}, nil
}

// gallery serves images, and a page that shows some of them.
func gallery(t *testing.T) *httptest.Server {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/markdown")
			_, _ = fmt.Fprintf(w, "Before ![one](http://%[1]s/1.png) and ![again](http://%[1]s/1.png)\n\n| ![two](http://%[1]s/2.png) |\n|---|\n| x |\n\n![text](http://%[1]s/text)\n![large](http://%[1]s/large)", r.Host)
		case "/text":
			_, _ = io.WriteString(w, "no image")
		case "/large":
			_, _ = w.Write(picture.Bytes())
			_, _ = w.Write(make([]byte, 5<<20))
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write(picture.Bytes())
		}
	})
}

func TestWebScrape_DescribesImages(t *testing.T) {
	t.Parallel()
	srv := gallery(t)
	e := &eyes{wait: 50 * time.Millisecond}
	r := one(t, newSet(t, builtin.Deps{Models: e.open}, srv), assign("web_scrape", ""))
	res := call(t, r, `{"url":"`+srv.URL+`/page","include_images":true}`)
	got := scrapedFrom(t, res).Markdown
	h := srv.Listener.Addr().String()
	seen := "\n\n> A image/png of %s bytes.\n> Second line.\n"
	size := strings.TrimSuffix(strings.SplitN(got, "image/png of ", 2)[1], "")
	size, _, _ = strings.Cut(size, " ")
	want := "Before ![one](http://" + h + "/1.png) and ![again](http://" + h + "/1.png)" + fmt.Sprintf(seen, size) + "\n| ![two](http://" + h + "/2.png) |\n|---|\n| x |" +
		fmt.Sprintf(seen, size) + "\n![text](http://" + h + "/text)\n\n> [Image could not be analyzed]\n\n![large](http://" + h + "/large)\n\n> [Image could not be analyzed]"
	if diff := cmp.Diff(squeezed(want), squeezed(got)); diff != "" {
		t.Errorf("markdown (-want +got):\n%s", diff)
	}
	if e.seen.Load() != 2 || len(res.Used) != 2 || res.IsError {
		t.Fatalf("the model saw %d images, used %d", e.seen.Load(), len(res.Used))
	}
	use := hob.UsageEntry{
		Action: hob.ActionModelCall, Quantity: 1, Component: hob.ComponentVision, Model: "gpt-4.1-mini", Step: 1,
		Usage: hob.Usage{PromptTokens: 100, CompletionTokens: 10, TotalTokens: 110, Cost: hob.Dollars(0.002)},
	}
	if diff := cmp.Diff(use, res.Used[0]); diff != "" {
		t.Errorf("use (-want +got):\n%s", diff)
	}
}

func squeezed(s string) string {
	for strings.Contains(s, "\n\n\n") {
		s = strings.ReplaceAll(s, "\n\n\n", "\n\n")
	}
	return s
}

func TestWebScrape_TheAddressOfAnImageIsDescribed(t *testing.T) {
	t.Parallel()
	srv := gallery(t)
	e := &eyes{}
	s := newSet(t, builtin.Deps{Models: e.open}, srv)
	got := scrapedFrom(t, call(t, one(t, s, assign("web_scrape", "")), `{"url":"`+srv.URL+`/x.PNG?size=2"}`))
	if got.Metadata.Type != "image" || got.Metadata.SourceURL != srv.URL+"/x.PNG?size=2" || !strings.Contains(got.Markdown, "\n\n> A image/png of ") {
		t.Errorf("%+v", got)
	}
	failing := one(t, newSet(t, builtin.Deps{Models: (&eyes{failing: true}).open}, srv), assign("web_scrape", ""))
	none := one(t, newSet(t, builtin.Deps{Models: e.open, Setting: set{"VISION_MODEL": "nobody/blind"}.read}, srv), assign("web_scrape", ""))
	for name, r := range map[string]hob.ToolRunner{"the model fails": failing, "nobody serves it": none} {
		res := call(t, r, `{"url":"`+srv.URL+`/x.png"}`)
		if got := scrapedFrom(t, res); !strings.HasSuffix(got.Markdown, "> [Image could not be analyzed]") || !res.IsError || !res.Free {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func TestWebScrape_ImagesAreBoundedInNumberAndAtOnce(t *testing.T) {
	t.Parallel()
	srv := gallery(t)
	var b strings.Builder
	for i := range 12 {
		fmt.Fprintf(&b, "![i](%s/%d.png)\n\n", srv.URL, i)
	}
	for _, tt := range []struct {
		settings   set
		seen, most int32
	}{{nil, 10, 3}, {set{"WEB_SCRAPE_MAX_IMAGES": "4", "VISION_MAX_WORKERS": "1"}, 4, 1}} {
		e := &eyes{wait: 30 * time.Millisecond}
		r, crawl, _ := crawler(t, tt.settings, "", builtin.Deps{Models: e.open})
		crawl.Next(fakeweb.Reply{Body: string(must(json.Marshal(map[string]any{"success": true, "data": map[string]any{"markdown": b.String()}})))})
		// The images are fetched by Hob itself, from where the guard lets nobody go but this test's server.
		res := call(t, r, `{"url":"https://example.com/","include_images":true}`)
		if strings.Count(scrapedFrom(t, res).Markdown, "> [Image could not be analyzed]") != int(tt.seen) || e.seen.Load() != 0 {
			t.Errorf("private images: %s", res.Text)
		}
		page := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/markdown")
			_, _ = io.WriteString(w, b.String())
		})
		open := one(t, newSet(t, builtin.Deps{Models: e.open, Setting: tt.settings.read}, srv, page), assign("web_scrape", ""))
		call(t, open, `{"url":"`+page.URL+`","include_images":true}`)
		if e.seen.Load() != tt.seen || e.most.Load() != tt.most {
			t.Errorf("%v: %d images, %d at once; want %d, %d", tt.settings, e.seen.Load(), e.most.Load(), tt.seen, tt.most)
		}
	}
}

func TestWebScrape_ACancelledCallIsAnError(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	srv := hang(t, arrived)
	r := one(t, newSet(t, builtin.Deps{}, srv), assign("web_scrape", ""))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := r.Call(ctx, callOf(r, `{"url":"`+srv.URL+`"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
