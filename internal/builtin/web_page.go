package builtin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"hob"
	"hob/internal/egress"
)

const (
	// maxPage is how many bytes of a page are read.
	maxPage = 2 << 20
	// pageTimeout bounds making text of a page.
	pageTimeout = 10 * time.Second
	// maxPages is how many pages are made into text at once; of those with largePage bytes or more it is one.
	maxPages  = 4
	largePage = 256 << 10

	mobileAgent = "Mozilla/5.0 (Linux; Android 14; Mobile) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36 (compatible; hob)"
	pageAccept  = "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,application/json;q=0.8,application/xml;q=0.8,*/*;q=0.1"
)

// pageFacts are a page's metadata.
type pageFacts struct {
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	Language    string `json:"language,omitempty"`
	SourceURL   string `json:"sourceURL"` // as it was asked for
	URL         string `json:"url"`       // where redirects led
	StatusCode  int    `json:"statusCode"`
	ContentType string `json:"contentType"`
}

// fetch reads a page without Firecrawl: no script of it is run.
func (t *webScrape) fetch(ctx context.Context, c hob.Call, in *scrapeArgs) (*scraped, *hob.Result, error) {
	header := http.Header{"Accept": {pageAccept}}
	if in.Mobile {
		header.Set("User-Agent", mobileAgent)
	}
	res, err := t.set.deps.Egress.Do(ctx, egress.Request{
		Pool: t.pool, Method: http.MethodGet, URL: in.URL, Header: header, Timeout: scrapeTimeout, MaxBody: maxPage,
		Redirects: egress.MaxRedirects, AllowedHosts: t.limits.hosts, BeginBy: c.BeginBy,
	})
	if err != nil {
		if gone := cancelled(ctx, c.Name); gone != nil {
			return nil, nil, gone
		}
		t.set.noAnswer(c, err, asItIs)
		fault := free("%s", transportText(err, http.MethodGet))
		fault.Note = noteOf(err, asItIs)
		return nil, fault, nil
	}
	if res.Status < 200 || res.Status >= 300 {
		fault := errorJSON("the page answered with status %d (%s)", res.Status, cmp.Or(http.StatusText(res.Status), "unknown"))
		fault.Free = res.Status >= 500 || res.Status == http.StatusTooManyRequests
		return nil, &fault, nil
	}
	kind, full := pageType(res)
	facts := pageFacts{SourceURL: in.URL, URL: res.URL, StatusCode: res.Status, ContentType: full}
	switch {
	case kind == "text/html", kind == "application/xhtml+xml":
	case isTextType(kind):
		return &scraped{plainPage(in, decoded(res.Body, full), facts), res.Truncated}, nil, nil
	default:
		fault := errorJSON("%s cannot be read as a page; only HTML and plain text can", shorten(kind))
		return nil, &fault, nil
	}
	page, err := t.set.htmlPage(ctx, in, decoded(res.Body, full), facts)
	if err != nil {
		if gone := cancelled(ctx, c.Name); gone != nil {
			return nil, nil, gone
		}
		fault := errorJSON("%s", messageOf(err))
		return nil, &fault, nil
	}
	return &scraped{page, res.Truncated}, nil, nil
}

// pageType is the media type of an answer, alone and as it was told; where none was told, what the body looks like.
func pageType(res *egress.Response) (kind, full string) {
	full = cmp.Or(res.Header.Get("Content-Type"), http.DetectContentType(res.Body))
	kind, _, err := mime.ParseMediaType(full)
	if err != nil {
		kind, _, _ = strings.Cut(full, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	full, _ = cut(strings.ToValidUTF8(full, "\ufffd"), maxHeaderShown)
	return kind, full
}

// decoded is a page as valid UTF-8, from the charset that the answer, a byte order mark or the page itself names.
func decoded(body []byte, contentType string) string {
	coding, _, certain := charset.DetermineEncoding(body, contentType)
	if !certain && utf8.Valid(body) {
		return strings.TrimPrefix(string(body), "\ufeff")
	}
	if text, err := coding.NewDecoder().Bytes(body); err == nil {
		body = text
	}
	return strings.ToValidUTF8(strings.TrimPrefix(string(body), "\ufeff"), "\ufffd")
}

// plainPage is the result for a text that is no HTML: it is its own Markdown.
func plainPage(in *scrapeArgs, text string, facts pageFacts) []member {
	var page []member
	for _, f := range pageFormats {
		if !slices.Contains(in.Formats, f) && (f != "markdown" || !in.IncludeImages) {
			continue
		}
		value := encode(text)
		switch f {
		case "html":
			value = encode("<pre>" + html.EscapeString(text) + "</pre>")
		case "links":
			value = json.RawMessage("[]")
		}
		page = append(page, member{f, value})
	}
	return append(page, member{"metadata", encode(facts)})
}

// htmlPage is the result for a page of HTML. Hostile pages end in an Invalid error: what they cost is bounded in size,
// nesting, elements and time, and a fault in a library is theirs alone.
func (s *Set) htmlPage(ctx context.Context, in *scrapeArgs, text string, facts pageFacts) ([]member, error) {
	base, err := url.Parse(facts.URL)
	if err != nil {
		return nil, hob.Errorf(hob.Invalid, "the page has no usable address")
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	const busy = "too many pages are being read; try again"
	places := []chan struct{}{s.pages}
	if len(text) >= largePage {
		places = []chan struct{}{s.largePages, s.pages}
	}
	leave := func() {}
	for _, place := range places {
		select {
		case place <- struct{}{}:
			before := leave
			leave = func() { <-place; before() }
		case <-ctx.Done():
			leave()
			return nil, hob.Errorf(hob.Invalid, busy)
		}
	}
	type outcome struct {
		page []member
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		defer leave() // not before the work has ended, even where nobody waits for it
		if len(text) >= largePage {
			defer debug.FreeOSMemory() // or the tree would stay with this process for minutes
		}
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o = outcome{err: hob.Errorf(hob.Invalid, "the page could not be made into text")}
			}
			done <- o
		}()
		o.page, o.err = readHTML(ctx, in, text, base, facts)
	}()
	select {
	case o := <-done:
		return o.page, o.err
	case <-ctx.Done():
		return nil, hob.Errorf(hob.Invalid, "the page could not be made into text within %s", pageTimeout)
	}
}

// htmlBytes renders nothing but what a reader of HTML needs.
func htmlBytes(render func(*bytes.Buffer) error) (string, error) {
	var b bytes.Buffer
	if err := render(&b); err != nil {
		return "", fmt.Errorf("write HTML: %w", err)
	}
	return b.String(), nil
}
