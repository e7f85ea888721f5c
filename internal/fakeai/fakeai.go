// Package fakeai is a language model that costs nothing: an HTTP server that speaks OpenAI's chat completions, Anthropic's
// Messages and Google's Gemini API as the vendors do, checks every request as strictly as they do, and answers what a Go
// function says. Tests, end-to-end runs and the benchmark talk to it.
//
// It is a test double and never part of the program. It understands nothing of what it is asked, and where the vendors
// are lenient (an unknown parameter here, an empty text there) it is not.
package fakeai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// MaxBody bounds a request, in bytes.
const MaxBody = 64 << 20

// Dialect is the wire form of a request.
type Dialect string

// The dialects.
const (
	OpenAI    Dialect = "openai"
	Anthropic Dialect = "anthropic"
	Gemini    Dialect = "gemini"
)

// Parsed is a request that passed all checks.
type Parsed struct {
	Dialect      Dialect
	Number       int // 1 for the first request of the server, refused ones included
	Model        string
	System       string // all system texts, joined by blank lines
	Messages     []Message
	Tools        []Tool
	ToolChoice   string // auto, none, required (any in Anthropic's words) or a tool's name
	Stream       bool
	IncludeUsage bool // the stream is to end with usage; always so with Anthropic
	MaxTokens    int
	Tokens       int        // of the prompt; counted where the server has a Window
	Form         AnswerForm // the wanted form of answer
	Search       bool       // the vendor's own web search is wanted
	Header       http.Header
	Body         json.RawMessage
}

// AnswerForm is the form of answer that a request asks for. Its zero value is free text.
type AnswerForm struct {
	JSON   bool            // the answer must be JSON
	Schema json.RawMessage // and fit this schema
	Strict bool            // which the vendor enforces
}

// Message is a message without the dialect's forms. Tool results of Anthropic's user messages, and the function responses of
// Gemini's, are messages of role tool.
type Message struct {
	Role     string // user, assistant or tool
	Text     string
	Images   int
	Calls    []Call
	CallID   string // tool
	IsError  bool   // tool
	Thoughts int    // signed blocks sent back
	Searches int    // searches sent back
}

// Tool is an offered tool.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Call is a tool call; Arguments is the text as the model wrote it.
type Call struct {
	ID        string
	Name      string
	Arguments string
}

// Results counts the tool messages since the user's last message, which is how many calls of this turn were carried out.
func (p Parsed) Results() int {
	n := 0
	for i := len(p.Messages) - 1; i >= 0 && p.Messages[i].Role != "user"; i-- {
		if p.Messages[i].Role == "tool" {
			n++
		}
	}
	return n
}

// Steps counts the assistant messages since the user's last message.
func (p Parsed) Steps() int {
	n := 0
	for i := len(p.Messages) - 1; i >= 0 && p.Messages[i].Role != "user"; i-- {
		if p.Messages[i].Role == "assistant" {
			n++
		}
	}
	return n
}

// LastText is the text of the last message.
func (p Parsed) LastText() string {
	if len(p.Messages) == 0 {
		return ""
	}
	return p.Messages[len(p.Messages)-1].Text
}

// Options say how the server behaves.
type Options struct {
	Reply  func(Parsed) Reply // nil = Text("Hello from the fake model.")
	Key    string             // requests must bear it where it is set
	Models []string           // others do not exist, where it is set
	Extra  []string           // further top-level members that requests may have
	Keep   int                // how many requests are kept for Requests; 0 = 1,000
	Window int                // tokens of a prompt; longer ones are refused in the vendor's words. 0 = no bound
}

const defaultKeep = 1_000

// Server is the fake. It is an http.Handler; mount it at the root.
type Server struct {
	opts Options
	mux  *http.ServeMux

	mu       sync.Mutex
	number   int
	requests []Parsed
	refusals []string
}

// New makes a server.
func New(o Options) *Server {
	if o.Reply == nil {
		o.Reply = Always(Text("Hello from the fake model."))
	}
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.Models != nil {
		o.Models = slices.Clone(o.Models)
	}
	s := &Server{opts: o, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/chat/completions", s.serve(s.chatVoice()))
	s.mux.HandleFunc("POST /v1/messages", s.serve(s.messagesVoice()))
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("POST /v1beta/{collection}/{call}", s.serve(s.geminiVoice()))
	s.mux.HandleFunc("GET /v1beta/models", s.geminiModels)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeOpenAIError(w, http.StatusNotFound, fault{
			Message: "Invalid URL (" + r.Method + " " + r.URL.Path + ")", Type: "invalid_request_error",
		})
	})
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests are the requests that passed all checks, the newest Keep of them.
func (s *Server) Requests() []Parsed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Refusals are the messages of the requests that did not.
func (s *Server) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refusals)
}

func (s *Server) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	return s.number
}

func (s *Server) keep(p Parsed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, p)
	if over := len(s.requests) - s.opts.Keep; over > 0 {
		s.requests = slices.Delete(s.requests, 0, over)
	}
}

func (s *Server) refuse(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = append(s.refusals, f.Message)
}

// fault is why a request is refused; it is an error of all dialects.
type fault struct {
	Status  int
	Message string
	Type    string
	Param   string
	Code    string
	Details []any // of Google's errors
}

func (f fault) Error() string { return f.Message }

// asFault is the fault in err; any other error is a body that could not be read.
func asFault(err error) fault {
	var f fault
	if errors.As(err, &f) {
		return f
	}
	return fault{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: err.Error()}
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		return nil, fault{Status: http.StatusRequestEntityTooLarge, Type: "request_too_large", Message: "the request is too large"}
	}
	return body, nil
}

// models answers the list of models in OpenAI's form.
func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	if f, ok := s.bearer(r); !ok {
		writeOpenAIError(w, f.Status, f)
		return
	}
	names := s.opts.Models
	if names == nil {
		names = []string{"fake-model"}
	}
	type row struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := struct {
		Object string `json:"object"`
		Data   []row  `json:"data"`
	}{Object: "list"}
	for _, n := range names {
		list.Data = append(list.Data, row{ID: n, Object: "model", Created: created, OwnedBy: "fakeai"})
	}
	writeJSON(w, http.StatusOK, list)
}

// created is the time stamp of all answers; it never changes, so that they can be compared.
const created = 1_700_000_000

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that has gone is no fault
}

// pause waits, or is false when the client leaves first.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
