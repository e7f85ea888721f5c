package fakeai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Shape is how a stream of OpenAI's dialect brings its tool calls; servers in the field differ.
type Shape int

// The shapes.
const (
	Standard     Shape = iota // name and id first, arguments in pieces, one call after the other
	WholeCalls                // all calls complete in one delta
	NoIDs                     // calls without ids
	NoIndex                   // calls without index
	ObjectArgs                // arguments as an object, not as text
	Cumulative                // every piece repeats id, name and all arguments so far
	Legacy                    // the function_call of old
	StopWithCall              // finish_reason "stop" although there are calls
)

// Reply is what the model answers. The zero Reply is an empty answer.
type Reply struct {
	Reasoning []string // pieces; with Anthropic a signed thinking block
	Searches  []Search // what it searched the web for by itself, before it spoke
	Text      []string // pieces, one event each
	Calls     []Call
	Finish    string // OpenAI's spelling; "" = stop or tool_calls
	Usage     *Usage // nil = counted from the pieces
	Model     string // "" = as asked

	Status  int // of an error instead of an answer, where it is set
	Type    string
	Code    string
	Message string
	Header  http.Header // Retry-After and the like

	Shape    Shape
	Wait     time.Duration // before the answer
	Interval time.Duration // between two events
	// CutAfter ends the connection behind this many events, at once for a negative number. 0 = no cut.
	CutAfter int
	// ErrorAfter sends the error of Message, Type and Code inside the stream behind this many events. 0 = none.
	ErrorAfter int
	// GarbageAfter sends an event that is no JSON behind this many events, and goes on. 0 = none.
	GarbageAfter int
	// CutBytes ends the connection behind this many bytes of the stream. 0 = no cut.
	CutBytes    int
	PerByte     time.Duration // writes the stream byte by byte, at this interval
	Endless     bool          // goes on with pieces of text until the client leaves
	Hang        bool          // says no more behind its last event until the client leaves
	ContentType string        // of the stream, instead of text/event-stream
	Raw         []byte        // the whole stream as it is, instead of all events; empty = an empty body
}

// Search is one web search that the vendor made.
type Search struct {
	Query string
	Pages []Page
	Error string // Anthropic's code for why it failed
}

// Page is a page that was found.
type Page struct{ Title, URL string }

// Usage counts tokens.
type Usage struct {
	Prompt, Completion, Cached, Reasoning int
}

// Always answers the same.
func Always(r Reply) func(Parsed) Reply { return func(Parsed) Reply { return r } }

// Sequence answers its replies one after the other, by the number of the request, and the last one from then on.
func Sequence(replies ...Reply) func(Parsed) Reply {
	return func(p Parsed) Reply { return replies[min(p.Number, len(replies))-1] }
}

// Steps answers its replies by how far the turn under way is: the first one to a new message of the user, the next one
// behind one answer of the model, and so on. The last one holds from then on.
func Steps(replies ...Reply) func(Parsed) Reply {
	return func(p Parsed) Reply { return replies[min(p.Steps(), len(replies)-1)] }
}

// Text answers a text, one event per word.
func Text(text string) Reply { return Reply{Text: words(text)} }

func words(text string) []string {
	var out []string
	for text != "" {
		i := strings.IndexByte(text[1:], ' ')
		if i < 0 {
			return append(out, text)
		}
		out = append(out, text[:i+1])
		text = text[i+1:]
	}
	return out
}

// Tokens answers n tokens, one event each.
func Tokens(n int) Reply {
	r := Reply{Text: make([]string, n)}
	for i := range r.Text {
		r.Text[i] = " tok" + strconv.Itoa(i%10)
	}
	return r
}

// Calls asks for tools; several are parallel calls.
func Calls(calls ...Call) Reply { return Reply{Calls: calls} }

// ToolSteps asks n times, one step after the other, for the first tool that is offered, and then answers final. The
// arguments count the steps, so that no two are alike.
func ToolSteps(n int, final Reply) func(Parsed) Reply {
	return func(p Parsed) Reply {
		done := p.Results()
		if done >= n || len(p.Tools) == 0 || p.ToolChoice == "none" {
			return final
		}
		return Calls(Call{
			ID: fmt.Sprintf("call_%d_%d", len(p.Messages), done), Name: p.Tools[0].Name,
			Arguments: `{"step":` + strconv.Itoa(done+1) + `}`,
		})
	}
}

// Error answers an error status. Type and code are OpenAI's and Anthropic's usual ones for it.
func Error(status int, message string) Reply {
	return Reply{Status: status, Message: message, Type: errorType(status)}
}

// WithRetryAfter adds the header Retry-After.
func (r Reply) WithRetryAfter(value string) Reply {
	r.Header = r.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Retry-After", value)
	return r
}

func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case statusOverloaded:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

const statusOverloaded = 529

// usage are the counts of a reply: those it names, else a token per piece and four characters of the request.
func (r Reply) usage(p Parsed) Usage {
	if r.Usage != nil {
		return *r.Usage
	}
	u := Usage{Prompt: len(p.Body)/4 + 1, Completion: len(r.Text) + len(r.Reasoning), Reasoning: len(r.Reasoning)}
	for _, c := range r.Calls {
		u.Completion += (len(c.Name)+len(c.Arguments))/4 + 1
	}
	return u
}

func (r Reply) finish() string {
	switch {
	case r.Finish != "":
		return r.Finish
	case len(r.Calls) > 0 && r.Shape == Legacy:
		return "function_call"
	case len(r.Calls) > 0 && r.Shape != StopWithCall:
		return "tool_calls"
	}
	return "stop"
}

func (r Reply) model(p Parsed) string {
	if r.Model != "" {
		return r.Model
	}
	return p.Model
}

// garbage is an event that is no JSON.
const garbage = "data: {\"broken\": \n\n"

// deliver writes a stream, with the pauses and breaks that the reply asks for.
func (r Reply) deliver(w http.ResponseWriter, req *http.Request, s stream) {
	out := http.NewResponseController(w)
	if r.CutAfter < 0 {
		cut(out)
		return
	}
	kind := r.ContentType
	if kind == "" {
		kind = "text/event-stream; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	if r.Raw != nil {
		s.events, s.failure = [][]byte{r.Raw}, nil
	}
	p := &pen{r: r, w: w, out: out, req: req}
	if p.all(s) && r.Hang {
		<-req.Context().Done()
	}
}

// pen writes the events of one stream.
type pen struct {
	r     Reply
	w     http.ResponseWriter
	out   *http.ResponseController
	req   *http.Request
	bytes int
}

// all writes every event. It is false where the stream ended before.
func (p *pen) all(s stream) bool {
	if !p.slow() && s.more == nil { // in one write
		_, _ = p.w.Write(bytes.Join(s.events, nil))
		return true
	}
	for i, e := range s.events {
		if p.r.ErrorAfter > 0 && i == p.r.ErrorAfter {
			p.write(s.failure)
			return false
		}
		if p.r.GarbageAfter > 0 && i == p.r.GarbageAfter && !p.write([]byte(garbage)) {
			return false
		}
		if i > 0 && !pause(p.req, p.r.Interval) || !p.write(e) {
			return false
		}
		if p.r.CutAfter == i+1 {
			cut(p.out)
			return false
		}
	}
	for n := 0; s.more != nil; n++ {
		if !pause(p.req, p.r.Interval) || !p.write(s.more(n)) {
			return false
		}
	}
	return true
}

// slow says whether the reply wants more than one write.
func (p *pen) slow() bool {
	r := p.r
	return r.Interval > 0 || r.PerByte > 0 || r.CutAfter > 0 || r.CutBytes > 0 || r.ErrorAfter > 0 || r.GarbageAfter > 0 || r.Hang
}

// write sends an event. It is false when the client has gone, or the stream was cut within the event.
func (p *pen) write(e []byte) bool {
	last := false
	if left := p.r.CutBytes - p.bytes; p.r.CutBytes > 0 && left <= len(e) {
		e, last = e[:left], true
	}
	p.bytes += len(e)
	step := len(e)
	if p.r.PerByte > 0 {
		step = 1
	}
	for from := 0; from < len(e); from += step {
		if !pause(p.req, p.r.PerByte) {
			return false
		}
		if _, err := p.w.Write(e[from : from+step]); err != nil {
			return false
		}
		if p.out.Flush() != nil {
			return false
		}
	}
	if last {
		cut(p.out)
	}
	return !last
}

// cut ends the connection under the client.
func cut(out *http.ResponseController) {
	if conn, _, err := out.Hijack(); err == nil {
		_ = conn.Close()
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null") // every value given here can be encoded
	}
	return b
}
