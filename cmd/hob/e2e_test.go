package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
	"hob/client"
	"hob/internal/pgtest"
)

// patience bounds every wait of these tests; on a busy machine a start takes a while.
const patience = 60 * time.Second

// binary builds the program once, as make build does but for the stamp, and gives its path.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hob-e2e-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hob")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// installation is a data folder and the variables that hob is run with in it.
type installation struct {
	t   *testing.T
	dir string
	env map[string]string
	// args are flags of serve.
	args []string
}

// install makes an empty installation. env comes on top of what every one has.
func install(t *testing.T, env map[string]string) *installation {
	t.Helper()
	in := &installation{t: t, dir: filepath.Join(t.TempDir(), "data"), env: map[string]string{
		"HOB_ADDR": "127.0.0.1:0", "HOB_LOG": "info,text", "PATH": os.Getenv("PATH"), "HOME": t.TempDir(),
	}}
	in.env["HOB_DATA"] = in.dir
	for k, v := range env {
		in.env[k] = v
	}
	return in
}

// on is the same installation for a test below.
func (in *installation) on(t *testing.T) *installation {
	return &installation{t: t, dir: in.dir, env: in.env}
}

// command prepares hob with the installation's variables and nothing of this process's own.
func (in *installation) command(args ...string) *exec.Cmd {
	in.t.Helper()
	path, err := binary()
	if err != nil {
		in.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{}
	for k, v := range in.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// output is how a command ended.
type output struct {
	code           int
	stdout, stderr string
}

// run carries out a command to its end.
func (in *installation) run(args ...string) output {
	in.t.Helper()
	return in.finish(in.command(args...))
}

func (in *installation) finish(cmd *exec.Cmd) output {
	in.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		in.t.Fatalf("%s: %v", cmd, err)
	}
	return output{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// serving is a running server.
type serving struct {
	in    *installation
	cmd   *exec.Cmd
	url   string
	key   string // as printed; "" when this was not the first start
	ended chan struct{}

	mu  sync.Mutex
	out strings.Builder
	log strings.Builder
}

var (
	listens = regexp.MustCompile(`listens on (http://\S+)`)
	printed = regexp.MustCompile(`service key .*: (\S+)`)
)

// serve starts the server and returns when it takes requests. From then on the installation's other commands find it.
func (in *installation) serve() *serving {
	in.t.Helper()
	s := &serving{in: in, cmd: in.command(append([]string{"serve"}, in.args...)...), ended: make(chan struct{})}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		in.t.Fatal(err)
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		in.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	var readers sync.WaitGroup
	greeted := make(chan struct{})
	readers.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			s.mu.Lock()
			s.out.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if strings.HasPrefix(lines.Text(), "try: ") {
				close(greeted)
			}
		}
	})
	readers.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			s.mu.Lock()
			s.log.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
		}
	})
	go func() { readers.Wait(); _ = s.cmd.Wait(); close(s.ended) }()
	in.t.Cleanup(func() { s.kill() })
	select {
	case <-greeted:
	case <-s.ended:
		in.t.Fatalf("hob serve ended at once:\n%s%s", s.stdout(), s.logs())
	case <-time.After(patience):
		in.t.Fatalf("hob serve does not greet:\n%s%s", s.stdout(), s.logs())
	}
	m := listens.FindStringSubmatch(s.stdout())
	if m == nil {
		in.t.Fatalf("no address was printed:\n%s", s.stdout())
	}
	s.url = m[1]
	in.env["HOB_ADDR"] = strings.TrimPrefix(s.url, "http://")
	if m := printed.FindStringSubmatch(s.stdout()); m != nil {
		s.key = m[1]
	}
	return s
}

func (s *serving) stdout() string { s.mu.Lock(); defer s.mu.Unlock(); return s.out.String() }
func (s *serving) logs() string   { s.mu.Lock(); defer s.mu.Unlock(); return s.log.String() }

// kill ends the process without a word, as a power cut would.
func (s *serving) kill() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	<-s.ended
}

// stop asks the server to end and waits until it has.
func (s *serving) stop() int {
	s.in.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.in.t.Fatalf("SIGTERM: %v", err)
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.in.t.Fatalf("the server does not stop:\n%s", s.logs())
	}
	return s.cmd.ProcessState.ExitCode()
}

// client speaks to the server with the installation's first key.
func (s *serving) client() *client.Client {
	s.in.t.Helper()
	key := s.in.env["HOB_SERVICE_KEY"]
	if key == "" {
		b, err := os.ReadFile(filepath.Join(s.in.dir, "service.key"))
		if err != nil {
			s.in.t.Fatal(err)
		}
		key = strings.TrimSpace(string(b))
	}
	c := client.New(s.url, key)
	s.in.t.Cleanup(c.Close)
	return c
}

// demo gives the id of the demo agent.
func demo(t *testing.T, c *client.Client) hob.AgentID {
	t.Helper()
	list, err := c.Agents(t.Context(), client.AgentQuery{Query: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Agents) != 1 {
		t.Fatalf("there are %d demo agents, want 1", len(list.Agents))
	}
	return list.Agents[0].ID
}

func mustContain(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s does not have %q:\n%s", what, p, text)
		}
	}
}

const question = "How many orders are open?"

func TestFirstStart_MakesEverythingANewcomerNeeds(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	if s.key == "" {
		t.Fatalf("no key was printed:\n%s", s.stdout())
	}
	mustContain(t, "the greeting", s.stdout(), s.url, `hob chat demo "`+question+`"`)
	if !regexp.MustCompile(`(?m)^model providers: (none; agents made without a model play a script|ollama$)`).MatchString(s.stdout()) {
		t.Errorf("the greeting does not tell of model providers:\n%s", s.stdout())
	}
	for name, mode := range map[string]os.FileMode{
		"": 0o700, "hob.db": 0o600, "seal.key": 0o600, "service.key": 0o600, "project.db": 0o600,
	} {
		info, err := os.Stat(filepath.Join(in.dir, name))
		if err != nil {
			t.Errorf("%q: %v", name, err)
		} else if info.Mode().Perm() != mode {
			t.Errorf("%q has mode %04o, want %04o", name, info.Mode().Perm(), mode)
		}
	}
}

func TestGreeting_ShowsACommandThatWorks(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(in *installation, dir string){
		"flags": func(in *installation, dir string) {
			delete(in.env, "HOB_ADDR")
			in.args = []string{"--data", dir, "--addr", "127.0.0.1:0"}
		},
		"environment": func(in *installation, dir string) { in.env["HOB_DATA"] = dir },
		"file": func(in *installation, dir string) {
			delete(in.env, "HOB_ADDR")
			in.env["HOB_DATA"] = dir
			if err := os.MkdirAll(dir, 0o700); err != nil {
				in.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "hob.toml"), []byte(`addr = "127.0.0.1:0"`), 0o600); err != nil {
				in.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, nil)
			delete(in.env, "HOB_DATA")
			set(in, filepath.Join(t.TempDir(), "it's here"))
			s := in.serve()
			delete(in.env, "HOB_ADDR") // another terminal knows nothing of what the server was told
			delete(in.env, "HOB_DATA")
			_, hint, _ := strings.Cut(s.stdout(), "try: ")
			cmd := exec.Command("bash", "-c", hint)
			cmd.Env = in.command().Env
			out := in.finish(cmd)
			if out.code != 0 {
				t.Errorf("%s: exit code %d\n%s", hint, out.code, out.stderr)
			}
			mustContain(t, "the answer", out.stdout, "7 open orders")
		})
	}
}

func TestGreeting_SaysThatOtherTerminalsNeedTheOperatorsKey(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_SERVICE_KEY": "operators-own-key-0123456789"})
	mustContain(t, "the greeting", in.serve().stdout(), "export HOB_KEY=")
}

func TestGreeting_NamesTheModelProviders(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"ANTHROPIC_API_KEY": "sk-ant-0123456789", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OLLAMA_HOST": "127.0.0.1:1"})
	mustContain(t, "the greeting", in.serve().stdout(), "model providers: openai, anthropic, ollama\n")
}

func TestDemo_AnswersFromTheDatabase(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database})
			in.serve()
			out := in.run("chat", "demo", question)
			if out.code != 0 {
				t.Fatalf("exit code %d:\n%s%s", out.code, out.stdout, out.stderr)
			}
			mustContain(t, "the conversation", out.stderr, "→ database_query", "SELECT", "orders", `← [{"open_orders":7}]`, "completed")
			if !strings.HasPrefix(out.stdout, "There are 7 open orders") {
				t.Errorf("standard output is not the answer alone:\n%s", out.stdout)
			}
			if strings.Contains(out.stdout+out.stderr, "\x1b") {
				t.Error("colours are written although this is no terminal")
			}
		})
	}
}

func TestRestart_KeepsEverything(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	c := s.client()
	run, err := c.Run(t.Context(), demo(t, c), client.RunRequest{Message: question, SessionID: "kept", Tools: true})
	if err != nil || run.Status != hob.Completed {
		t.Fatalf("run: %v, %+v", err, run)
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("exit code %d after SIGTERM:\n%s", code, s.logs())
	}
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	again := in.serve()
	if again.key != "" {
		t.Error("the second start prints the key again")
	}
	c = again.client()
	if demo(t, c) == "" {
		t.Error("the demo agent is gone")
	}
	messages, err := c.Messages(t.Context(), "kept", 0)
	if err != nil || len(messages) != 2 {
		t.Fatalf("%d messages (%v), want 2", len(messages), err)
	}
	if messages[1].Content != run.Content {
		t.Errorf("the answer reads %q, was %q", messages[1].Content, run.Content)
	}
}

func TestRestart_DoesNotBringTheDemoBack(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	if err := s.client().DeleteAgent(t.Context(), demo(t, s.client())); err != nil {
		t.Fatal(err)
	}
	s.stop()
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	list, err := in.serve().client().Agents(t.Context(), client.AgentQuery{})
	if err != nil || list.Total != 0 {
		t.Errorf("%d agents (%v), want none", list.Total, err)
	}
}

func TestSecondProcess_IsRefused(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	out := in.run("serve")
	if out.code != 1 {
		t.Errorf("exit code %d, want 1", out.code)
	}
	mustContain(t, "the refusal", out.stderr, fmt.Sprintf("(process %d)", s.cmd.Process.Pid), in.dir, "--data")
	if _, err := s.client().Health(t.Context()); err != nil {
		t.Errorf("the first server suffers: %v", err)
	}
}

// offered is a question that the demo's greeting proposes.
var offered = regexp.MustCompile(`(?m)^- (.+\?)$`)

func TestDemo_CanDoWhatItOffers(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := install(t, map[string]string{"HOB_DATABASE_URL": database}).serve().client()
			agent := demo(t, c)
			hello, err := c.Run(t.Context(), agent, client.RunRequest{Message: "hello", Tools: true})
			if err != nil {
				t.Fatal(err)
			}
			questions := offered.FindAllStringSubmatch(hello.Content, -1)
			if len(questions) < 3 {
				t.Fatalf("the greeting offers %d questions:\n%s", len(questions), hello.Content)
			}
			for _, q := range questions {
				answer, err := c.Run(t.Context(), agent, client.RunRequest{Message: q[1], Tools: true})
				if err != nil {
					t.Fatal(err)
				}
				record, err := c.RunRecord(t.Context(), answer.RunID)
				if err != nil {
					t.Fatal(err)
				}
				if len(record.ToolCalls) != 1 || len(record.ToolCalls[0].Result) < 10 {
					t.Errorf("%s: %d calls", q[1], len(record.ToolCalls))
				}
				for _, call := range record.ToolCalls {
					if call.IsError {
						t.Errorf("%s\n%s\n%s", q[1], call.Arguments, call.Result)
					}
				}
			}
		})
	}
}

// slow is a script whose run takes a few seconds in one tool-less step.
const slow = `text: one
delay: 1500ms
text: two`

func TestTerm_LetsARunFinish(t *testing.T) {
	t.Parallel()
	s := install(t, nil).serve()
	c := s.client()
	a := scripted(t, c, slow)
	var events []hob.Event
	for e, err := range c.RunStream(t.Context(), a, client.RunRequest{Message: "go"}) {
		if err != nil {
			t.Fatalf("the stream broke: %v\n%s", err, s.logs())
		}
		if e.Type == hob.EventStart {
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		events = append(events, e)
	}
	last := events[len(events)-1]
	if last.Type != hob.EventComplete || !bytes.Contains(last.Data, []byte(`"status":"completed"`)) {
		t.Errorf("the last event is %s", last.Data)
	}
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.logs())
	}
}

func TestTerm_HandsOverWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_DRAIN": "100ms"})
	s := in.serve()
	c := s.client()
	a := scripted(t, c, slow)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var id hob.RunID
	for e, err := range c.RunStream(ctx, a, client.RunRequest{
		Message: "go", Tuning: hob.Tuning{OnDisconnect: hob.DisconnectContinue},
	}) {
		if err != nil {
			t.Fatal(err)
		}
		id = runOf(t, e)
		break
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, s.logs())
	}
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	in.env["HOB_DRAIN"] = "30s"
	waitFor(t, in.serve().client(), id, hob.Completed)
}

// runOf reads an event's run.
func runOf(t *testing.T, e hob.Event) hob.RunID {
	t.Helper()
	m := regexp.MustCompile(`"run_id":"([^"]+)"`).FindSubmatch(e.Data)
	if m == nil {
		t.Fatalf("no run id in %s", e.Data)
	}
	return hob.RunID(m[1])
}

// waitFor follows a run to its end and wants it in a state.
func waitFor(t *testing.T, c *client.Client, id hob.RunID, want hob.Status) hob.RunRecord {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for _, err := range c.Events(ctx, id, 0) {
		if err != nil {
			t.Fatalf("events of %s: %v", id, err)
		}
	}
	r, err := c.RunRecord(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != want {
		t.Fatalf("the run is %s (%v), want %s", r.Status, r.Error, want)
	}
	return r
}

// scripted makes an agent that plays a script.
func scripted(t *testing.T, c *client.Client, script string) hob.AgentID {
	t.Helper()
	name, model := "scripted", "scripted/script"
	settings := fmt.Sprintf(`{"script":%q}`, script)
	a, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model, Settings: []byte(settings)})
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// databases are the stores that a test runs on: SQLite in the data folder (an empty URL), and a fresh Postgres database
// unless -short asks for the quick tests.
func databases(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"sqlite": ""}
	if !testing.Short() {
		all["postgres"] = owned(t, pgtest.URL(t))
	}
	return all
}

// owned is a database's URL for a user that is made as docs/deploying.md says: it owns the database and makes the agents'
// logins, and is no superuser.
func owned(t *testing.T, admin string) string {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	name := "owner_of_" + strings.Trim(u.Path, "/")
	if _, err := conn.Exec(t.Context(), "CREATE ROLE "+name+" LOGIN CREATEROLE; ALTER DATABASE "+strings.Trim(u.Path, "/")+" OWNER TO "+name); err != nil {
		t.Fatal(err)
	}
	u.User = url.User(name)
	return u.String()
}
