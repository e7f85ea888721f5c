package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"hob"
)

// UsualOllama is where an Ollama listens that nobody told otherwise: Config.FindOllama of a server.
const UsualOllama = "127.0.0.1:" + ollamaPort

// How an Ollama is looked for. One that was found is taken to stay for a while; one that was not may be started at any
// moment, and asking a closed port of this machine costs next to nothing.
const (
	ollamaFindTime   = 500 * time.Millisecond // of one look
	ollamaFoundFor   = 60 * time.Second
	ollamaMissingFor = 3 * time.Second
	maxOllamaList    = 1 << 20 // bytes of the list of models
)

// ollamaFound is what a look found.
type ollamaFound struct {
	found  bool
	models []string // those that can converse, the last changed first
}

// ollamaFinder looks for an Ollama on this machine and remembers what it found. A nil one finds nothing.
type ollamaFinder struct {
	clients Clients
	base    string // without the version
	now     hob.Clock

	mu    sync.Mutex // held during a look, so that there is one at a time
	until time.Time

	known sync.Mutex // over seen, which is read without waiting for a look
	seen  ollamaFound
}

func newOllamaFinder(c Config) *ollamaFinder {
	if strings.TrimSpace(c.OllamaHost) != "" || strings.TrimSpace(c.FindOllama) == "" || c.Clients == nil {
		return nil
	}
	f := &ollamaFinder{clients: c.Clients, base: strings.TrimSuffix(ollamaBase(c.FindOllama), "/v1"), now: c.Clock}
	if f.now == nil {
		f.now = hob.SystemClock
	}
	return f
}

// last is what the last look found. It never waits.
func (f *ollamaFinder) last() ollamaFound {
	if f == nil {
		return ollamaFound{}
	}
	f.known.Lock()
	defer f.known.Unlock()
	return f.seen
}

// find looks again if the last look is too long ago.
func (f *ollamaFinder) find(ctx context.Context) ollamaFound {
	if f == nil {
		return ollamaFound{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Before(f.until) {
		return f.last()
	}
	models, err := listOllama(ctx, f.clients, f.base)
	seen, keep := ollamaFound{found: err == nil, models: models}, ollamaFoundFor
	if err != nil {
		keep = ollamaMissingFor
	}
	if ctx.Err() != nil {
		return f.last() // whoever asked has left: that says nothing
	}
	f.until = f.now().Add(keep)
	f.known.Lock()
	defer f.known.Unlock()
	f.seen = seen
	return seen
}

// FindOllama looks for an Ollama at Config.FindOllama, so that the first model that needs it need not wait, and says
// where it is and which models it has, the last changed first. found is false where there is none, or where the operator
// configured one.
func (r *Registry) FindOllama(ctx context.Context) (base string, models []string, found bool) {
	seen := r.ollama.find(ctx)
	if !seen.found {
		return "", nil, false
	}
	return r.ollama.base, seen.models, true
}

// listOllama asks an Ollama for its models. Those that only make embeddings are left out.
func listOllama(ctx context.Context, clients Clients, base string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, ollamaFindTime)
	defer cancel()
	client, err := clients.OperatorClient(base)
	if err != nil {
		return nil, fmt.Errorf("look for an Ollama: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/tags", nil)
	if err != nil {
		return nil, fmt.Errorf("look for an Ollama: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("look for an Ollama: %w", err)
	}
	defer res.Body.Close()
	var list struct {
		Models *[]struct {
			Name    string `json:"name"`
			Details struct {
				Family string `json:"family"`
			} `json:"details"`
		} `json:"models"`
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOllamaList))
	if err != nil {
		return nil, fmt.Errorf("look for an Ollama: %w", err)
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Models == nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("look for an Ollama: %s answers, but not as one", base)
	}
	models := make([]string, 0, len(*list.Models))
	for _, m := range *list.Models {
		if m.Name != "" && !strings.Contains(m.Details.Family, "bert") {
			models = append(models, m.Name)
		}
	}
	return models, nil
}
