package fakeweb

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Exa plays POST /search of api.exa.ai.
type Exa struct{ recorder }

// NewExa makes one that takes a single key.
func NewExa(key string) *Exa { return &Exa{recorder{key: key}} }

// exaResult is a result as Exa writes it.
type exaResult struct {
	ID            string    `json:"id"`
	Title         string    `json:"title"`
	URL           string    `json:"url"`
	PublishedDate *string   `json:"publishedDate"`
	Author        string    `json:"author"`
	Score         float64   `json:"score"`
	Text          string    `json:"text,omitempty"`
	Highlights    []string  `json:"highlights,omitempty"`
	Scores        []float64 `json:"highlightScores,omitempty"`
}

// ServeHTTP answers a search with as many results as were asked for.
func (e *Exa) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/search" {
		answer(w, http.StatusNotFound, map[string]string{"error": "Not found", "tag": "NOT_FOUND"})
		return
	}
	if key := r.Header.Get("X-Api-Key"); key != e.key {
		e.take(r)
		answer(w, http.StatusUnauthorized, map[string]string{"requestId": "r0", "error": "x-api-key header is invalid: " + key, "tag": "INVALID_API_KEY"})
		return
	}
	body, queued := e.take(r)
	if queued != nil {
		queued.send(w, r)
		return
	}
	if why := exaFault(body); why != "" {
		answer(w, http.StatusBadRequest, map[string]string{"requestId": "r0", "error": why, "tag": "INVALID_REQUEST_BODY"})
		return
	}
	n := 10
	if asked, ok := body["numResults"].(float64); ok {
		n = int(asked)
	}
	results := make([]exaResult, n)
	for i := range results {
		results[i] = exaPage(body, i)
	}
	answer(w, http.StatusOK, map[string]any{
		"requestId": "r1", "resolvedSearchType": "neural", "results": results, "costDollars": map[string]any{"total": 0.005},
	})
}

// exaPage makes up the i-th page that is found.
func exaPage(body map[string]any, i int) exaResult {
	query, _ := body["query"].(string)
	host := "example.com"
	if only, ok := body["includeDomains"].([]any); ok && len(only) > 0 {
		host, _ = only[i%len(only)].(string)
	}
	r := exaResult{
		Title: fmt.Sprintf("%s, part %d", query, i+1), URL: fmt.Sprintf("https://%s/%d", host, i+1), Author: "A. Writer", Score: 1 / float64(i+1),
	}
	r.ID = r.URL
	if i%2 == 0 { // Exa does not know the date of every page
		date := fmt.Sprintf("2026-01-%02dT00:00:00.000Z", i+1)
		r.PublishedDate = &date
	}
	text := fmt.Sprintf("This is what page %d says about %s. ", i+1, query) + strings.Repeat("And so on, in many words. ", 250)
	contents, _ := body["contents"].(map[string]any)
	switch want := contents["text"].(type) {
	case bool:
		if want {
			r.Text = text
		}
	case map[string]any:
		r.Text = text
		if most, ok := want["maxCharacters"].(float64); ok {
			r.Text = text[:min(len(text), int(most))]
		}
	}
	if contents["highlights"] != nil && contents["highlights"] != false {
		r.Highlights, r.Scores = []string{fmt.Sprintf("page %d says about %s", i+1, query)}, []float64{0.5}
	}
	return r
}

// exaFault is what Exa says of a body that it does not take; "" where it does.
func exaFault(body map[string]any) string {
	if body == nil {
		return "Request body is not valid JSON"
	}
	known := []string{
		"query", "numResults", "type", "contents", "includeDomains", "excludeDomains", "startPublishedDate", "endPublishedDate", "category",
	}
	for name := range body {
		if !slices.Contains(known, name) {
			return "Unrecognized key: " + name
		}
	}
	if query, ok := body["query"].(string); !ok || query == "" {
		return "query is required"
	}
	kinds := []string{"auto", "neural", "keyword", "fast", "deep", "deep-reasoning"}
	if kind, ok := body["type"].(string); body["type"] != nil && (!ok || !slices.Contains(kinds, kind)) {
		return "Invalid enum value for type"
	}
	if n, ok := body["numResults"].(float64); body["numResults"] != nil && (!ok || n < 1 || n > 100) {
		return "numResults must be between 1 and 100"
	}
	return ""
}
