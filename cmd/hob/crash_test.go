package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
)

// steps is how many tool steps the runs of these tests have before their answer.
const steps = 10

// hit is one request that the tool server got.
type hit struct {
	tool, key, body string
}

// toolServer is the outside world of a run: it writes down every call, and can keep one from being answered.
type toolServer struct {
	*httptest.Server
	holding chan hit // gets the call that is held

	hold string        // tool whose call of the middle step is held the first time
	free chan struct{} // closed when held calls may go

	mu   sync.Mutex
	hits []hit
}

func newToolServer(t *testing.T, hold string) *toolServer {
	t.Helper()
	s := &toolServer{holding: make(chan hit, 1), free: make(chan struct{}), hold: hold}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { s.release(); s.Close() })
	return s
}

func (s *toolServer) serve(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := hit{strings.TrimPrefix(r.URL.Path, "/"), r.Header.Get("Idempotency-Key"), string(body)}
	s.mu.Lock()
	first := !slices.Contains(s.hits, h)
	s.hits = append(s.hits, h)
	s.mu.Unlock()
	if first && h.tool == s.hold && h.body == fmt.Sprintf(`{"n":%d}`, steps/2) {
		s.holding <- h
		<-s.free
	}
	fmt.Fprintf(w, `{"done":%s}`, body)
}

func (s *toolServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.free:
	default:
		close(s.free)
	}
}

func (s *toolServer) calls(tool string) []hit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.hits), func(h hit) bool { return h.tool != tool })
}

// model asks for both tools in each of its steps, with arguments that tell the steps apart, and then answers.
func model(t *testing.T) *httptest.Server {
	t.Helper()
	replies := make([]fakeai.Reply, 0, steps+1)
	for i := range steps {
		args := fmt.Sprintf(`{"n":%d}`, i+1)
		replies = append(replies, fakeai.Calls(
			fakeai.Call{ID: fmt.Sprintf("charge_%d", i+1), Name: "charge", Arguments: args},
			fakeai.Call{ID: fmt.Sprintf("mail_%d", i+1), Name: "mail", Arguments: args},
		))
	}
	replies = append(replies, fakeai.Text("All of it is done."))
	fake := fakeai.New(fakeai.Options{Reply: fakeai.Steps(replies...)})
	s := httptest.NewServer(fake)
	t.Cleanup(func() {
		s.Close()
		if r := fake.Refusals(); len(r) > 0 {
			t.Errorf("the model refused requests: %v", r)
		}
	})
	return s
}

// worker makes an agent with a tool that honours Idempotency-Key and one of which nothing is known.
func worker(t *testing.T, c *client.Client, tools string) hob.AgentID {
	t.Helper()
	name, llm := "worker", "openai/fake-model"
	a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &llm})
	if err != nil {
		t.Fatal(err)
	}
	for tool, recovery := range map[string]hob.Recovery{"charge": hob.RecoverKeyed, "mail": ""} {
		kind := string(hob.HTTPTool)
		made, err := c.CreateTool(t.Context(), client.ToolInput{
			Name: &tool, Description: &tool, Type: &kind,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
			Config:      &client.ToolConfigInput{Endpoint: tools + "/" + tool, Recovery: recovery},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Assign(t.Context(), a.ID, client.AssignmentInput{ToolName: tool, ToolID: &made.ID}); err != nil {
			t.Fatal(err)
		}
	}
	return a.ID
}

// crash starts a run, kills the server while the held call is under way in the middle of it, starts it again and gives
// the run's record, what was streamed before the kill, and the whole log.
func crash(t *testing.T, in *installation, tools *toolServer) (hob.RunRecord, []hob.Event, []hob.Event) {
	t.Helper()
	s := in.serve()
	c := s.client()
	a := worker(t, c, tools.URL)
	var (
		id     hob.RunID
		before []hob.Event
		killed = make(chan struct{})
	)
	for e, err := range c.RunStream(t.Context(), a, client.RunRequest{Message: "work", Tuning: hob.Tuning{OnDisconnect: hob.DisconnectContinue}}) {
		if err != nil {
			t.Fatalf("before the kill: %v\n%s", err, s.logs())
		}
		id = runOf(t, e)
		before = append(before, e)
		var head struct{ Step int }
		if err := json.Unmarshal(e.Data, &head); err != nil {
			t.Fatal(err)
		}
		if e.Type == hob.EventStepStarted && head.Step == steps/2 {
			select {
			case <-tools.holding:
			case <-time.After(patience):
				t.Fatalf("the call to %s does not come:\n%s", tools.hold, s.logs())
			}
			s.kill()
			close(killed)
			break
		}
	}
	<-killed
	tools.release()
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	again := in.serve().client()
	record := waitFor(t, again, id, hob.Completed)
	var after []hob.Event
	for e, err := range again.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		after = append(after, e)
	}
	return record, before, after
}

// checkLog wants numbers without gaps, and what was seen before the kill to be there still, byte for byte.
func checkLog(t *testing.T, before, after []hob.Event) {
	t.Helper()
	for i, e := range after {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d of the log has the number %d", i+1, e.Seq)
		}
	}
	if len(after) < len(before) {
		t.Fatalf("%d events are left of %d", len(after), len(before))
	}
	for i, e := range before {
		if diff := cmp.Diff(string(e.Data), string(after[i].Data)); diff != "" {
			t.Errorf("event %d changed after the restart (-before +after):\n%s", e.Seq, diff)
		}
	}
}

// checkLedger wants each call once at the tool server, but for repeats with the same key.
func checkLedger(t *testing.T, hits []hit) (repeats int) {
	t.Helper()
	byCall := map[string]string{}
	for _, h := range hits {
		if h.key == "" {
			t.Errorf("a call of %s came without Idempotency-Key", h.tool)
		}
		if key, again := byCall[h.body]; again {
			repeats++
			if key != h.key {
				t.Errorf("%s %s came twice with different keys, %s and %s", h.tool, h.body, key, h.key)
			}
		}
		byCall[h.body] = h.key
	}
	if len(byCall) != steps {
		t.Errorf("%d different calls came, want %d", len(byCall), steps)
	}
	return repeats
}

func crashInstallation(t *testing.T, database string, tools *toolServer) *installation {
	t.Helper()
	return install(t, map[string]string{
		"OPENAI_API_KEY": "sk-fake", "OPENAI_BASE_URL": model(t).URL + "/v1",
		"HOB_EGRESS_ALLOW": strings.TrimPrefix(tools.URL, "http://"), "HOB_DATABASE_URL": database,
	})
}

func TestKill_AKeyedCallIsSentAgainWithItsKey(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := newToolServer(t, "charge")
			record, before, after := crash(t, crashInstallation(t, database, tools), tools)
			checkLog(t, before, after)
			if repeats := checkLedger(t, tools.calls("charge")); repeats != 1 {
				t.Errorf("%d calls of charge were sent again, want the one that was under way", repeats)
			}
			if repeats := checkLedger(t, tools.calls("mail")); repeats != 0 {
				t.Errorf("%d calls of mail were sent twice, want none", repeats)
			}
			if record.Content != "All of it is done." || record.Attempt != 2 {
				t.Errorf("the answer is %q in attempt %d", record.Content, record.Attempt)
			}
			for _, call := range record.ToolCalls {
				if call.OutcomeUnknown {
					t.Errorf("the outcome of %s is unknown", call.CallID)
				}
			}
		})
	}
}

func TestKill_AnUndeclaredCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := newToolServer(t, "mail")
			record, before, after := crash(t, crashInstallation(t, database, tools), tools)
			checkLog(t, before, after)
			for _, tool := range []string{"mail", "charge"} {
				if repeats := checkLedger(t, tools.calls(tool)); repeats != 0 {
					t.Errorf("%d calls of %s were sent twice, want none", repeats, tool)
				}
			}
			var unknown []string
			for _, call := range record.ToolCalls {
				if call.OutcomeUnknown {
					unknown = append(unknown, call.ToolName+string(call.Arguments))
				}
			}
			if diff := cmp.Diff([]string{fmt.Sprintf(`mail{"n":%d}`, steps/2)}, unknown); diff != "" {
				t.Errorf("calls with an unknown outcome (-want +got):\n%s", diff)
			}
			if len(record.ToolCalls) != 2*steps {
				t.Errorf("the run has %d calls, want %d", len(record.ToolCalls), 2*steps)
			}
		})
	}
}

// Two servers share one Postgres: what one leaves behind when it is killed, the other ends.
func TestKill_AnotherServerTakesOver(t *testing.T) {
	t.Parallel()
	database, both := databases(t)["postgres"]
	if !both {
		return // the quick tests know SQLite alone, which has one server
	}
	tools := newToolServer(t, "charge")
	first := crashInstallation(t, database, tools)
	first.env["HOB_SEAL_KEY"] = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	first.env["HOB_SERVICE_KEY"] = "operators-own-key-0123456789"
	second := install(t, first.env)
	second.env["HOB_DATA"] = second.dir
	a, b := first.serve(), second.serve()
	id := startAndKill(t, a, tools, worker(t, b.client(), tools.URL))
	tools.release()
	waitFor(t, b.client(), id, hob.Completed)
	for tool, want := range map[string]int{"charge": 1, "mail": 0} {
		if repeats := checkLedger(t, tools.calls(tool)); repeats != want {
			t.Errorf("%d calls of %s were sent again, want %d", repeats, tool, want)
		}
	}
}

// startAndKill starts a run on a server and kills that while the held call is under way.
func startAndKill(t *testing.T, s *serving, tools *toolServer, agent hob.AgentID) hob.RunID {
	t.Helper()
	in := client.RunRequest{Message: "work", Tuning: hob.Tuning{OnDisconnect: hob.DisconnectContinue}}
	for e, err := range s.client().RunStream(t.Context(), agent, in) {
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-tools.holding:
		case <-time.After(patience):
			t.Fatalf("the held call does not come:\n%s", s.logs())
		}
		s.kill()
		return runOf(t, e)
	}
	t.Fatal("the run has no events")
	return ""
}

func TestFirstStart_TogetherMakesOneDemo(t *testing.T) {
	t.Parallel()
	database, both := databases(t)["postgres"]
	if !both {
		return // the quick tests know SQLite alone, which has one server
	}
	env := map[string]string{
		"HOB_DATABASE_URL": database, "HOB_SERVICE_KEY": "operators-own-key-0123456789",
		"HOB_SEAL_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
	}
	t.Run("together", func(t *testing.T) {
		for _, name := range []string{"a", "b", "c"} {
			t.Run(name, func(t *testing.T) { t.Parallel(); install(t, env).serve() })
		}
	})
	demo(t, install(t, env).serve().client())
}
