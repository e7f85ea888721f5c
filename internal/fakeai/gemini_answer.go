package fakeai

import (
	"encoding/json"
	"net/http"
	"strconv"
)

type geminiErrorBody struct {
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []any  `json:"details,omitempty"`
	} `json:"error"`
}

func geminiError(f fault) geminiErrorBody {
	var b geminiErrorBody
	b.Error.Code, b.Error.Message, b.Error.Status, b.Error.Details = f.Status, f.Message, f.Type, f.Details
	return b
}

func writeGeminiError(w http.ResponseWriter, status int, f fault) {
	f.Status = status
	if f.Type == "" || f.Type[0] > 'Z' { // words of another dialect
		f.Type = googleStatus(status)
	}
	writeJSON(w, status, geminiError(f))
}

// googleStatus is Google's word for a status.
func googleStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable, statusOverloaded:
		return "UNAVAILABLE"
	case http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	if status >= http.StatusInternalServerError {
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}

// typeStatus is the status that an error of a stream, which has no status of its own, stands for.
func typeStatus(kind string) int {
	switch kind {
	case "rate_limit_error":
		return http.StatusTooManyRequests
	case "overloaded_error":
		return http.StatusServiceUnavailable
	case "invalid_request_error":
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// geminiWords are the error of a reply in Google's words; the time to wait is a detail of it.
func geminiWords(r Reply) fault {
	f := fault{Status: r.Status, Message: r.Message}
	if f.Status == 0 {
		f.Status = typeStatus(r.Type)
	}
	f.Type = googleStatus(f.Status)
	if s, err := strconv.ParseFloat(r.Header.Get(retryAfterHeader), 64); err == nil {
		f.Details = []any{map[string]any{
			"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": strconv.FormatFloat(s, 'f', -1, 64) + "s",
		}}
	}
	return f
}

type geminiUsage struct {
	Prompt     int `json:"promptTokenCount"`
	Candidates int `json:"candidatesTokenCount,omitempty"`
	Thoughts   int `json:"thoughtsTokenCount,omitempty"`
	Cached     int `json:"cachedContentTokenCount,omitempty"`
	Total      int `json:"totalTokenCount"`
}

// gemini counts thoughts beside the answer, as Google does.
func (u Usage) gemini() geminiUsage {
	return geminiUsage{
		Prompt: u.Prompt, Candidates: u.Completion - u.Reasoning, Thoughts: u.Reasoning, Cached: u.Cached, Total: u.Prompt + u.Completion,
	}
}

var googleReasons = map[string]string{
	"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY",
}

func (r Reply) googleReason() string {
	if s, ok := googleReasons[r.finish()]; ok {
		return s
	}
	return r.finish()
}

type geminiAnswerPart struct {
	Text      *string     `json:"text,omitempty"`
	Thought   bool        `json:"thought,omitempty"`
	Call      *geminiCall `json:"functionCall,omitempty"`
	Signature string      `json:"thoughtSignature,omitempty"`
}

type geminiAnswerBody struct {
	Candidates []geminiCandidate `json:"candidates"`
	Usage      geminiUsage       `json:"usageMetadata"`
	Model      string            `json:"modelVersion"`
	ID         string            `json:"responseId"`
}

type geminiCandidate struct {
	Content struct {
		Parts []geminiAnswerPart `json:"parts,omitempty"`
		Role  string             `json:"role"`
	} `json:"content"`
	FinishReason string           `json:"finishReason,omitempty"`
	Index        int              `json:"index"`
	Grounding    *geminiGrounding `json:"groundingMetadata,omitempty"`
}

type geminiGrounding struct {
	Queries []string         `json:"webSearchQueries"`
	Chunks  []map[string]any `json:"groundingChunks"`
}

// grounding is what was searched for, nil where nothing was.
func (r Reply) grounding() *geminiGrounding {
	if len(r.Searches) == 0 {
		return nil
	}
	g := &geminiGrounding{}
	for _, s := range r.Searches {
		g.Queries = append(g.Queries, s.Query)
		for _, page := range s.Pages {
			g.Chunks = append(g.Chunks, map[string]any{"web": map[string]any{"uri": page.URL, "title": page.Title}})
		}
	}
	return g
}

func geminiFrame(p Parsed, r Reply, parts []geminiAnswerPart, finish string) geminiAnswerBody {
	c := geminiCandidate{FinishReason: finish}
	c.Content.Parts, c.Content.Role = parts, "model"
	u := r.usage(p).gemini()
	if finish != "" {
		c.Grounding = r.grounding()
	}
	if finish == "" { // the total grows; only the last one counts the answer
		u = geminiUsage{Prompt: u.Prompt, Total: u.Prompt}
	}
	return geminiAnswerBody{Candidates: []geminiCandidate{c}, Usage: u, Model: r.model(p), ID: "fake" + strconv.Itoa(p.Number)}
}

// geminiParts are the parts of an answer. What was thought is sealed on the first call or, without one, on the text.
func geminiParts(p Parsed, r Reply) []geminiAnswerPart {
	var parts []geminiAnswerPart
	for i := range r.Reasoning {
		parts = append(parts, geminiAnswerPart{Text: &r.Reasoning[i], Thought: true})
	}
	for i := range r.Text {
		parts = append(parts, geminiAnswerPart{Text: &r.Text[i]})
	}
	sealed := len(r.Reasoning) > 0 || generation(p.Model) >= 3
	for i, c := range r.Calls {
		part := geminiAnswerPart{Call: &geminiCall{ID: c.ID, Name: c.Name, Args: json.RawMessage(c.Arguments)}}
		if i == 0 && sealed {
			part.Signature = Signature
		}
		parts = append(parts, part)
	}
	if len(r.Calls) == 0 {
		empty := ""
		last := geminiAnswerPart{Text: &empty}
		if sealed {
			last.Signature = Signature
		}
		parts = append(parts, last)
	}
	return parts
}

// geminiEvents are the events of a streamed answer: one without a part, as the API often begins, then one part each, the
// last one with the finish reason.
func geminiEvents(p Parsed, r Reply) [][]byte {
	parts := geminiParts(p, r)
	events := make([][]byte, 0, len(parts)+1)
	events = append(events, event(mustJSON(geminiFrame(p, r, nil, ""))))
	for i := range parts {
		finish := ""
		if i == len(parts)-1 {
			finish = r.googleReason()
		}
		events = append(events, event(mustJSON(geminiFrame(p, r, parts[i:i+1], finish))))
	}
	return events
}

// geminiAnswer is an answer that is no stream.
func geminiAnswer(p Parsed, r Reply) any {
	if len(r.Text) > 1 {
		r.Text = []string{join(r.Text)}
	}
	if len(r.Reasoning) > 1 {
		r.Reasoning = []string{join(r.Reasoning)}
	}
	return geminiFrame(p, r, geminiParts(p, r), r.googleReason())
}

// geminiModels answers the list of models in Google's form.
func (s *Server) geminiModels(w http.ResponseWriter, r *http.Request) {
	if err := s.geminiKey(r); err != nil {
		f := asFault(err)
		writeGeminiError(w, f.Status, f)
		return
	}
	names := s.opts.Models
	if names == nil {
		names = []string{"gemini-fake"}
	}
	type row struct {
		Name    string   `json:"name"`
		Display string   `json:"displayName"`
		Input   int      `json:"inputTokenLimit"`
		Output  int      `json:"outputTokenLimit"`
		Methods []string `json:"supportedGenerationMethods"`
	}
	list := struct {
		Models []row `json:"models"`
	}{}
	window := 1_048_576
	if s.opts.Window > 0 {
		window = s.opts.Window
	}
	for _, n := range names {
		list.Models = append(list.Models, row{"models/" + n, n, window, 65_536, []string{"generateContent", "countTokens"}})
	}
	writeJSON(w, http.StatusOK, list)
}
