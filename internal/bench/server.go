//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// serviceKey is the key that hob serve is told to accept.
const serviceKey = "hob_bench_0123456789abcdef0123456789abcdef"

// server is a running hob serve on a data folder of its own.
type server struct {
	*process
	addr   string
	data   string
	clock  clock
	client *http.Client
	ready  time.Duration // from exec to ready
}

// setting is how a server is started.
type setting struct {
	data  string // the data folder; it may be there already
	model string // base address of the model, with /v1
	tool  string // host:port that tools may reach, and where summaries are made
	pprof string // address for profiles, where the server offers them
}

// serve starts hob serve with everything on but the rate limits, and waits until it is ready.
func (b *bench) serve(ctx context.Context, s setting) (*server, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	env := []string{
		"HOME=" + b.folder, "PATH=" + os.Getenv("PATH"), "HOB_RATE_LIMIT=off", "HOB_LOG=info,json", "HOB_DRAIN=5s",
		"OPENAI_BASE_URL=" + s.model, "OPENAI_API_KEY=bench", "HOB_EGRESS_ALLOW=" + s.tool,
		"OPENROUTER_BASE_URL=http://" + s.tool + condensePath, "OPENROUTER_API_KEY=bench", "HOB_COMPACTION_MODEL=openrouter/" + modelName,
	}
	if s.pprof != "" {
		env = append(env, "HOB_PPROF="+s.pprof)
	}
	began := b.clock.now()
	p, err := start(launch{
		name: "hob serve", bin: b.hobBin, env: env, log: s.data + ".log",
		args: []string{"serve", "--addr", addr, "--data", s.data, "--service-key", serviceKey},
	})
	if err != nil {
		return nil, err
	}
	v := &server{process: p, addr: addr, data: s.data, clock: b.clock, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: patience,
	}}
	if err := v.waitReady(ctx); err != nil {
		_ = p.stop() // the first error says more
		return nil, err
	}
	v.ready = b.clock.now() - began
	return v, nil
}

// waitReady asks /health/ready, every half a millisecond, until it answers 200.
func (v *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := listening(ctx, v.process, v.addr); err != nil {
		return err
	}
	for {
		status, _, err := v.call(ctx, http.MethodGet, "/health/ready", nil)
		if status == http.StatusOK {
			return nil
		}
		if gone := v.ended(); gone != nil {
			return gone
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("hob serve is not ready after %s: status %d, %w; its log ends with:\n%s", startTime, status, err, v.tail())
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// call makes one request of the API, for setting up.
func (v *server) call(ctx context.Context, method, path string, body any) (int, []byte, error) {
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(encode(body))
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+v.addr+path, in)
	if err != nil {
		return 0, nil, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+serviceKey)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := v.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return res.StatusCode, text, nil
}

// create posts a thing and gives its id.
func (v *server) create(ctx context.Context, path string, body any) (string, error) {
	status, text, err := v.call(ctx, http.MethodPost, path, body)
	if err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"id"`
	}
	if status != http.StatusCreated {
		return "", fmt.Errorf("POST %s: status %d: %s", path, status, clip(text))
	}
	if err := json.Unmarshal(text, &made); err != nil || made.ID == "" {
		return "", fmt.Errorf("POST %s: an answer without an id: %s", path, clip(text))
	}
	return made.ID, nil
}

// agent makes an agent on a model.
func (v *server) agent(ctx context.Context, name string) (string, error) {
	return v.create(ctx, "/api/agents", map[string]any{
		"name": name, "model": "openai/" + modelName, "system_prompt": systemPrompt,
	})
}

// window says how many tokens an agent's model can read.
func (v *server) window(ctx context.Context, agent string, tokens int) error {
	path := "/api/agents/" + agent
	status, text, err := v.call(ctx, http.MethodPatch, path, map[string]any{"settings": map[string]any{"context_window": tokens}})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("PATCH %s: status %d: %s", path, status, clip(text))
	}
	return err
}

// tool makes the HTTP tool.
func (v *server) tool(ctx context.Context, endpoint string) (string, error) {
	return v.create(ctx, "/api/tools", map[string]any{
		"name": toolName, "description": toolAbout, "type": "http", "input_schema": toolSchema(),
		"config": map[string]any{"endpoint": endpoint, "method": "POST"},
	})
}

// give gives the HTTP tool to an agent.
func (v *server) give(ctx context.Context, agent, tool string) error {
	_, err := v.create(ctx, "/api/agents/"+agent+"/tools", map[string]any{
		"tool_type": "custom", "tool_name": toolName, "tool_id": tool,
	})
	return err
}

// runRequest is a streamed run of an agent; session is "" for a new one.
func (v *server) runRequest(agent, session, message string) []byte {
	body := map[string]any{"message": message}
	if session != "" {
		body["session_id"] = session
	}
	return request{
		method: http.MethodPost, host: v.addr, path: "/api/agents/" + agent + "/run/stream", key: serviceKey,
		accept: "text/event-stream", body: encode(body),
	}.bytes()
}

// newData is the path of a data folder that is not there yet.
func (b *bench) newData(name string) string { return filepath.Join(b.folder, name) }

// baseURL is the model's address as OPENAI_BASE_URL wants it.
func baseURL(addr string) string { return "http://" + strings.TrimSuffix(addr, "/") + "/v1" }
