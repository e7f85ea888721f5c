package fakeweb

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Firecrawl plays POST /v1/scrape of api.firecrawl.dev. An empty key is a server that one runs by oneself: it asks for
// none.
type Firecrawl struct{ recorder }

// NewFirecrawl makes one that takes a single key.
func NewFirecrawl(key string) *Firecrawl { return &Firecrawl{recorder{key: key}} }

// ServeHTTP answers for a page that follows from its address.
func (f *Firecrawl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/scrape" {
		http.Error(w, "Cannot "+r.Method+" "+r.URL.Path, http.StatusNotFound)
		return
	}
	if given := r.Header.Get("Authorization"); f.key != "" && given != "Bearer "+f.key {
		f.take(r)
		answer(w, http.StatusUnauthorized, map[string]any{"success": false, "error": "Unauthorized: Invalid token " + strings.TrimPrefix(given, "Bearer ")})
		return
	}
	body, queued := f.take(r)
	if queued != nil {
		queued.send(w, r)
		return
	}
	if why := firecrawlFault(body); why != "" {
		answer(w, http.StatusBadRequest, map[string]any{"success": false, "error": "Bad Request", "details": why})
		return
	}
	address, _ := body["url"].(string)
	data := map[string]any{"metadata": map[string]any{
		"title": "Page at " + address, "description": "A page for tests", "language": "en", "sourceURL": address, "url": address,
		"statusCode": http.StatusOK, "contentType": "text/html",
	}}
	for _, format := range formats(body) {
		switch format {
		case "markdown":
			data["markdown"] = fmt.Sprintf("# Page at %s\n\nRead by Firecrawl.", address)
		case "html":
			data["html"] = fmt.Sprintf("<h1>Page at %s</h1><p>Read by Firecrawl.</p>", address)
		case "links":
			data["links"] = []string{address + "#more"}
		}
	}
	answer(w, http.StatusOK, map[string]any{"success": true, "data": data})
}

// formats are those that were asked for; Markdown where none was.
func formats(body map[string]any) []string {
	list, _ := body["formats"].([]any)
	var names []string
	for _, f := range list {
		name, _ := f.(string)
		names = append(names, name)
	}
	if len(names) == 0 {
		return []string{"markdown"}
	}
	return names
}

// firecrawlFault is what Firecrawl says of a body that it does not take; "" where it does.
func firecrawlFault(body map[string]any) string {
	if body == nil {
		return "body is not valid JSON"
	}
	known := []string{"url", "formats", "onlyMainContent", "excludeTags", "includeTags", "waitFor", "mobile", "timeout", "headers"}
	for name := range body {
		if !slices.Contains(known, name) {
			return "Unrecognized key in body: " + name
		}
	}
	address, _ := body["url"].(string)
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "Invalid URL"
	}
	for _, f := range formats(body) {
		if !slices.Contains([]string{"markdown", "html", "rawHtml", "links", "screenshot"}, f) {
			return "Invalid enum value for formats: " + f
		}
	}
	wait, _ := body["waitFor"].(float64)
	timeout, given := body["timeout"].(float64)
	if given && wait > timeout/2 {
		return "waitFor must not exceed half of timeout"
	}
	return ""
}
