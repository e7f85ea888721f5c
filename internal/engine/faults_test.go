package engine_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/egress"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

// fault is something that a model's side does.
type fault struct {
	name  string
	reply fakeai.Reply
}

// waits are how long the silence of a model's side, and a call of it in all, may last. They are short only where a test is
// about them: on a busy machine an answer may take a while.
func (f fault) waits() (silence, total time.Duration) {
	switch f.name {
	case noHeaders, silentSoon:
		return time.Second, 20 * time.Second
	case oneByte:
		return 2 * time.Second, 3 * time.Second
	}
	return 20 * time.Second, time.Minute
}

const (
	noHeaders  = "no headers"
	silentSoon = "silence after the first words"
	oneByte    = "1 byte at a time, too slowly"
)

// faults are the rows of the matrix.
func faults() []fault {
	call := func(id, name, args string) fakeai.Call { return fakeai.Call{ID: id, Name: name, Arguments: args} }
	text := fakeai.Text("Here is the answer.")
	with := func(r fakeai.Reply, change func(*fakeai.Reply)) fakeai.Reply {
		change(&r)
		return r
	}
	return []fault{
		{"429", fakeai.Error(429, "slow down")},
		{"429 with Retry-After: 0.05", fakeai.Error(429, "slow down").WithRetryAfter("0.05")},
		{"429 with Retry-After: 3600", fakeai.Error(429, "slow down").WithRetryAfter("3600")},
		{"500", fakeai.Error(500, "oops")},
		{"529", fakeai.Error(529, "overloaded")},
		{"401", fakeai.Error(401, "wrong key")},
		{"400", fakeai.Error(400, "bad request")},
		{noHeaders, with(text, func(r *fakeai.Reply) { r.Wait = time.Hour })},
		{silentSoon, with(text, func(r *fakeai.Reply) { r.Interval = time.Hour })},
		{"cut before the first word", with(text, func(r *fakeai.Reply) { r.CutAfter = -1 })},
		{"cut in the midst of a text", with(text, func(r *fakeai.Reply) { r.CutAfter = 3 })},
		{"error inside the stream", with(text, func(r *fakeai.Reply) { r.ErrorAfter, r.Message, r.Type = 3, "overloaded", "overloaded_error" })},
		{"wrong JSON inside the stream", with(text, func(r *fakeai.Reply) { r.GarbageAfter = 3 })},
		{"empty answer", fakeai.Reply{}},
		{"empty body", fakeai.Reply{Raw: []byte{}}},
		{"wrong content type", with(text, func(r *fakeai.Reply) { r.ContentType = "text/html" })},
		{"a web page", fakeai.Reply{Raw: []byte("<html><body>Welcome</body></html>"), ContentType: "text/html"}},
		{"never-ending text", with(text, func(r *fakeai.Reply) { r.Endless = true })},
		{oneByte, with(text, func(r *fakeai.Reply) { r.PerByte = 100 * time.Millisecond })},
		{"unknown tool", fakeai.Calls(call("call_1", "nobody", `{}`))},
		{"duplicate call ids", fakeai.Calls(call("call_1", "once", `{"n":1}`), call("call_1", "once", `{"n":2}`))},
		{"arguments that are no JSON", fakeai.Calls(call("call_1", "once", `{"n":`))},
		{"cut by length", with(text, func(r *fakeai.Reply) { r.Finish = "length" })},
		{"cut by length in a tool call", with(fakeai.Calls(call("call_1", "once", `{"n":1}`)), func(r *fakeai.Reply) { r.Finish = "length" })},
		{"refused by a filter", with(fakeai.Reply{}, func(r *fakeai.Reply) { r.Finish = "content_filter" })},
	}
}

// side is a model's side that a test steers.
type side struct {
	server  *fakeai.Server
	reply   atomic.Pointer[func(fakeai.Parsed) fakeai.Reply]
	answers atomic.Int64
}

// faulty makes a world whose model is behind a strict fake, with short deadlines.
func faulty(t *testing.T, model string, f fault, o fakeai.Options, tools ...string) (*world, *side) {
	t.Helper()
	silence, total := f.waits()
	s := &side{}
	s.set(func(fakeai.Parsed) fakeai.Reply { return fakeai.Text("Here is the answer.") })
	o.Reply = func(p fakeai.Parsed) fakeai.Reply {
		s.answers.Add(1)
		return (*s.reply.Load())(p)
	}
	s.server = fakeai.New(o)
	at := httptest.NewServer(s.server)
	guard := egress.New(egress.Config{})
	t.Cleanup(func() { guard.Close(); at.CloseClientConnections(); at.Close() })
	w := newWorld(t, map[string]any{}, tools...)
	w.limits.AnswerBytes = 64 << 10
	w.models = provider.New(provider.Config{
		Clients: guard, RetryBase: time.Millisecond, FirstWait: silence, Idle: silence, Total: total,
		OpenAI: provider.Endpoint{BaseURL: at.URL + "/v1"}, Anthropic: provider.Endpoint{BaseURL: at.URL}, Gemini: provider.Endpoint{BaseURL: at.URL},
	}).Open
	if _, err := w.store.UpdateAgent(t.Context(), w.by, w.agent.ID, hob.AgentPatch{Model: &model}); err != nil {
		t.Fatal(err)
	}
	w.begin(nil)
	return w, s
}

func (s *side) set(f func(fakeai.Parsed) fakeai.Reply) { s.reply.Store(&f) }

// TestFaults plays every fault on every dialect, once passing and once for ever. No run may hang or be charged twice, no
// tool may act twice, and the session must be usable afterwards.
func TestFaults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	rows := map[string]string{}
	t.Run("all", func(t *testing.T) {
		for _, f := range faults() {
			for _, model := range dialectModels {
				dialect, _, _ := strings.Cut(model, "/")
				t.Run(f.name+"/"+dialect, func(t *testing.T) {
					t.Parallel()
					got := playFault(t, f, model)
					mu.Lock()
					rows[f.name+"|"+dialect] = got
					mu.Unlock()
				})
			}
		}
	})
	var table bytes.Buffer
	table.WriteString("fault | dialect | once | for ever\n")
	for _, f := range faults() {
		for _, model := range dialectModels {
			dialect, _, _ := strings.Cut(model, "/")
			fmt.Fprintf(&table, "%s | %s | %s\n", f.name, dialect, rows[f.name+"|"+dialect])
		}
	}
	file := filepath.Join("testdata", "faults.golden")
	if *update {
		if err := os.WriteFile(file, table.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(table.String(), "\n")); d != "" && !t.Failed() {
		t.Fatalf("the outcomes changed (-update writes them):\n%s", d)
	}
}

// playFault gives the outcome of a fault that passes and of one that stays, as a row tells it.
func playFault(t *testing.T, f fault, model string) string {
	t.Helper()
	const deadline = 20 * time.Second
	out := make([]string, 0, 2)
	for _, stays := range []bool{false, true} {
		w, s := faulty(t, model, f, fakeai.Options{}, "once")
		s.set(func(p fakeai.Parsed) fakeai.Reply {
			if stays || s.answers.Load() == 1 {
				return f.reply
			}
			return fakeai.Text("Here is the answer.")
		})
		from := time.Now()
		run := w.wait(w.start("question", hob.RunOptions{}).ID)
		if took := time.Since(from); took > deadline {
			t.Errorf("it took %s", took)
		}
		calls := s.answers.Load()
		w.valid(run)
		deeds := map[string]int{}
		for _, c := range w.tools.calls() {
			if deeds[string(c.ID)]++; deeds[string(c.ID)] > 1 {
				t.Errorf("the call %s was carried out twice", c.ID)
			}
		}
		rows, err := w.store.Usage(t.Context(), w.by, hob.UsageFilter{Run: run.ID})
		if err != nil || len(rows) != 1 || rows[0].Calls > calls {
			t.Errorf("%d answers were given, and the ledger has %+v (%v)", calls, rows, err)
		}
		outcome := string(run.Status)
		if run.Code != "" {
			outcome += " (" + run.Code + ")"
		}
		if n := len(w.tools.calls()); n > 0 {
			outcome += fmt.Sprintf(", %d deeds", n)
		}
		out = append(out, fmt.Sprintf("%s after %s", outcome, plural(calls, "request")))
		s.set(func(fakeai.Parsed) fakeai.Reply { return fakeai.Text("Better now.") })
		next := w.wait(w.startIn(run.Session, "and now?", hob.RunOptions{}).ID)
		if next.Status != hob.Completed || next.Content != "Better now." {
			t.Errorf("the session is not usable afterwards: %s (%s) %s", next.Status, next.Code, next.Error)
		}
		if refused := s.server.Refusals(); len(refused) > 0 {
			t.Errorf("the server refused %v", refused)
		}
		w.stop()
	}
	return strings.Join(out, " | ")
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// TestFaults_ATooLongPromptIsShortenedForEveryDialect lets each vendor's own refusal of a long prompt lead to a shorter one.
func TestFaults_ATooLongPromptIsShortenedForEveryDialect(t *testing.T) {
	t.Parallel()
	for _, model := range dialectModels {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			w, s := faulty(t, model, fault{}, fakeai.Options{Window: 6000}, "page")
			s.set(func(p fakeai.Parsed) fakeai.Reply {
				switch n := p.Results(); {
				case strings.Contains(p.LastText(), "<summary>"):
					return fakeai.Text("<summary>Pages were read.</summary>")
				case n < 16 && p.ToolChoice != "none" && len(p.Tools) > 0 && !strings.Contains(fmt.Sprint(p.Messages), "Pages were read"):
					return fakeai.Calls(fakeai.Call{ID: fmt.Sprint("call_", p.Number), Name: "page", Arguments: fmt.Sprintf(`{"n":%d}`, p.Number)})
				}
				return fakeai.Text("All read.")
			})
			run := w.wait(w.start("read on", hob.RunOptions{}).ID)
			if run.Status != hob.Completed || run.Content != "All read." {
				t.Fatalf("%s (%s) %s", run.Status, run.Code, run.Error)
			}
			if got := fmt.Sprint(w.names(run.ID)); !strings.Contains(got, "reactive_compact step_reset") {
				t.Fatal(got)
			}
			w.valid(run)
		})
	}
}

// TestFaults_ACutAtEveryByteOfAToolCallDoesNothingTwice cuts the stream of a tool call at each of its bytes.
func TestFaults_ACutAtEveryByteOfAToolCallDoesNothingTwice(t *testing.T) {
	t.Parallel()
	for _, model := range dialectModels {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			w, s := faulty(t, model, fault{}, fakeai.Options{}, "once")
			for n := 1; ; n++ {
				s.answers.Store(0)
				before := len(w.tools.calls())
				s.set(func(p fakeai.Parsed) fakeai.Reply {
					switch {
					case p.Results() > 0:
						return fakeai.Text("Done.")
					case s.answers.Load() == 1:
						return fakeai.Reply{Calls: []fakeai.Call{{ID: "call_1", Name: "once", Arguments: `{"n":1}`}}, CutBytes: n}
					}
					return fakeai.Calls(fakeai.Call{ID: "call_2", Name: "once", Arguments: `{"n":1}`})
				})
				run := w.wait(w.start("go", hob.RunOptions{}).ID)
				if did := len(w.tools.calls()) - before; run.Status != hob.Completed || run.Content != "Done." || did != 1 {
					t.Fatalf("cut at byte %d: %s (%s) %q, carried out %d times: %s", n, run.Status, run.Code, run.Content, did, run.Error)
				}
				w.valid(run)
				if s.answers.Load() == 2 && n > 200 { // the whole answer came through
					return
				}
				if n > 4000 {
					t.Fatal("the stream has no end")
				}
			}
		})
	}
}
