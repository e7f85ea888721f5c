package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hob"
	"hob/internal/engine"
	"hob/internal/provider"
	"hob/internal/seal"
	"hob/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a real store, a real engine, the scripted model and a few tools whose deeds are on record.
type world struct {
	t      *testing.T
	store  hob.Store
	engine *engine.Engine
	tools  *toolbox
	by     hob.Principal
	agent  hob.Agent
	limits engine.Limits
	models hob.ModelOpener
	hooks  hob.HookCaller // what http hooks are sent to
	stop   func()
	// deliver is told when something is to be sent beside the runs
	deliver func()
	// settings of the workspace, as they are stored
	settings map[string]string
}

// box is a seal key of its own for a test.
func box(t *testing.T) *seal.Box {
	t.Helper()
	b, err := seal.Open(filepath.Join(t.TempDir(), "seal.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openStore(t *testing.T) hob.Store {
	t.Helper()
	files, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := openIn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fresh gives the files of a new store. Making one takes far longer than to copy it.
var fresh = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "hob-fresh-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := openIn(context.Background(), dir)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	files := map[string][]byte{}
	for _, f := range list {
		if f.Type().IsRegular() && err == nil {
			files[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name()))
		}
	}
	return files, err
})

func openIn(ctx context.Context, dir string) (*store.DB, error) {
	b, err := seal.Open(filepath.Join(dir, "seal.key"), "")
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Config{Dir: dir, Box: b})
}

func scripted(t *testing.T) hob.ModelOpener {
	t.Helper()
	return provider.New(provider.Config{}).Open
}

func newWorld(t *testing.T, settings map[string]any, tools ...string) *world {
	t.Helper()
	w := &world{t: t, store: openStore(t), tools: &toolbox{}, by: hob.System(hob.DefaultWorkspace), models: scripted(t)}
	raw, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	w.agent, err = w.store.CreateAgent(t.Context(), w.by, hob.Agent{Name: "tester", Model: "scripted", Settings: raw})
	if err != nil {
		t.Fatal(err)
	}
	w.assign(tools...)
	return w
}

func (w *world) assign(tools ...string) {
	w.t.Helper()
	for _, name := range tools {
		a := hob.Assignment{Agent: w.agent.ID, ToolType: "builtin", ToolName: name, ConfigOverride: json.RawMessage(`{}`)}
		if _, err := w.store.Assign(w.t.Context(), w.by, a); err != nil {
			w.t.Fatal(err)
		}
	}
}

// begin starts an engine as a fresh process would, after the store was wrapped where wrap is not nil.
func (w *world) begin(wrap func(hob.Store) hob.Store) {
	w.t.Helper()
	s := w.store
	if wrap != nil {
		s = wrap(s)
	}
	w.engine = engine.New(engine.Config{
		Store: s, Models: w.models, Toolsets: []hob.Toolset{w.tools}, Limits: w.limits, Alone: true, Hooks: w.hooks, Deliver: w.deliver,
		Settings: func(_ context.Context, _ hob.WorkspaceID, key string) (string, error) { return w.settings[key], nil },
		Log:      slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	ctx, cancel := context.WithCancel(context.Background())
	if err := w.engine.Recover(ctx); err != nil {
		w.t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.engine.Serve(ctx)
	}()
	var once sync.Once
	e := w.engine
	w.stop = func() {
		once.Do(func() {
			cancel()
			<-served
			now, end := context.WithTimeout(context.Background(), time.Millisecond)
			defer end()
			_ = e.Drain(now)
		})
	}
	w.t.Cleanup(w.stop)
}

func (w *world) start(message string, o hob.RunOptions) hob.Run {
	w.t.Helper()
	return w.startIn("", message, o)
}

func (w *world) startIn(s hob.SessionID, message string, o hob.RunOptions) hob.Run {
	w.t.Helper()
	got, err := w.engine.Start(w.t.Context(), w.by, engine.StartInput{
		Agent: w.agent.ID, Session: s, Options: o, Message: hob.Message{Role: hob.RoleUser, Content: message},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got.Run
}

func (w *world) wait(id hob.RunID) hob.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	run, _, err := w.engine.Wait(ctx, w.by, id)
	if err != nil {
		w.t.Fatalf("waiting for %s: %v", id, err)
	}
	return run
}

// log reads the whole stored log and checks what holds for every log: seqs from 1 without gaps, complete last and once.
func (w *world) log(id hob.RunID) []hob.Event {
	w.t.Helper()
	var all []hob.Event
	for {
		got, err := w.store.Events(w.t.Context(), w.by, id, int64(len(all)), 500)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(got) == 0 {
			break
		}
		all = append(all, got...)
	}
	for i, ev := range all {
		var head hob.EventHead
		if err := json.Unmarshal(ev.Data, &head); err != nil {
			w.t.Fatalf("event %d is no JSON: %v", i+1, err)
		}
		if ev.Seq != int64(i+1) || head.Seq != ev.Seq || head.Event != ev.Type || head.Run != id {
			w.t.Fatalf("event at %d has seq %d and head %+v", i+1, ev.Seq, head)
		}
		if (ev.Type == hob.EventComplete) != (i == len(all)-1) {
			w.t.Fatalf("complete is not the last event of %s", id)
		}
	}
	return all
}

// valid checks that what the run left in its session can be sent to any provider.
func (w *world) valid(run hob.Run) []hob.Message {
	w.t.Helper()
	d, err := w.store.RunDetail(w.t.Context(), w.by, run.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	h, err := w.store.History(w.t.Context(), w.by, run.Session, hob.HistoryRange{Before: run.Turn + 1, Budget: 1 << 30})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := hob.Validate(h.Messages()); err != nil {
		w.t.Fatalf("the history after %s is not valid: %v", run.ID, err)
	}
	return d.Messages
}

// toolbox is a toolset whose tools keep a record of what they did.
type toolbox struct {
	mu   sync.Mutex
	did  []hob.Call
	hold chan struct{} // where not nil, the tool "hang" waits for it
	came chan struct{} // told when "hang" is called

	recovery hob.Recovery // of "hang", once where ""
	told     hob.Result   // of "told", as its error
	fails    error
	deaf     bool // "told" waits for hold and does not hear of the end of its context
	waiting  int  // calls of "wait" under way, and the most of them that there were
	most     int
	vouched  bool
	served   bool                  // "browse" is a function whatever the model can
	rules    map[string][]hob.Rule // of the assignments, by tool
}

func (b *toolbox) calls() []hob.Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]hob.Call(nil), b.did...)
}

func (b *toolbox) Tools(_ context.Context, g hob.Grant) ([]hob.ToolRunner, []string, error) {
	var out []hob.ToolRunner
	var warnings []string
	for _, a := range g.Assigned {
		spec := hob.ToolSpec{
			Name: a.ToolName, Description: "test", Kind: hob.BuiltinTool, Ref: hob.BuiltinRef + a.ToolName, Recovery: hob.RecoverOnce,
			Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}}}`),
		}
		spec.Rules = b.rules[a.ToolName]
		switch a.ToolName {
		case "read", "slow", "page", "wait":
			spec.Recovery, spec.Parallel = hob.RecoverRead, true
		case "browse":
			spec.Kind, spec.Recovery = hob.WebTool, hob.RecoverRead
			if spec.Native = g.WebSearch && !b.served; spec.Native {
				spec.Search = &hob.WebSearchOptions{MaxUses: 3, AllowedDomains: []string{"yr.no"}}
			}
		case "keyed":
			spec.Recovery = hob.RecoverKeyed
		case "pinned":
			spec.Pinned = hob.PinnedArgs{"n": json.RawMessage("7")}
			spec.FullSchema = spec.Schema
			spec.Schema = json.RawMessage(`{"type":"object","properties":{"s":{"type":"string"}}}`)
		case "hang":
			spec.Recovery = cmp.Or(b.recovery, spec.Recovery)
		case "told":
			spec.Vouched = b.vouched
		case "delegate":
			spec.Kind = hob.DelegateTool
		case "brief":
			spec.Timeout = 20 * time.Millisecond
		case "gone":
			warnings = append(warnings, "gone is not to be had")
			continue
		}
		if a.ToolName == "shown" {
			out = append(out, &shownTool{testTool{box: b, spec: spec}})
			continue
		}
		out = append(out, &testTool{box: b, spec: spec})
	}
	return out, warnings, nil
}

func (b *toolbox) wait(more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting += more
	b.most = max(b.most, b.waiting)
}

type testTool struct {
	box  *toolbox
	spec hob.ToolSpec
}

func (t *testTool) Spec() hob.ToolSpec { return t.spec }

func (t *testTool) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	t.box.mu.Lock()
	t.box.did = append(t.box.did, c)
	hold, came := t.box.hold, t.box.came
	t.box.mu.Unlock()
	switch t.spec.Name {
	case "slow":
		select {
		case <-ctx.Done():
			return hob.Result{}, ctx.Err()
		case <-time.After(time.Duration(60-10*len(c.Arguments)) * time.Millisecond):
		}
	case "wait":
		t.box.wait(1)
		time.Sleep(20 * time.Millisecond)
		t.box.wait(-1)
	case "told":
		if t.box.deaf {
			came <- struct{}{}
			<-hold
		}
		return t.box.told, t.box.fails
	case "fail":
		return hob.Result{}, errors.New("it broke")
	case "panic":
		panic("a fault in a tool")
	case "page": // about 350 tokens
		var b strings.Builder
		for i := range 25 {
			fmt.Fprintf(&b, "Line %d of the page for %s says something.\n", i, c.Arguments)
		}
		return hob.Result{Text: b.String()}, nil
	case "big":
		return hob.Result{Text: strings.Repeat("ä", 60_000)}, nil
	case "hang", "brief":
		if came != nil {
			came <- struct{}{}
		}
		select {
		case <-hold:
		case <-ctx.Done():
			return hob.Result{}, ctx.Err()
		}
	}
	return hob.Result{Text: fmt.Sprintf("%s got %s", t.spec.Name, c.Arguments)}, nil
}

// watchModel records what the model is asked.
func (w *world) watchModel() func() []hob.Request {
	inner := w.models
	var mu sync.Mutex
	var reqs []hob.Request
	w.models = func(_ context.Context, _ hob.WorkspaceID, name string) (hob.Model, error) {
		m, err := inner(context.Background(), hob.DefaultWorkspace, name)
		p := m.Provider
		m.Provider = streamFunc(func(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
			mu.Lock()
			reqs = append(reqs, r)
			mu.Unlock()
			return p.Stream(ctx, r)
		})
		return m, err
	}
	return func() []hob.Request {
		mu.Lock()
		defer mu.Unlock()
		return append([]hob.Request(nil), reqs...)
	}
}

type streamFunc func(context.Context, hob.Request) iter.Seq2[hob.Delta, error]

func (f streamFunc) Stream(ctx context.Context, r hob.Request) iter.Seq2[hob.Delta, error] {
	return f(ctx, r)
}
