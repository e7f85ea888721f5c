//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hob"
	"hob/internal/seal"
	"hob/internal/store"
)

// commits is part 8.
func (b *bench) commits(ctx context.Context) error {
	const many = 64
	folder := b.newData("commits")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("make a data folder: %w", err)
	}
	box, err := seal.Open(filepath.Join(folder, "seal.key"), "")
	if err != nil {
		return fmt.Errorf("make a seal key: %w", err)
	}
	db, err := store.Open(ctx, store.Config{Dir: folder, Box: box})
	if err != nil {
		return err
	}
	c := committers{bench: b, db: db}
	alone, together, err := c.compare(ctx, many)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	b.report.line(8, "one event of %d bytes per commit: 1 committer %s/s, %d committers %s/s", eventBytes, number(alone.rate()), many, number(together.rate()))
	b.report.measured(8, "durable step commits/s, 64 ÷ 1 committers", "×", ratio(together.rate(), alone.rate()), atLeast(2, 5))
	b.report.quantiles(8, "1 committer, one commit", &alone.times)
	b.report.quantiles(8, "64 committers, one commit", &together.times)
	return nil
}

// eventBytes is the size of the event that a measured commit writes: a piece of text with its frame.
const eventBytes = 256

// committers write steps of runs straight into the store.
type committers struct {
	bench *bench
	db    hob.Store
	agent hob.Agent
}

// newAgent makes the agent whose runs are written.
func (c *committers) newAgent(ctx context.Context) (hob.Agent, error) {
	a, err := c.db.CreateAgent(ctx, hob.System(hob.DefaultWorkspace), hob.Agent{
		ID: hob.AgentID(hob.NewUUID()), Workspace: hob.DefaultWorkspace, Name: "commits", Model: "openai/none",
	})
	if err != nil {
		return a, fmt.Errorf("make an agent: %w", err)
	}
	return a, nil
}

// compare measures one committer and many in turns.
func (c *committers) compare(ctx context.Context, many int) (alone, together outcome, err error) {
	if c.agent, err = c.newAgent(ctx); err != nil {
		return alone, together, err
	}
	b := c.bench
	for round := range b.plan.rounds + 1 {
		for _, n := range []int{1, many} {
			lasts := b.plan.slice / 2
			if round == 0 {
				lasts = b.plan.warm
			}
			o, err := slice{clock: b.clock, clients: n, lasts: lasts, open: c.open}.load(ctx)
			if err = errors.Join(err, o.err()); err != nil {
				return alone, together, err
			}
			switch {
			case round == 0:
			case n == 1:
				alone.add(o)
			default:
				together.add(o)
			}
		}
	}
	return alone, together, nil
}

// committer is one run that is driven by writing steps.
type committer struct {
	ctx   context.Context //nolint:containedctx // of the slice it lives in
	store hob.Store
	id    hob.RunID
	owner string
	seq   int64
	data  []byte
}

// lease is how long a measured run's lease holds, as the engine's.
const lease = 10 * time.Second

// open starts a run in a session of its own.
func (c *committers) open(ctx context.Context, _ time.Duration) (client, error) {
	id, owner := hob.NewRunID(), "bench-"+hob.RandomHex(4)
	started := hob.FromMicros(hob.SystemClock().UnixMicro())
	_, err := c.db.StartRun(ctx, hob.NewRun{
		Run: hob.Run{
			ID: id, Workspace: hob.DefaultWorkspace, Agent: c.agent.ID, Principal: hob.System(hob.DefaultWorkspace),
			Model: c.agent.Model, Status: hob.Running, Epoch: 1, LeaseOwner: owner,
		},
		Lease: lease, Session: hob.Session{ID: hob.NewSessionID(), Workspace: hob.DefaultWorkspace},
		Message: hob.Message{Role: hob.RoleUser, Content: question}, Pin: []byte(`{}`),
		Events: []hob.Event{{Seq: 1, Type: hob.EventStart, Data: []byte(`{"event":"start","type":"start","seq":1}`), Time: started}},
	})
	if err != nil {
		return nil, fmt.Errorf("start a run: %w", err)
	}
	head := chunkHead + `,"type":"chunk","content":"`
	data := head + strings.Repeat("a", eventBytes-len(head)-2) + `"}`
	return &committer{ctx: ctx, store: c.db, id: id, owner: owner, seq: 1, data: []byte(data)}, nil
}

func (c *committer) close() {} // the run is left as a crash would leave it

func (c *committer) run() (time.Duration, error) {
	c.seq++
	err := c.store.Commit(c.ctx, hob.RunCommit{
		Run: c.id, Epoch: 1, Owner: c.owner, Lease: lease,
		Events: []hob.Event{{Seq: c.seq, Type: hob.EventChunk, Data: c.data, Time: hob.FromMicros(hob.SystemClock().UnixMicro())}},
	})
	if err != nil {
		return 0, fmt.Errorf("commit a step: %w", err)
	}
	return 0, nil
}
