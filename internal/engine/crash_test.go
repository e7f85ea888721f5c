package engine_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"hob"
	"hob/internal/engine"
	"hob/internal/pgtest"
	"hob/internal/store"
)

// pages is a script that reads more than its window holds.
func pages(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "call: page {\"s\":\"page %d\"}\n---\n", i)
	}
	return s.String() + "text: All pages are read.\n"
}

// plays are what the processes are crashed in.
func plays() []play {
	seconds := 0.03
	grace := 0.01
	completed := []end{{hob.Completed, ""}}
	cancelled := []end{{hob.Cancelled, hob.CodeCancelled}}
	return []play{
		{name: "plain chat", script: "chunks: 2\ntext: Hello there, friend.\n", ends: completed, pairs: true, least: 12},
		{name: "repeated start", script: "text: Hello.\n", keyed: true, ends: completed, pairs: true, least: 12},
		{name: "second turn", script: "text: Hello again.\n", before: true, ends: completed, least: 14},
		{
			name: "sequential tools", tools: []string{"once", "keyed", "local", "read"}, ends: completed, pairs: true, least: 25,
			script: "text: a\ncall: once {\"n\":1}\n---\ncall: keyed {\"n\":2}\ncall: local {\"n\":3}\n---\ncall: read {\"n\":4}\n---\ntext: done\n",
		},
		{
			name: "parallel tools", tools: []string{"once", "keyed", "read"}, ends: completed, pairs: true, least: 18,
			script: "call: read {\"n\":1}\ncall: once {\"n\":1}\ncall: read {\"n\":2}\ncall: keyed {\"n\":3}\n---\ntext: done\n",
		},
		{
			name: "local transaction", tools: []string{"local", "read"}, ends: completed, pairs: true, least: 18,
			script: "call: local {\"n\":1}\ncall: local {\"n\":2}\ncall: read {\"n\":3}\n---\ntext: done\n",
		},
		{
			name: "ledger", tools: []string{"search", "free", "keyed", "once"}, ends: completed, pairs: true, least: 22,
			script: "call: search {\"n\":1}\ncall: search {\"n\":2}\ncall: free {\"n\":3}\ncall: nobody {}\n---\n" +
				"call: once {\"n\":4}\ncall: keyed {\"n\":\"no number\"}\ncall: keyed {\"n\":5}\n---\ntext: done\n",
		},
		{
			name: "doom loop", tools: []string{"keyed"}, ends: []end{{hob.Failed, hob.CodeDoomLoop}}, least: 18,
			script: strings.Repeat("call: keyed {\"n\":1}\n---\n", 3) + "text: done\n",
		},
		{
			name: "summary", script: "call: tome {\"n\":1}\n---\ncall: tome {\"n\":2}\n---\ncall: tome {\"n\":3}\n---\ncall: tome {\"n\":4}\n---\ntext: All read.\n",
			tools: []string{"tome"}, settings: map[string]any{"context_window": 8192}, ends: completed, least: 25,
		},
		{
			name: "cancel", script: hangs("keyed_hang"), tools: []string{"keyed_hang"}, hang: "cancel", ends: cancelled, pairs: true, least: 14,
		},
		{
			name: "cancel through another process", script: hangs("keyed_hang"), tools: []string{"keyed_hang"},
			hang: "cancel elsewhere", ends: cancelled, least: 14,
		},
		{
			name: "handover", script: hangs("once_hang"), tools: []string{"once_hang"}, hang: "handover", ends: completed, pairs: true, least: 20,
		},
		{
			name: "timeout", script: hangs("keyed_hang"), tools: []string{"keyed_hang"}, ends: []end{{hob.Cancelled, hob.CodeTimeout}},
			options: hob.RunOptions{Tuning: hob.Tuning{TimeoutSeconds: &seconds}}, least: 12,
		},
		{
			name: "client leaves", script: hangs("first_hang"), tools: []string{"first_hang"}, leaves: true, least: 12,
			options: hob.RunOptions{Tuning: hob.Tuning{GraceSeconds: &grace}}, limits: engine.Limits{Grace: 10 * time.Millisecond},
			// A run that was taken up again has lost its reader through us, and goes on.
			ends: []end{{hob.Cancelled, hob.CodeClientDisconnected}, {hob.Completed, ""}},
		},
		{
			name: "provider failure", script: "text: It is \ncut\n---\nerror: 500 it is down\n", least: 12,
			ends: []end{{hob.Failed, hob.CodeProviderError}},
		},
		{
			name: "fallback model", script: "text: It is \ncut\n---\nerror: 500 it is down\n", least: 14, ends: completed,
			settings: map[string]any{"fallback_model": "scripted/echo"},
		},
	}
}

// peoplePlays are those in which hooks and people are asked.
func peoplePlays() []play {
	completed := []end{{hob.Completed, ""}}
	once := "call: once {\"n\":1}\n---\ntext: done\n"
	asked := []hob.Hook{approvalHook(hob.PreToolUse)}
	approve := func(hob.Approval) engine.DecideInput { return engine.DecideInput{Approved: true} }
	deny := func(hob.Approval) engine.DecideInput { return engine.DecideInput{} }
	return []play{
		{
			name: "hooks", script: once, tools: []string{"once"}, ends: completed, least: 25,
			hooks: []hob.Hook{
				httpHook(hob.OnRunStart, "see"), httpHook(hob.PreToolUse, "input"), httpHook(hob.PostToolUse, "output"),
				httpHook(hob.PreResponse, "answer"), httpHook(hob.OnRunComplete, "see"),
			},
		},
		{
			name: "hooks of an answer", script: "text: Hello there, friend.\n", ends: completed, least: 16, pairs: true,
			hooks: []hob.Hook{httpHook(hob.PreResponse, "answer"), httpHook(hob.PreResponse, "see"), httpHook(hob.OnRunComplete, "see")},
		},
		{
			name: "approval approved", script: once, tools: []string{"once"}, hooks: asked, says: approve, ends: completed, least: 25, pairs: true,
		},
		{
			name: "approval denied", script: once, tools: []string{"once"}, hooks: asked, says: deny, ends: completed, least: 25,
		},
		{
			name: "approval modified", script: once, tools: []string{"once"}, ends: completed, least: 25,
			hooks: append([]hob.Hook{httpHook(hob.PreToolUse, "input"), httpHook(hob.PostToolUse, "output")}, asked...),
			says: func(hob.Approval) engine.DecideInput {
				return engine.DecideInput{Approved: true, ModifiedInput: json.RawMessage(`{"n":202}`)}
			},
		},
		{
			name: "approval expires", script: once, tools: []string{"once"}, ends: completed, least: 20,
			hooks: []hob.Hook{expiring(approvalHook(hob.PreToolUse), 10*time.Millisecond)},
		},
		{
			name: "two approvals in one step", script: "call: once {\"n\":1}\ncall: keyed {\"n\":2}\ncall: read {\"n\":3}\n---\ntext: done\n",
			tools: []string{"once", "keyed", "read"}, says: approve, ends: completed, least: 30,
			hooks: []hob.Hook{about(approvalHook(hob.PreToolUse), "once|keyed")},
		},
		{
			name: "approval of an answer", script: "text: Hello there, friend.\n", ends: completed, least: 20,
			hooks: []hob.Hook{approvalHook(hob.PreResponse)}, says: approve,
			options: hob.RunOptions{Tuning: hob.Tuning{ResponseBuffering: hob.BufferHold}},
		},
		{
			name: "approval cancelled", script: once, tools: []string{"once"}, hooks: asked, cancels: true, least: 20,
			ends: []end{{hob.Cancelled, hob.CodeCancelled}},
		},
	}
}

func hangs(tool string) string { return "text: let me wait\ncall: " + tool + " {}\n---\ntext: done\n" }

// rigs are how many stores trials are made on at the same time.
const rigs = 6

// TestCrash_EveryPoint lets a fault of every mode meet each operation of each play, and a second one each operation of
// what follows the first. An operation is a call of the store, or a step of a call of a model or a tool.
func TestCrash_EveryPoint(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		every := 1
		if raced { // the detector wants to see each place once, not each pair
			every = 31
		}
		e := newEnumeration(t, every)
		for range rigs {
			e.rigs <- &rig{openStore(t), scripted(t)}
		}
		e.run()
	})
	if testing.Short() {
		return
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		every := 7 // the recoveries are the engine's: a part of them will do
		if raced {
			every = 31
		}
		e := newEnumeration(t, every)
		for range rigs {
			e.rigs <- &rig{openPostgres(t), scripted(t)}
		}
		e.run()
	})
}

// TestCrash_HooksAndPeople does the same where hooks and people are asked.
func TestCrash_HooksAndPeople(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, each int, open func(*testing.T) hob.Store) {
		t.Helper()
		e := newEnumeration(t, 11)
		e.plays, e.meets, e.sees = peoplePlays(), "StartRun Commit Claim Decide hook_call tool_call", "Load Hooks Approvals RequestCancel"
		if e.each = each; raced {
			e.each = 11
		}
		for range rigs {
			e.rigs <- &rig{open(t), scripted(t)}
		}
		e.run()
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		try(t, 1, openStore)
	})
	if testing.Short() || raced { // the recoveries are the engine's, see above
		return
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		try(t, 5, openPostgres)
	})
}

func openPostgres(t *testing.T) hob.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{DSN: pgtest.URL(t), Box: box(t), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// maxViolations ends the search.
const maxViolations = 12

// enumeration makes the trials, side by side on several stores.
type enumeration struct {
	t     *testing.T
	plays []play
	every int    // one in so many of the second faults
	each  int    // one in so many of the only faults
	meets string // operations that faults must meet in every mode
	sees  string // operations that faults must meet
	rigs  chan *rig

	mu         sync.Mutex
	violations int
	points     map[string]*[5]int       // by play and mode of the only fault
	pairs      map[string]int           // by play: trials with two faults
	ops        map[string]map[mode]int  // by operation
	spent      map[string]time.Duration // by play
}

func newEnumeration(t *testing.T, every int) *enumeration {
	t.Helper()
	return &enumeration{
		t: t, plays: plays(), every: every, each: 1, meets: writes, sees: others, rigs: make(chan *rig, 64), points: map[string]*[5]int{}, pairs: map[string]int{}, ops: map[string]map[mode]int{}, spent: map[string]time.Duration{},
	}
}

// try makes one trial and says how many of its faults met something.
func (e *enumeration) try(p play, faults ...crash) int {
	r := <-e.rigs
	defer func() { e.rigs <- r }()
	if e.given() {
		return 0
	}
	began := time.Now()
	c, err := r.try(p, faults...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spent[p.name] += time.Since(began)
	if err != nil {
		e.violations++
		e.t.Error(err)
	}
	if len(c.met) < len(faults) {
		return len(c.met)
	}
	for _, h := range c.met {
		if e.ops[h.op] == nil {
			e.ops[h.op] = map[mode]int{}
		}
		e.ops[h.op][h.mode]++
	}
	if len(faults) == 1 {
		e.points[p.name][faults[0].mode]++
	} else {
		e.pairs[p.name]++
	}
	return len(c.met)
}

// given says whether so much was found that no more is looked for.
func (e *enumeration) given() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.violations >= maxViolations
}

// run makes all trials and tells what there were.
func (e *enumeration) run() {
	t := e.t
	t.Helper()
	var group sync.WaitGroup
	for _, p := range e.plays {
		e.points[p.name] = &[5]int{}
		for _, m := range modes {
			group.Go(func() { e.single(p, m) })
		}
		if p.pairs {
			group.Go(func() { e.double(p) })
		}
	}
	group.Wait()
	t.Log(e.table())
	for _, p := range e.plays {
		for m, n := range e.points[p.name] {
			if n < p.least/e.each {
				t.Errorf("%s has %d points where it %s, at least %d were expected", p.name, n, mode(m), p.least/e.each)
			}
		}
	}
	if e.each > 1 {
		return
	}
	for _, op := range strings.Fields(e.meets + " " + e.sees) {
		all := 0
		for _, m := range modes {
			n := e.ops[strings.ReplaceAll(op, "_", " ")][m]
			if all += n; n == 0 && slices.Contains(strings.Fields(e.meets), op) {
				t.Errorf("no fault met %s where the process %s", op, m)
			}
		}
		if all == 0 {
			t.Errorf("no fault met %s", op)
		}
	}
}

// The operations that faults must meet, the writes in every mode.
const (
	writes = "StartRun Commit Claim Release tool_call model_call"
	others = "Load Renew RequestCancel Watch Run Events History Session Agent Scope Standing Setting open_model list_tools first_delta last_delta"
)

// single lets one fault meet each operation in turn, or one in so many, until there are no more.
func (e *enumeration) single(p play, m mode) {
	for n := 1 + int(m)%e.each; e.try(p, crash{n, m}) == 1; n += e.each {
	}
}

// double lets a second fault meet each operation behind the first one, or one in so many. The modes of both change from
// one to the next: a death after an operation is one before the next, so those are left to the single faults.
func (e *enumeration) double(p play) {
	var group sync.WaitGroup
	defer group.Wait()
	for n := 1; ; n += e.each {
		first := []mode{diesAfter, toldFailed, late}[n%3]
		m := 1 + n%e.every
		met := e.try(p, crash{n, first}, crash{m, diesAfter})
		if met == 0 {
			return
		}
		group.Go(func() {
			for met == 2 {
				m += e.every
				met = e.try(p, crash{n, first}, crash{m, []mode{diesAfter, toldFailed, refused}[m%3]})
			}
		})
	}
}

func (e *enumeration) table() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nplay\t")
	for _, m := range modes {
		fmt.Fprintf(w, "%s\t", m)
	}
	fmt.Fprint(w, "two faults\ttime\t\n")
	total := 0
	for _, name := range slices.Sorted(maps.Keys(e.points)) {
		fmt.Fprintf(w, "%s\t", name)
		for _, n := range e.points[name] {
			fmt.Fprintf(w, "%d\t", n)
			total += n
		}
		fmt.Fprintf(w, "%d\t%.1fs\t\n", e.pairs[name], e.spent[name].Seconds())
		total += e.pairs[name]
	}
	fmt.Fprint(w, "\noperation\t")
	for _, m := range modes {
		fmt.Fprintf(w, "%s\t", m)
	}
	fmt.Fprint(w, "\n")
	for _, op := range slices.SortedFunc(maps.Keys(e.ops), func(a, b string) int { return cmp.Compare(a, b) }) {
		fmt.Fprintf(w, "%s\t", op)
		for _, m := range modes {
			fmt.Fprintf(w, "%d\t", e.ops[op][m])
		}
		fmt.Fprint(w, "\n")
	}
	_ = w.Flush()
	return fmt.Sprintf("%scrash points: %d enumerated, %d violations", out.String(), total, e.violations)
}

func final(w *world, id hob.RunID) bool {
	run, err := w.store.Run(w.t.Context(), w.by, id)
	return err == nil && run.Status.Final()
}

func runsOf(w *world) []hob.Run {
	w.t.Helper()
	sessions, err := w.store.Sessions(w.t.Context(), w.by, w.agent.ID, hob.SessionFilter{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []hob.Run
	for _, s := range sessions.Items {
		runs, err := w.store.SessionRuns(w.t.Context(), w.by, s.ID, 100, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range runs {
			out = append(out, r.Run)
		}
	}
	return out
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("waited 20 seconds in vain")
}
