package client_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
)

// Every request that makes something is answered the same when it is repeated with its key, and anew without one.
func TestClient_ARepeatWithAnIdempotencyKeyMakesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	address, key := serve(t)
	c := open(t, address, key)
	name, model, about, kind := "helper", "scripted", "tells the weather", "http"
	agent := must[client.Agent](t)(c.CreateAgent(ctx, client.AgentInput{Name: &name, Model: &model})).ID
	for what, create := range map[string]func(key string) (any, error){
		"agent": func(key string) (any, error) {
			return c.CreateAgent(ctx, client.AgentInput{Name: &name, Model: &model, IdempotencyKey: key})
		},
		"tool": func(key string) (any, error) {
			return c.CreateTool(ctx, client.ToolInput{
				Name: &name, Description: &about, Type: &kind, InputSchema: json.RawMessage(`{"type":"object"}`),
				Config: &client.ToolConfigInput{Endpoint: "https://x.example"}, IdempotencyKey: key,
			})
		},
		"session": func(key string) (any, error) {
			return c.CreateSession(ctx, agent, client.SessionInput{IdempotencyKey: key})
		},
		"key": func(key string) (any, error) {
			return c.CreateKey(ctx, client.KeyInput{Name: name, IdempotencyKey: key})
		},
		"provider key": func(key string) (any, error) {
			return c.PutProviderKey(ctx, client.ProviderKeyInput{Provider: "box", BaseURL: "https://x.example/v1", IdempotencyKey: key})
		},
	} {
		first, again := must[any](t)(create("k")), must[any](t)(create("k"))
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("%s, repeated (-first +again):\n%s", what, diff)
		}
		if other, err := create(""); err == nil && cmp.Equal(first, other) {
			t.Errorf("%s without a key is answered as the first", what)
		}
	}
	in := client.AssignmentInput{ToolName: name, IdempotencyKey: "k"} // the tool that was made above
	first, again := must[client.Assignment](t)(c.Assign(ctx, agent, in)), must[client.Assignment](t)(c.Assign(ctx, agent, in))
	if first.ID != again.ID {
		t.Errorf("the assignment is %s, then %s", first.ID, again.ID)
	}
	in.ToolName = "other"
	_, err := c.Assign(ctx, agent, in)
	wantKind(t, err, hob.Unprocessable)
}

func TestCall_RepeatsACreationOnlyWithAKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int64{"k": 2, "": 1} {
		c, n := script(t, refuse(503, ""), refuse(500, ""))
		if _, err := c.CreateKey(t.Context(), client.KeyInput{Name: "k", IdempotencyKey: key}); err == nil || n.Load() != want {
			t.Errorf("with the key %q: %v after %d requests, want %d", key, err, n.Load(), want)
		}
	}
}
