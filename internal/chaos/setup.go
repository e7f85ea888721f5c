//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"hob"
)

// solo starts a world and one server on SQLite whose pipe is the world, and makes the agent. On an error nothing is left.
func solo(ctx context.Context, h *harness, set setting, p pace) (*world, *server, hob.AgentID, error) {
	w, err := newWorld(ctx, h, p)
	if err != nil {
		return nil, nil, "", err
	}
	set.pipe = w.addr
	s, err := newServer(ctx, h, set)
	if err != nil {
		w.close()
		return nil, nil, "", err
	}
	var agent hob.AgentID
	if _, err = s.serve(ctx); err == nil {
		agent, err = prepareAgent(ctx, s)
	}
	if err != nil {
		s.kill()
		w.close()
		return nil, nil, "", err
	}
	return w, s, agent, nil
}

// prepareAgent makes an agent with the three tools, once a server is ready.
func prepareAgent(ctx context.Context, s *server) (hob.AgentID, error) {
	api := newAPI()
	defer api.close()
	create := func(path string, body any) (string, error) {
		var made struct{ ID string }
		err := api.call(ctx, request{addr: s.addr, method: http.MethodPost, path: path, body: body}, &made)
		if err == nil && made.ID == "" {
			err = fmt.Errorf("POST %s: an answer without an id", path)
		}
		return made.ID, err
	}
	agent, err := create("/api/agents", map[string]any{"name": "chaos", "model": "openai/chaos"})
	if err != nil {
		return "", err
	}
	schema := json.RawMessage(`{"type":"object","required":["mark"],"properties":{"mark":{"type":"string"},"step":{"type":"integer"},"n":{"type":"integer"},"behind":{"type":"string"}}}`)
	for _, name := range []string{toolOnce, toolKeyed, toolRead} {
		tool, err := create("/api/tools", map[string]any{
			"name": name, "description": "A tool of the recovery class " + name + ".", "type": "http", "input_schema": schema,
			"config": map[string]any{"endpoint": "http://" + s.pipe + "/tool/" + name, "recovery": name},
		})
		if err != nil {
			return "", err
		}
		if _, err := create("/api/agents/"+agent+"/tools", map[string]any{"tool_type": "custom", "tool_name": name, "tool_id": tool}); err != nil {
			return "", err
		}
	}
	return hob.AgentID(agent), nil
}
