package hob

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Provider streams a model's answer. The sequence gives deltas as they come and ends with one that has Finish set; an
// error is the last element and is a *ProviderError. Breaking off the range ends the request. Retries before the first
// delta are the provider's; what comes after it is the caller's.
type Provider interface {
	Stream(ctx context.Context, r Request) iter.Seq2[Delta, error]
}

// Model is a model string resolved: who serves it and under which name.
type Model struct {
	Provider Provider
	Name     string // the provider: openai, anthropic, scripted …
	Model    string // as the provider names it
	Window   int    // context window in tokens
	Light    string // a model string: a lightweight model of the same provider, for summaries; "" = the model itself
	Price    *Price // nil where it is not known
	Effort   bool   // reasoning_effort is passed on to the model
	Search   bool   // its provider can search the web by itself
	// SearchAlone: only in requests without functions. SearchDomains: the searches can be held to domains.
	SearchAlone, SearchDomains bool
	// Count counts a text's tokens exactly as the model does. It is nil where the model's tokenizer is not known.
	Count func(text string) int
}

// ModelOpener resolves a model string with the provider keys of a workspace. The error is Invalid, with the way out, where
// nobody serves it.
type ModelOpener func(ctx context.Context, ws WorkspaceID, model string) (Model, error)

// Request is one model call.
type Request struct {
	Model    string // as the provider names it, without its own prefix
	System   string
	Messages []Message
	Tools    []ToolSpec
	// NoToolUse: the history has tool messages but this call may use none. Adapters whose API needs the list then send
	// Tools with tool use disabled; the others send none.
	NoToolUse       bool
	Temperature     *float64
	MaxTokens       int // 0 = the provider's default
	ResponseFormat  json.RawMessage
	ReasoningEffort ReasoningEffort
	WebSearch       *WebSearchOptions // set: let the provider search the web by itself
	Component       string            // what the call is for, as in the usage ledger; ComponentRun where ""
	Memo            *Memo             // nil = nothing is kept
	Script          string            // for the scripted provider
	Step            int               // 1-based; the scripted provider plays its turn of this number
}

// Memo is where an adapter may keep what the first messages of a run's requests look like in its form, so that a long
// history is not encoded anew for every step. It belongs to one run, and to messages that do not change: whoever changes
// one of them gives a new Memo with the next request.
type Memo struct {
	Owner any // who wrote Bytes; others pass it over
	Count int // of the messages in Bytes, the first of the request
	Bytes []byte
}

// Finish reasons, in one spelling for all providers.
const (
	FinishStop          = "stop"
	FinishToolCalls     = "tool_calls"
	FinishLength        = "length"
	FinishContentFilter = "content_filter"
)

// Delta is a piece of a model's answer. Calls come whole, once their arguments are complete.
type Delta struct {
	Text      string
	Reasoning string
	Call      *ModelCall
	Artefact  json.RawMessage // reasoning artefact to be sent back with the message
	Finish    string          // set on the last delta only
	Usage     *Usage          // on the last delta, where the provider told
	Model     string          // on the last delta: the model that answered, where the provider told
	Searches  []WebSearch     // what the provider searched the web for by itself, as it comes
	Searched  int             // on the last delta: how often the provider searched by its own count, 0 where it told none
}

// WebSearchOptions are the bounds of a provider's own search.
type WebSearchOptions struct {
	// Always: every answer is searched for, where the provider tells that from a search when the model wants one.
	Always         bool     `json:"always,omitempty"`
	MaxUses        int      `json:"max_uses,omitempty"`        // searches for one answer, where the provider takes such a bound; 0 = the adapter's own
	AllowedDomains []string `json:"allowed_domains,omitempty"` // nothing else is found; empty = everything
	BlockedDomains []string `json:"blocked_domains,omitempty"` // not beside AllowedDomains
}

// WebSearch is one search that a provider made by itself while it answered.
type WebSearch struct {
	Query   string      `json:"query,omitempty"` // "" where the provider does not tell
	Results []WebResult `json:"results"`
	Error   string      `json:"error,omitempty"` // the provider's word for why nothing came of it
}

// WebResult is a page that a search found.
type WebResult struct {
	Title string `json:"title,omitempty"`
	URL   string `json:"url"`
}

// ModelCall is a tool call as the model wrote it.
type ModelCall struct {
	ID        string // "" where the provider gave none
	Name      string
	Arguments string // the model's text, not yet judged
}

// ErrorClass sorts what providers answer, by status and typed code; words of a text count only where a vendor has no
// code for a prompt that is too long, and then whole sentences with their numbers.
type ErrorClass string

// The classes.
const (
	ClassRateLimit     ErrorClass = "rate_limit"       // 429 after retries
	ClassModelError    ErrorClass = "model_error"      // 5xx, resets, time-outs after retries
	ClassPromptTooLong ErrorClass = "prompt_too_long"  // the prompt exceeds the model's window
	ClassUnauthorized  ErrorClass = "unauthorized"     // key missing, wrong or without right
	ClassBadRequest    ErrorClass = "bad_request"      // the provider refused the request
	ClassCut           ErrorClass = "cut"              // the stream broke after its first delta
	ClassCancelled     ErrorClass = "cancelled"        // the caller's context ended
	ClassTooLarge      ErrorClass = "answer_too_large" // the answer is longer than the engine takes
)

// ProviderError is how a model call fails.
type ProviderError struct {
	Class      ErrorClass
	Status     int    // HTTP status, 0 where there was none
	Message    string // for people; holds no key
	RetryAfter time.Duration
	Err        error
}

// Error returns the message.
func (e *ProviderError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *ProviderError) Unwrap() error { return e.Err }
