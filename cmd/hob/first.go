package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

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
	fresh := len(keys) == 0
	n := newcomer{store: s}
	if fresh { // with the first key, or not at all; of servers that start together the one that makes the key makes it
		n.demo = func(ctx context.Context, s hob.Store) error { return makeDemo(ctx, c, s) }
	}
	switch {
	case c.ServiceKey != "":
		return "", n.acceptKey(ctx, c.ServiceKey, log)
	case fresh:
		return n.firstKey(ctx, c.Data)
	}
	return "", nil
}

// newcomer makes a service key known to a store, and with it the demo agent where demo is set.
type newcomer struct {
	store hob.Store
	demo  func(context.Context, hob.Store) error
}

// acceptKey makes the operator's key known to the store. One that was revoked stays so.
func (n newcomer) acceptKey(ctx context.Context, key hob.Secret, log *slog.Logger) error {
	sum := sha256.Sum256([]byte(key))
	known, err := n.store.KeyByHash(ctx, sum[:])
	switch {
	case err == nil && !known.RevokedAt.IsZero():
		log.Warn("HOB_SERVICE_KEY is a key that was revoked; it is not accepted", slog.String("key", string(known.ID)))
		return nil
	case err == nil:
		return nil
	case hob.KindOf(err) != hob.NotFound:
		return fmt.Errorf("look up HOB_SERVICE_KEY: %w", err)
	}
	prefix := ""
	if len(key) >= 4*shownKey {
		prefix = string(key[:shownKey])
	}
	_, err = n.create(ctx, "HOB_SERVICE_KEY", prefix, sum[:])
	return err
}

// firstKey makes the first service key, and returns it where it was not known before. The file comes first: should this
// start die before the store knows the key, the next one takes it from there.
func (n newcomer) firstKey(ctx context.Context, dir string) (hob.Secret, error) {
	key, err := readServiceKey(dir)
	if err != nil {
		return "", err
	}
	if key == "" {
		secret, _, _ := api.NewSecret()
		key = hob.Secret(secret)
		if err := writeServiceKey(dir, key); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(key))
	first, err := n.create(ctx, "first key", string(key[:min(len(key)/4, len("hob_")+8)]), sum[:])
	if err != nil || !first {
		return "", err
	}
	return key, nil
}

// create makes the key and the demo in one transaction. It is false where another server of the same database was faster
// with the same key.
func (n newcomer) create(ctx context.Context, name, prefix string, hash []byte) (first bool, err error) {
	once := hob.Idempotency{Scope: "first start", Key: hex.EncodeToString(hash), Keep: time.Minute}
	_, replayed, err := n.store.Once(ctx, once, func(ctx context.Context, s hob.Store) (a hob.Answer, err error) {
		_, err = s.CreateKey(ctx, hob.System(hob.DefaultWorkspace), hob.Key{
			Workspace: hob.DefaultWorkspace, Name: name, Prefix: prefix, Service: true, Scopes: []hob.Scope{hob.ScopeAdmin},
		}, hash)
		if err == nil && n.demo != nil {
			err = n.demo(ctx, s)
		}
		return a, err
	})
	if hob.KindOf(err) == hob.Conflict {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make the service key known: %w", err)
	}
	return !replayed, nil
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
