//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// What the tool is, for Hob and for the model.
const (
	toolName  = "lookup"
	toolAbout = "Looks up the price of an article by its number."
	toolPath  = "/lookup"
)

func toolSchema() map[string]any {
	return map[string]any{
		"type": "object", "required": []string{"step"},
		"properties": map[string]any{"step": map[string]any{"type": "integer"}},
	}
}

// condensePath is where the model is found that makes the summaries of conversations that grow too long.
const condensePath = "/condense/v1"

// summary is what it says of any conversation.
const summary = "The user asked many times what the articles of the shop cost, and was told each time. Nothing is left to do."

// toolServer answers the tool's calls, and, for the parts that need it, is a model that speaks when it is told to and one
// that makes summaries. It lives in the bench's own process: whoever calls it, Hob or the bench's clients, finds the same.
type toolServer struct {
	addr   string
	server *http.Server
	say    chan string // texts for the one stream of the model that listens; closed to end it
	mu     sync.Mutex
}

func startTools(ctx context.Context) (*toolServer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the tool server: %w", err)
	}
	t := &toolServer{addr: l.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+toolPath, lookup)
	mux.HandleFunc("POST /v1/chat/completions", t.speak)
	mux.HandleFunc("POST "+condensePath+"/chat/completions", condense)
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = t.server.Serve(l) }() // always ErrServerClosed, from stop
	return t, nil
}

func (t *toolServer) stop() { _ = t.server.Close() } // its connections are of no use to anybody any more

func (t *toolServer) endpoint() string { return "http://" + t.addr + toolPath }

// lookup is the tool.
func lookup(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Step int `json:"step"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"step":%d,"price":%d}`, in.Step, 100+in.Step)
}

// condense is the model that makes summaries.
func condense(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"condenser","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n",
		encode("<summary>"+summary+"</summary>"))
}

// listen makes the model's next stream say what is sent to the channel.
func (t *toolServer) listen() chan<- string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say = make(chan string)
	return t.say
}

// speak is the model that speaks when told to.
func (t *toolServer) speak(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	say := t.say
	t.mu.Unlock()
	if say == nil {
		http.Error(w, `{"error":{"message":"nobody has anything to say"}}`, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	send := func(delta, finish string) {
		fmt.Fprintf(w, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"on-demand","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
		_ = rc.Flush() // a reader that has left is noticed below
	}
	send(`{"role":"assistant","content":""}`, "null")
	for {
		select {
		case <-r.Context().Done():
			return
		case text, more := <-say:
			if !more {
				send(`{}`, `"stop"`)
				fmt.Fprint(w, "data: [DONE]\n\n")
				return
			}
			send(string(encode(map[string]string{"content": text})), "null")
		}
	}
}
