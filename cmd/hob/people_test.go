package main_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hob"
	"hob/client"
)

// peopleStage is a whole server, and an outside world with tools and receivers of hooks that checks every signature.
type peopleStage struct {
	t    *testing.T // of the step under way
	root *testing.T
	in   *installation
	s    *serving
	c    *client.Client
	at   string // address of the outside world

	mu      sync.Mutex
	deeds   []deed
	heard   []heard
	secrets map[string]string                    // of each receiver, by its path
	answers map[string]func(heard) (int, string) // what receivers answer; {} where there is none
}

// deed is a call that reached a tool: its path, which tells the test, and its body.
type deed struct{ path, body string }

// heard is a request that reached a receiver, with its signature checked.
type heard struct {
	path, event, delivery string
	attempt               int
	body                  string
}

// peopleStages plays on a server with each of the stores.
func peopleStages(t *testing.T, play func(*peopleStage)) {
	t.Helper()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(newPeopleStage(t, database))
		})
	}
}

func newPeopleStage(t *testing.T, database string) *peopleStage {
	t.Helper()
	p := &peopleStage{t: t, root: t, secrets: map[string]string{}, answers: map[string]func(heard) (int, string){}}
	world := httptest.NewServer(p)
	t.Cleanup(world.Close)
	p.at = world.URL
	p.in = install(t, map[string]string{
		"HOB_DATABASE_URL": database, "HOB_SERVICE_KEY": "operators-own-key-0123456789", "HOB_SEAL_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
	})
	p.in.args = []string{"--egress-allow", strings.TrimPrefix(p.at, "http://")}
	p.serve()
	return p
}

// serve starts the server, for the first time or once more.
func (p *peopleStage) serve() {
	p.in.env["HOB_ADDR"] = "127.0.0.1:0"
	p.s = p.in.serve()
	p.c = p.s.client()
	p.c.Patience = -1 // a stream that breaks is an error
}

// step plays on the stage in a test of its own, before the next step begins.
func (p *peopleStage) step(name string, play func(*peopleStage)) {
	p.t.Helper()
	outer := p.t
	outer.Run(name, func(t *testing.T) {
		p.t = t
		defer func() { p.t = outer }()
		play(p)
	})
}

func (p *peopleStage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request never came whole
	}
	if strings.HasPrefix(r.URL.Path, "/tool/") {
		p.mu.Lock()
		p.deeds = append(p.deeds, deed{strings.TrimPrefix(r.URL.Path, "/tool/"), string(body)})
		p.mu.Unlock()
		fmt.Fprintf(w, "did %s", body)
		return
	}
	attempt, _ := strconv.Atoi(r.Header.Get("X-Hob-Attempt"))
	h := heard{r.URL.Path, r.Header.Get("X-Hob-Event"), r.Header.Get("X-Hob-Delivery"), attempt, string(body)}
	p.mu.Lock()
	secret, answer := p.secrets[h.path], p.answers[h.path]
	p.mu.Unlock()
	if why := unsigned(r.Header.Get("X-Hob-Signature"), secret, body); why != "" {
		p.root.Errorf("%s of %s came with a signature that does not hold: %s", h.path, h.event, why)
		http.Error(w, why, http.StatusForbidden)
		return
	}
	p.mu.Lock()
	p.heard = append(p.heard, h)
	p.mu.Unlock()
	status, text := http.StatusOK, "{}"
	if answer != nil {
		status, text = answer(h)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// unsigned says what is wrong with the signature of a body, as a receiver that has nothing but the documentation finds it.
func unsigned(header, secret string, body []byte) string {
	stamp, signature, ok := strings.Cut(header, ",v1=")
	stamp, timed := strings.CutPrefix(stamp, "t=")
	at, err := strconv.ParseInt(stamp, 10, 64)
	switch {
	case secret == "":
		return "the receiver knows no secret"
	case !ok, !timed, err != nil:
		return "it reads " + header
	case time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute:
		return "it is of " + time.Unix(at, 0).String()
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", stamp, body)
	if want := hex.EncodeToString(mac.Sum(nil)); signature != want {
		return "v1 is " + signature + ", want " + want
	}
	return ""
}

// key is what the stage's own client signs in with.
func (p *peopleStage) key() string { return p.in.env["HOB_SERVICE_KEY"] }

// done are the bodies of the calls that reached a tool.
func (p *peopleStage) done(tool string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var bodies []string
	for _, d := range p.deeds {
		if d.path == tool {
			bodies = append(bodies, d.body)
		}
	}
	return bodies
}

// told are the requests that reached a receiver.
func (p *peopleStage) told(path string) []heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.heard), func(h heard) bool { return h.path != path })
}

// answering has a receiver answer so from now on.
func (p *peopleStage) answering(path string, answer func(heard) (int, string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[path] = answer
}

func (p *peopleStage) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// agent makes one that plays a script, with a tool of the agent's own name: it takes a text and a number.
func (p *peopleStage) agent(name, script string, settings map[string]any, config json.RawMessage) hob.AgentID {
	p.t.Helper()
	if settings == nil {
		settings = map[string]any{}
	}
	settings["script"] = script
	raw, err := json.Marshal(settings)
	p.must(err)
	model, kind := "scripted/script", string(hob.HTTPTool)
	a, err := p.c.CreateAgent(p.t.Context(), client.AgentInput{Name: &name, Model: &model, Settings: raw})
	p.must(err)
	tool, err := p.c.CreateTool(p.t.Context(), client.ToolInput{
		Name: &name, Description: &name, Type: &kind,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"n":{"type":"integer"}},"additionalProperties":false}`),
		Config:      &client.ToolConfigInput{Endpoint: p.at + "/tool/" + name},
	})
	p.must(err)
	_, err = p.c.Assign(p.t.Context(), a.ID, client.AssignmentInput{ToolName: name, ToolID: &tool.ID, ConfigOverride: config})
	p.must(err)
	return a.ID
}

// hook adds a hook; the receiver at its address then knows the secret that the answer told.
func (p *peopleStage) hook(agent hob.AgentID, in client.HookInput) client.Hook {
	p.t.Helper()
	h, err := p.c.CreateHook(p.t.Context(), agent, in)
	p.must(err)
	for _, address := range []string{in.Config.URL, in.Config.NotifyURL} {
		if address != "" {
			p.mu.Lock()
			p.secrets[strings.TrimPrefix(address, p.at)] = h.SigningSecret
			p.mu.Unlock()
		}
	}
	return h
}

// tell adds an http hook of an event at a path.
func (p *peopleStage) tell(agent hob.AgentID, event hob.HookEvent, path string, more ...func(*client.HookInput)) client.Hook {
	p.t.Helper()
	in := client.HookInput{Event: event, Type: hob.HTTPHook, Config: client.HookConfigInput{URL: p.at + path}}
	for _, change := range more {
		change(&in)
	}
	return p.hook(agent, in)
}

// guard adds an approval hook for every tool.
func (p *peopleStage) guard(agent hob.AgentID, c client.HookConfigInput) client.Hook {
	p.t.Helper()
	return p.hook(agent, client.HookInput{Event: hob.PreToolUse, Type: hob.ApprovalHook, Config: c})
}

// stream runs an agent on one connection and gives all events; each goes to look first.
func (p *peopleStage) stream(agent hob.AgentID, look func(hob.Event)) []hob.Event {
	p.t.Helper()
	var events []hob.Event
	for e, err := range p.c.RunStream(p.t.Context(), agent, client.RunRequest{Message: "go"}) {
		if err != nil {
			p.t.Fatalf("the stream broke behind %d events: %v\n%s", len(events), err, p.s.logs())
		}
		if events = append(events, e); look != nil {
			look(e)
		}
	}
	return events
}

// waits starts a run that has to wait for people, and gives what it waits for.
func (p *peopleStage) waits(agent hob.AgentID) (hob.RunResult, []hob.Approval) {
	p.t.Helper()
	r, err := p.c.Run(p.t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
	p.must(err)
	if r.Status != hob.AwaitingApproval || len(r.Approvals) == 0 {
		p.t.Fatalf("the run is %s with %d approvals (%v), and should wait", r.Status, len(r.Approvals), r.Error)
	}
	return r, r.Approvals
}

// asks runs an agent that asks people, whether or not the answer comes in time to see it wait, and gives what it asked.
func (p *peopleStage) asks(agent hob.AgentID) (hob.RunResult, []hob.Approval) {
	p.t.Helper()
	r, err := p.c.Run(p.t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
	p.must(err)
	asked, err := p.c.Approvals(p.t.Context(), r.RunID, "")
	p.must(err)
	if len(asked) != 1 {
		p.t.Fatalf("the run asked for %d approvals, want 1", len(asked))
	}
	return r, asked
}

// decide decides an approval and wants that to be taken.
func (p *peopleStage) decide(run hob.RunID, d client.Decision) hob.Approval {
	p.t.Helper()
	a, err := p.c.Approve(p.t.Context(), run, d)
	p.must(err)
	return a
}

// completes follows a run to its end and wants it completed.
func (p *peopleStage) completes(run hob.RunID) hob.RunRecord {
	p.t.Helper()
	return waitFor(p.t, p.c, run, hob.Completed)
}

// refuses wants an error of a kind with a code.
func (p *peopleStage) refuses(what string, err error, kind hob.Kind, code string) {
	p.t.Helper()
	var e *hob.Error
	if hob.KindOf(err) != kind {
		p.t.Errorf("%s: %v, want %s", what, err, kind)
	} else if !errors.As(err, &e) || e.Code != code {
		p.t.Errorf("%s: %v with the code %q, want %q", what, err, e.Code, code)
	}
}

// audited wants the audit log to hold together.
func (p *peopleStage) audited() {
	p.t.Helper()
	if out := p.in.on(p.t).run("audit", "verify"); out.code != 0 {
		p.t.Errorf("hob audit verify: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// of reads the events of one type.
func of[T any](t *testing.T, events []hob.Event, kind hob.EventType) []T {
	t.Helper()
	var list []T
	for _, e := range events {
		if e.Type != kind {
			continue
		}
		var v T
		if err := json.Unmarshal(e.Data, &v); err != nil {
			t.Fatalf("event %d: %v", e.Seq, err)
		}
		list = append(list, v)
	}
	return list
}
