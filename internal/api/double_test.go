package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"hob"
	"hob/internal/api"
)

// steadyPieces is how many pieces the model "steady" says, one every few milliseconds.
const steadyPieces = 250

// player is the one double: a model that answers with fixed deltas.
type player struct {
	mu      sync.Mutex
	asked   []hob.Request
	once    sync.Once
	release chan struct{} // "slow" ends when it is closed
}

func (p *player) end() { p.once.Do(func() { close(p.release) }) }

func (p *player) requests() []hob.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]hob.Request(nil), p.asked...)
}

// Stream plays the deltas of r.Model.
func (p *player) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	p.mu.Lock()
	p.asked = append(p.asked, r)
	p.mu.Unlock()
	usage := &hob.Usage{PromptTokens: 3, CompletionTokens: 2, TotalTokens: 5}
	return func(yield func(hob.Delta, error) bool) {
		switch {
		case r.Model == "broken":
			yield(hob.Delta{}, &hob.ProviderError{Class: hob.ClassBadRequest, Status: 400, Message: "the model refused"})
			return
		case r.Model == "calls" && r.Step == 1 && !r.NoToolUse && len(r.Tools) > 0:
			call := &hob.ModelCall{ID: "call_one", Name: "clock", Arguments: `{"zone":"UTC"}`}
			_ = yield(hob.Delta{Call: call}, nil) && yield(hob.Delta{Finish: hob.FinishToolCalls, Usage: usage}, nil)
			return
		case r.Model == "twice" && r.Step == 1 && len(r.Tools) > 0:
			for i, zone := range []string{"UTC", "CET"} {
				call := &hob.ModelCall{ID: "call_" + strconv.Itoa(i), Name: "clock", Arguments: `{"zone":"` + zone + `"}`}
				if !yield(hob.Delta{Call: call}, nil) {
					return
				}
			}
			_ = yield(hob.Delta{Finish: hob.FinishToolCalls, Usage: usage}, nil)
			return
		case r.Model == "steady":
			for i := range steadyPieces {
				time.Sleep(5 * time.Millisecond)
				if ctx.Err() != nil || !yield(hob.Delta{Text: strings.Repeat(strconv.Itoa(i)+" ü\n", 1+i%40)}, nil) {
					return
				}
			}
		case r.Model == "long":
			piece := strings.Repeat("0123456789abcdef", 512)
			for range 150 {
				if ctx.Err() != nil || !yield(hob.Delta{Text: piece}, nil) {
					return
				}
			}
		}
		if r.Model == "slow" {
			if !yield(hob.Delta{Text: "Hello "}, nil) {
				return
			}
			select {
			case <-p.release:
			case <-ctx.Done():
				yield(hob.Delta{}, &hob.ProviderError{Class: hob.ClassCancelled, Message: "cancelled", Err: ctx.Err()})
				return
			}
		}
		_ = yield(hob.Delta{Text: "world\n\ndata: x"}, nil) && yield(hob.Delta{Finish: hob.FinishStop, Usage: usage}, nil)
	}
}

// clockSet offers the builtin tool clock to agents that have it.
type clockSet struct{}

func (clockSet) Tools(_ context.Context, g hob.Grant) ([]hob.ToolRunner, []string, error) {
	for _, a := range g.Assigned {
		if a.ToolName == "clock" {
			return []hob.ToolRunner{clock{}}, nil, nil
		}
	}
	return nil, nil, nil
}

type clock struct{}

func (clock) Spec() hob.ToolSpec {
	return hob.ToolSpec{
		Name: "clock", Description: "tells the time", Kind: hob.BuiltinTool, Ref: "builtin:clock", Recovery: hob.RecoverRead,
		Schema: json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"}}}`),
	}
}

func (clock) Call(context.Context, hob.Call) (hob.Result, error) {
	return hob.Result{Text: "12:00"}, nil
}

func builtins() []hob.Tool {
	schema := json.RawMessage(`{"type":"object"}`)
	return []hob.Tool{
		{Name: "clock", Description: "tells the time", InputSchema: schema, IsActive: true},
		{Name: "database_query", Description: "asks the database", InputSchema: schema, IsActive: true},
	}
}

func checkAssignment(_ context.Context, a hob.Assignment, _ *hob.Tool) (string, error) {
	if bytes.Contains(a.ConfigOverride, []byte("pg_catalog")) {
		return "", hob.Errorf(hob.Invalid, "System schema 'pg_catalog' is not allowed")
	}
	if bytes.Contains(a.ConfigOverride, []byte("planet")) {
		return "config_override.planet is no argument of the tool and has no effect", nil
	}
	if a.ToolName == "database_query" && !bytes.Contains(a.ConfigOverride, []byte(`["`)) {
		return "database_query will not work: its assignment lists no tables", nil
	}
	return "", nil
}

// unavailable misses something for the database alone.
func unavailable(_ context.Context, _ hob.WorkspaceID, t hob.Tool) string {
	if t.ID == "" && t.Name == "database_query" {
		return "no database is connected; set --project-database"
	}
	return ""
}

func checkURL(address string) error {
	if strings.Contains(address, "127.0.0.1") {
		return errors.New("the address is private; --egress-allow can open it")
	}
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		return errors.New("the scheme must be http or https")
	}
	return nil
}

// validateKey knows a key that is refused and one that cannot be asked about.
func validateKey(_ context.Context, k hob.ProviderKey) (valid bool, reason string, err error) {
	switch {
	case strings.HasPrefix(string(k.Key), "refused"):
		return false, "", hob.Errorf(hob.Invalid, "%s says 401", k.Provider)
	case strings.HasPrefix(string(k.Key), "nobody-there"):
		return false, "nobody answers", nil
	case strings.HasPrefix(string(k.Key), "broken"):
		return false, "", errors.New("a secret detail")
	}
	return true, "", nil
}

// providers are the server's own; the operator pays for some of them.
func providers() []api.Provider {
	return []api.Provider{{Name: "openai", Paid: true}, {Name: "gemini", Paid: true}, {Name: "anthropic"}, {Name: "ollama", Paid: true}, {Name: "scripted"}}
}
