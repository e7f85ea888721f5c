package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"hob"
	"hob/internal/config"
	"hob/internal/seal"
	"hob/internal/store"
)

// dying is a store of a process that ends when it makes the demo agent.
type dying struct{ hob.Store }

var errEnded = errors.New("the process ended")

func (d dying) Once(ctx context.Context, k hob.Idempotency, do func(context.Context, hob.Store) (hob.Answer, error)) (hob.Answer, bool, error) {
	return d.Store.Once(ctx, k, func(ctx context.Context, s hob.Store) (hob.Answer, error) { return do(ctx, dying{s}) })
}

func (d dying) CreateAgent(context.Context, hob.Principal, hob.Agent) (hob.Agent, error) {
	return hob.Agent{}, errEnded
}

func TestFirstStart_TheKeyAndTheDemoComeTogether(t *testing.T) {
	t.Parallel()
	for _, given := range []hob.Secret{"", "operators-own-key-0123456789"} {
		dir := t.TempDir()
		box, err := seal.Open(filepath.Join(dir, sealKeyFile), "")
		if err != nil {
			t.Fatal(err)
		}
		db, err := store.Open(t.Context(), store.Config{Dir: dir, Box: box})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		c, log := config.Config{Data: dir, ServiceKey: given}, slog.New(slog.DiscardHandler)
		if _, err := firstStart(t.Context(), c, dying{db}, log); !errors.Is(err, errEnded) {
			t.Fatalf("the start that ends in the midst: %v", err)
		}
		key, err := firstStart(t.Context(), c, db, log)
		if err != nil || (key == "") != (given != "") {
			t.Errorf("key %q, %v", string(key), err)
		}
		if again, err := firstStart(t.Context(), c, db, log); again != "" || err != nil {
			t.Errorf("a later start shows the key %q, %v", string(again), err)
		}
		agents, err := db.Agents(t.Context(), hob.System(hob.DefaultWorkspace), hob.ListOptions{Limit: 10})
		if err != nil || agents.Total != 1 || agents.Items[0].Name != demoName {
			t.Errorf("agents %+v, %v", agents, err)
		}
	}
}
