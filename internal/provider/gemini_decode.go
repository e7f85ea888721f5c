package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"hob"
)

// geminiDecoder reads the stream of the Gemini API. Every event is a whole response with the parts that are new; there is
// no mark behind the last one but its finish reason.
type geminiDecoder struct {
	text
	names    names
	thoughts []geminiThought
	calls    int
	size     int
	model    string
	ended    string // the finish reason as it was sent
	remark   string // what the API says about it
	blocked  bool   // the prompt was refused
	begun    bool   // a part or a finish reason was seen
	usage    *geminiUsage
	found    sources
	queries  []string
}

type geminiChunk struct {
	Candidates []geminiCandidate `json:"candidates"`
	Feedback   *struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *geminiUsage    `json:"usageMetadata"`
	Model string          `json:"modelVersion"`
	Error json.RawMessage `json:"error"`
}

type geminiCandidate struct {
	Index   int `json:"index"`
	Content *struct {
		Parts []geminiPart `json:"parts"`
	} `json:"content"`
	Grounding *struct {
		Queries []string `json:"webSearchQueries"`
		Chunks  []struct {
			Web struct {
				URI   string `json:"uri"`
				Title string `json:"title"`
			} `json:"web"`
		} `json:"groundingChunks"`
	} `json:"groundingMetadata"`
	FinishReason  string `json:"finishReason"`
	FinishMessage string `json:"finishMessage"`
}

type geminiPart struct {
	Text      string      `json:"text"`
	Thought   bool        `json:"thought"`
	Signature string      `json:"thoughtSignature"`
	Call      *geminiCall `json:"functionCall"`
}

type geminiCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiUsage struct {
	Prompt     int64 `json:"promptTokenCount"`
	ToolPrompt int64 `json:"toolUsePromptTokenCount"` // what the API's own tools read
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	Total      int64 `json:"totalTokenCount"`
}

func (u *geminiUsage) usage() *hob.Usage {
	return plausible(&hob.Usage{
		PromptTokens: u.Prompt + u.ToolPrompt, CompletionTokens: u.Candidates + u.Thoughts, ReasoningTokens: u.Thoughts,
		CachedTokens: u.Cached, TotalTokens: u.Total,
	})
}

func (d *geminiDecoder) attach(s *sink) { d.out = s }

func (d *geminiDecoder) gathered() int { return d.size }

func (d *geminiDecoder) event(data []byte) (bool, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return false, nil
	}
	if string(data) == doneMark { // some gateways add it
		return true, nil
	}
	if data[0] == '[' { // without alt=sse the stream is one list
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil {
			return false, errMalformed
		}
		for _, one := range list {
			if err := d.decode(one); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	return false, d.decode(data)
}

func (d *geminiDecoder) decode(data []byte) error {
	var c geminiChunk
	if err := unmarshal(data, &c); err != nil {
		return err
	}
	if present(c.Error) {
		e, _ := readVendorError(data)
		return &streamError{status: e.status(), vendorError: e}
	}
	if c.Model != "" {
		d.model = c.Model
	}
	if c.Usage != nil { // a total, in every event
		d.usage = c.Usage
	}
	if c.Feedback != nil && c.Feedback.BlockReason != "" {
		d.blocked = true
	}
	for i := range c.Candidates {
		if c.Candidates[i].Index != 0 {
			continue // one answer was asked for
		}
		if err := d.candidate(&c.Candidates[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *geminiDecoder) candidate(c *geminiCandidate) error {
	if c.Content != nil {
		for i := range c.Content.Parts {
			d.begun = true
			if err := d.part(&c.Content.Parts[i]); err != nil {
				return err
			}
		}
	}
	if g := c.Grounding; g != nil {
		for _, q := range g.Queries {
			if q != "" && !slices.Contains(d.queries, q) && len(d.queries) < maxSources {
				d.queries = append(d.queries, q)
			}
		}
		for i := range g.Chunks {
			d.found.add(g.Chunks[i].Web.Title, g.Chunks[i].Web.URI)
		}
	}
	if c.FinishReason != "" {
		d.begun = true
		d.ended, d.remark = c.FinishReason, c.FinishMessage
		d.hurry()
	}
	return nil
}

// afterEnd is how long a stream may stay open behind its finish reason. It is not cut at once: older models and some
// gateways send one with every event, or usage behind it.
const afterEnd = 2 * time.Second

// hurry shortens the silence that is waited for. What is held back goes first, for the first delta sets that time anew.
func (d *geminiDecoder) hurry() {
	d.flush()
	d.out.dog.limit = min(d.out.dog.limit, afterEnd)
}

func (d *geminiDecoder) part(p *geminiPart) error {
	if d.size += len(p.Signature); d.size > MaxCallBytes {
		return errCallsTooLong
	}
	switch {
	case p.Call != nil:
		return d.call(p)
	case p.Thought:
		if d.size += len(p.Text); d.size > MaxCallBytes {
			return errCallsTooLong
		}
		if p.Text != "" {
			d.addReasoning(p.Text)
		}
		d.think(p)
		return nil
	}
	if p.Signature != "" { // often on an empty text behind the answer
		d.thoughts = append(d.thoughts, geminiThought{Part: textPart, Signature: p.Signature})
	}
	if p.Text != "" {
		d.addAnswer([]byte(p.Text))
	}
	return nil
}

// think keeps a thought; its pieces are one thought until a signature ends it.
func (d *geminiDecoder) think(p *geminiPart) {
	if n := len(d.thoughts); n > 0 && d.thoughts[n-1].Part == thoughtPart && d.thoughts[n-1].Signature == "" {
		d.thoughts[n-1].Text += p.Text
		d.thoughts[n-1].Signature = p.Signature
		return
	}
	d.thoughts = append(d.thoughts, geminiThought{Part: thoughtPart, Text: p.Text, Signature: p.Signature})
}

// call passes a call on at once: it comes whole.
func (d *geminiDecoder) call(p *geminiPart) error {
	args := p.Call.Args
	if d.size += len(args); d.size > MaxCallBytes {
		return errCallsTooLong
	}
	text := ""
	if present(args) {
		text = string(args)
		if args[0] == '"' { // gateways that carry OpenAI's form over
			text = looseText(args)
		}
	}
	if p.Call.Name == "" && text == "" {
		return nil // no call
	}
	if p.Signature != "" {
		d.thoughts = append(d.thoughts, geminiThought{Part: signedCall, Call: d.calls, Signature: p.Signature})
	}
	d.calls++
	d.flush()
	d.out.emit(hob.Delta{Call: &hob.ModelCall{
		ID: p.Call.ID, Name: d.names.original(p.Call.Name), Arguments: strings.ToValidUTF8(text, "\uFFFD"),
	}})
	return nil
}

// geminiReasons are the finish reasons that mean something else than an end. Those of brokenAnswer are faults of the
// model: another try may succeed.
var (
	geminiReasons = map[string]string{
		"MAX_TOKENS": hob.FinishLength,
		"SAFETY":     hob.FinishContentFilter, "RECITATION": hob.FinishContentFilter, "BLOCKLIST": hob.FinishContentFilter,
		"PROHIBITED_CONTENT": hob.FinishContentFilter, "SPII": hob.FinishContentFilter, "LANGUAGE": hob.FinishContentFilter,
		"IMAGE_SAFETY": hob.FinishContentFilter, "IMAGE_PROHIBITED_CONTENT": hob.FinishContentFilter,
		"IMAGE_RECITATION": hob.FinishContentFilter,
	}
	brokenAnswer = map[string]bool{
		"MALFORMED_FUNCTION_CALL": true, "UNEXPECTED_TOOL_CALL": true, "TOO_MANY_TOOL_CALLS": true, "MALFORMED_RESPONSE": true,
	}
)

func (d *geminiDecoder) finish(torn error) error {
	d.flush()
	switch {
	case torn != nil && d.ended == "" && !d.blocked:
		if errors.Is(torn, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return torn
	case brokenAnswer[d.ended]:
		message := "the model ended its answer with " + d.ended
		if d.remark != "" {
			message += ": " + d.remark
		}
		return &streamError{status: http.StatusBadGateway, vendorError: vendorError{Message: message, Code: d.ended}}
	case !d.begun && !d.blocked:
		return errNoAnswer
	}
	if a := d.artefact(); a != nil {
		d.out.emit(hob.Delta{Artefact: a})
	}
	if len(d.queries)+len(d.found.list) > 0 { // which query found which page is not told
		d.out.emit(hob.Delta{Searches: []hob.WebSearch{{
			Query: strings.Join(d.queries, "; "), Results: append([]hob.WebResult{}, d.found.list...),
		}}})
	}
	last := hob.Delta{Finish: d.reason(), Model: d.model, Searched: len(d.queries)}
	if d.usage != nil {
		last.Usage = d.usage.usage()
	}
	d.out.emit(last)
	return nil
}

func (d *geminiDecoder) reason() string {
	if f, ok := geminiReasons[d.ended]; ok {
		return f
	}
	return finishReason("", d.calls, d.blocked)
}

// artefact is what goes back with the message, nil where nothing does.
func (d *geminiDecoder) artefact() json.RawMessage {
	if len(d.thoughts) == 0 {
		return nil
	}
	out, err := json.Marshal(d.thoughts)
	if err != nil {
		return nil // texts and numbers can be encoded
	}
	return out
}
