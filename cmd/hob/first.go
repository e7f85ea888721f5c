package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"

	"hob"
	"hob/internal/agentsql"
	"hob/internal/api"
	"hob/internal/config"
)

// The demo agent, made with a new store.
const (
	demoName   = "demo"
	demoModel  = "scripted/demo"
	demoPrompt = "You answer questions about a small shop from its database. Look things up with SQL before you answer."
)

// shownKey is how much of an operator's service key is kept for telling keys apart; a short key shows less.
const shownKey = 4

// firstStart makes what a new store needs: the service key, and the demo agent. The key is returned where it was made
// just now, to be printed this once.
func firstStart(ctx context.Context, c config.Config, s hob.Store, log *slog.Logger) (made hob.Secret, err error) {
	by := hob.System(hob.DefaultWorkspace)
	keys, err := s.Keys(ctx, by)
	if err != nil {
		return "", fmt.Errorf("look for keys: %w", err)
	}
	fresh, first := len(keys) == 0, false
	switch {
	case c.ServiceKey != "":
		first, err = acceptKey(ctx, s, c.ServiceKey, log)
	case fresh:
		made, first, err = firstKey(ctx, c.Data, s)
	}
	if err != nil || !fresh || !first {
		return "", err // of servers that start together on a new store, the one that made the key makes the demo
	}
	return made, makeDemo(ctx, c, s)
}

// acceptKey makes the operator's key known to the store. One that was revoked stays so. first: it was not known before.
func acceptKey(ctx context.Context, s hob.Store, key hob.Secret, log *slog.Logger) (first bool, err error) {
	sum := sha256.Sum256([]byte(key))
	known, err := s.KeyByHash(ctx, sum[:])
	switch {
	case err == nil && !known.RevokedAt.IsZero():
		log.Warn("HOB_SERVICE_KEY is a key that was revoked; it is not accepted", slog.String("key", string(known.ID)))
		return false, nil
	case err == nil:
		return false, nil
	case hob.KindOf(err) != hob.NotFound:
		return false, fmt.Errorf("look up HOB_SERVICE_KEY: %w", err)
	}
	prefix := ""
	if len(key) >= 4*shownKey {
		prefix = string(key[:shownKey])
	}
	return createServiceKey(ctx, s, "HOB_SERVICE_KEY", prefix, sum[:])
}

// firstKey makes the first service key. The file comes first: should this start die before the store knows the key, the
// next one takes it from there.
func firstKey(ctx context.Context, dir string, s hob.Store) (key hob.Secret, first bool, err error) {
	if key, err = readServiceKey(dir); err != nil {
		return "", false, err
	}
	if key == "" {
		secret, _, _ := api.NewSecret()
		key = hob.Secret(secret)
		if err := writeServiceKey(dir, key); err != nil {
			return "", false, err
		}
	}
	sum := sha256.Sum256([]byte(key))
	first, err = createServiceKey(ctx, s, "first key", string(key[:min(len(key)/4, len("hob_")+8)]), sum[:])
	return key, first, err
}

// createServiceKey is false where another server of the same database was faster with the same key.
func createServiceKey(ctx context.Context, s hob.Store, name, prefix string, hash []byte) (first bool, err error) {
	_, err = s.CreateKey(ctx, hob.System(hob.DefaultWorkspace), hob.Key{
		Workspace: hob.DefaultWorkspace, Name: name, Prefix: prefix, Service: true, Scopes: []hob.Scope{hob.ScopeAdmin},
	}, hash)
	if hob.KindOf(err) == hob.Conflict {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make the service key known: %w", err)
	}
	return true, nil
}

// makeDemo makes the agent that a newcomer talks to first, with the sample shop's tables.
func makeDemo(ctx context.Context, c config.Config, s hob.Store) error {
	by := hob.System(hob.DefaultWorkspace)
	prompt := demoPrompt
	a, err := s.CreateAgent(ctx, by, hob.Agent{
		Workspace: hob.DefaultWorkspace, Name: demoName, Model: demoModel, SystemPrompt: &prompt, Settings: json.RawMessage(`{}`),
	})
	if err != nil {
		return fmt.Errorf("make the demo agent: %w", err)
	}
	schema := agentsql.SQLiteSchema
	if c.Database != "" {
		schema = agentsql.SampleSchema
	}
	tables, err := json.Marshal(map[string]any{"schemas": agentsql.Grant{schema: agentsql.SampleTables()}})
	if err != nil {
		return fmt.Errorf("make the demo agent: %w", err)
	}
	for _, give := range []struct {
		tool     string
		override json.RawMessage
	}{{"database_query", tables}, {"current_time", json.RawMessage(`{}`)}} {
		if _, err := s.Assign(ctx, by, hob.Assignment{
			Agent: a.ID, Workspace: hob.DefaultWorkspace, ToolType: string(hob.BuiltinTool), ToolName: give.tool,
			ConfigOverride: give.override,
		}); err != nil {
			return fmt.Errorf("give the demo agent %s: %w", give.tool, err)
		}
	}
	return nil
}
