//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
)

// lease is how long a replica may be silent before another one takes its runs: engine.DefaultLimits, which no setting
// changes.
const lease = 10 * time.Second

// replicas is how many servers share the database.
const replicas = 3

// fleet is several servers on one private Postgres, which they reach through a proxy.
type fleet struct {
	h       *harness
	cluster *cluster
	proxy   *proxy
	servers []*server
}

// fleetSetting is how a fleet is made.
type fleetSetting struct {
	name string
	n    int      // servers
	bin  string   // "" for the harness's program
	pipe string   // address of the model and the tools
	env  []string // further variables of each server
}

// newFleet makes a cluster and starts the servers on it, one behind the other.
func newFleet(ctx context.Context, h *harness, s fleetSetting) (_ *fleet, err error) {
	f := &fleet{h: h}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.cluster, err = newCluster(ctx, h.folder); err != nil {
		return nil, err
	}
	if err := f.join(ctx, s); err != nil {
		return nil, err
	}
	return f, nil
}

// join starts servers on a database of their own in the fleet's cluster.
func (f *fleet) join(ctx context.Context, s fleetSetting) (err error) {
	database := "hob_" + strings.ReplaceAll(s.name, "-", "_")
	if err := f.cluster.create(ctx, database); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	if f.proxy, err = newProxy(ctx, f.cluster.addr()); err != nil {
		return err
	}
	for i := range s.n {
		v, err := newServer(ctx, f.h, setting{
			name: fmt.Sprintf("%s-%c", s.name, 'a'+i), bin: s.bin, database: dsn(f.proxy.addr(), database), env: s.env, pipe: s.pipe,
		})
		if err != nil {
			return err
		}
		f.servers = append(f.servers, v)
		if _, err := v.serve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the servers and the proxy; the cluster stays.
func (f *fleet) leave() {
	for _, s := range f.servers {
		s.kill()
	}
	if f.proxy != nil {
		f.proxy.close()
	}
}

// close ends all of it.
func (f *fleet) close() {
	f.leave()
	if f.cluster != nil && f.cluster.cmd != nil {
		_ = f.cluster.stop() // its folder goes anyway
	}
}

// addrs are the addresses of the servers.
func (f *fleet) addrs() []string {
	list := make([]string, len(f.servers))
	for i, s := range f.servers {
		list[i] = s.addr
	}
	return list
}

// tails are the ends of the servers' logs.
func (f *fleet) tails() string {
	var b strings.Builder
	for _, s := range f.servers {
		fmt.Fprintf(&b, "%s:\n%s\n", s.name, s.tail())
	}
	return b.String()
}

// database connects to the fleet's database, beside the proxy.
func (f *fleet) database(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(f.servers[0].database)
	if err != nil {
		return nil, fmt.Errorf("address of the database: %w", err)
	}
	conn, err := pgx.Connect(ctx, dsn(f.cluster.addr(), cfg.Database)+"&search_path=hob")
	if err != nil {
		return nil, fmt.Errorf("look into the database: %w", err)
	}
	return conn, nil
}

// query runs a query that gives rows of one type.
func query[T any](ctx context.Context, f *fleet, scan pgx.RowToFunc[T], sql string, args ...any) (_ []T, err error) {
	conn, err := f.database(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("look into the database: %w", err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("look into the database: %w", err)
	}
	return list, nil
}

// held are the unfinished runs whose lease a process has.
func (f *fleet) held(ctx context.Context, owner string) ([]hob.RunID, error) {
	return query(ctx, f, pgx.RowTo[hob.RunID], `SELECT id FROM runs WHERE lease_owner = $1 AND completed_at = 0`, owner)
}

// underWay are all unfinished runs.
func (f *fleet) underWay(ctx context.Context) ([]hob.RunID, error) {
	return query(ctx, f, pgx.RowTo[hob.RunID], `SELECT id FROM runs WHERE completed_at = 0`)
}

// owner is the name under which the process that drives a run holds its leases; "" where nobody drives it.
func (f *fleet) owner(ctx context.Context, id hob.RunID) (string, error) {
	list, err := query(ctx, f, pgx.RowTo[string], `SELECT lease_owner FROM runs WHERE id = $1`, id)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0], nil
}

// logged is one event as the database has it.
type logged struct {
	Run  hob.RunID
	Seq  int64
	Type hob.EventType
	At   int64 // µs
	Call string
}

// logs are the events of all runs, each run's in order; deltas are left out.
func (f *fleet) logs(ctx context.Context) (map[hob.RunID][]logged, error) {
	list, err := query(ctx, f, pgx.RowToStructByPos[logged], `SELECT r.id, e.seq, e.type, e.ts,
			CASE WHEN e.type IN ('tool_call', 'tool_result') THEN e.data::json ->> 'call_id' ELSE '' END
		FROM run_events e JOIN runs r ON r.n = e.run_n ORDER BY r.n, e.seq`)
	if err != nil {
		return nil, err
	}
	logs := map[hob.RunID][]logged{}
	for _, e := range list {
		logs[e.Run] = append(logs[e.Run], e)
	}
	return logs, nil
}

// interruption is a fault that hit runs under way.
type interruption struct {
	at   time.Time
	runs []hob.RunID
}

// takeovers gives, for each run that an interruption hit, how long it took until the run's next attempt began, sorted. A
// run that was not taken up, since it had ended in the same instant, is left out.
func takeovers(logs map[hob.RunID][]logged, hits []interruption) []time.Duration {
	return first(logs, hits, func(e logged) bool { return e.Type == hob.EventAttempt })
}

// first gives, for each run that was hit, how long it took until its first event of a kind, sorted. Where another
// interruption hits the run before that, it counts from there.
func first(logs map[hob.RunID][]logged, hits []interruption, is func(logged) bool) []time.Duration {
	at := map[hob.RunID][]time.Time{}
	for _, hit := range hits {
		for _, id := range hit.runs {
			at[id] = append(at[id], hit.at)
		}
	}
	var list []time.Duration
	for id, times := range at {
		for i, from := range times {
			n := slices.IndexFunc(logs[id], func(e logged) bool { return e.At > from.UnixMicro() && is(e) })
			if n < 0 {
				continue
			}
			then := time.UnixMicro(logs[id][n].At)
			if i+1 == len(times) || then.Before(times[i+1]) {
				list = append(list, then.Sub(from))
			}
		}
	}
	slices.Sort(list)
	return list
}

// silences gives how long readers of a run heard nothing before each attempt, sorted.
func silences(logs map[hob.RunID][]logged) []time.Duration {
	var list []time.Duration
	for _, log := range logs {
		for i, e := range log {
			if i > 0 && e.Type == hob.EventAttempt {
				list = append(list, time.Duration(e.At-log[i-1].At)*time.Microsecond)
			}
		}
	}
	slices.Sort(list)
	return list
}

// lateSlack is how much later than a call's result its request may be seen, on a busy machine.
const lateSlack = 100 * time.Millisecond

// zombies looks for what a process did to a run that was not its own any more: an event that is older than the one before
// it, and a call that reached its tool although its result was in the log already.
func zombies(logs map[hob.RunID][]logged, l *ledger) []string {
	var bad []string
	results := map[string]time.Time{}
	for id, log := range logs {
		for i, e := range log {
			if i > 0 && e.At < log[i-1].At {
				bad = append(bad, fmt.Sprintf("run %s: event %d (%s) is older than event %d", id, e.Seq, e.Type, log[i-1].Seq))
			}
			if e.Seq != int64(i+1) {
				bad = append(bad, fmt.Sprintf("run %s: event %d stands where event %d belongs", id, e.Seq, i+1))
			}
			if e.Type == hob.EventToolResult {
				results[string(id)+":"+e.Call] = time.UnixMicro(e.At)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.acts {
		at, settled := results[key]
		for _, arrived := range a.arrived {
			if settled && arrived.Sub(at) > lateSlack {
				bad = append(bad, fmt.Sprintf("the call %s (%s) reached its tool %s after its result was in the log", key, a.tool, arrived.Sub(at).Round(time.Millisecond)))
			}
		}
	}
	return bad
}
