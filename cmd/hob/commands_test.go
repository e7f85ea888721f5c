package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/client"
)

func TestCommandLine_TellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_ADDR": "127.0.0.1:1"}) // nobody listens there
	for name, tc := range map[string]struct {
		args []string
		code int
		want []string // parts of standard error
	}{
		"unknown command":    {[]string{"srve"}, 2, []string{`no command "srve"`, "hob serve"}},
		"unknown flag":       {[]string{"serve", "--prot", "1"}, 2, []string{"no flag --prot", "hob help serve"}},
		"mistyped flag":      {[]string{"chat", "demo", "--sesion", "x"}, 2, []string{"no flag --sesion", "--session", "hob help chat"}},
		"flag without value": {[]string{"serve", "--addr"}, 2, []string{"addr", "hob help serve"}},
		"bad value":          {[]string{"serve", "--drain", "soon"}, 2, []string{"--drain", "30s"}},
		"bad egress entry":   {[]string{"serve", "--egress-allow", "x"}, 2, []string{"HOB_EGRESS_ALLOW", "host:port"}},
		"word too many":      {[]string{"serve", "now"}, 2, []string{`"now"`, "hob help serve"}},
		"open without a key": {[]string{"serve", "--addr", "0.0.0.0:0"}, 2, []string{"HOB_SERVICE_KEY", "openssl rand"}},
		"chat without agent": {[]string{"chat"}, 2, []string{"which agent"}},
		"chat without key":   {[]string{"chat", "demo", "hi"}, 1, []string{"HOB_KEY", "service.key"}},
		"key without verb":   {[]string{"key"}, 2, []string{"create, list or revoke"}},
		"key with bad verb":  {[]string{"key", "remove", "x"}, 2, []string{`"remove"`}},
		"key without name":   {[]string{"key", "create"}, 2, []string{"needs a name"}},
		"help of nothing":    {[]string{"help", "bananas"}, 2, []string{"bananas"}},
		"doctor word":        {[]string{"doctor", "please"}, 2, []string{`"please"`}},
		"version word":       {[]string{"version", "please"}, 2, []string{"takes no words"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := in.on(t).run(tc.args...)
			if out.code != tc.code {
				t.Errorf("exit code %d, want %d", out.code, tc.code)
			}
			if out.stdout != "" {
				t.Errorf("standard output has %q", out.stdout)
			}
			mustContain(t, "the error", out.stderr, tc.want...)
		})
	}
}

func TestServe_SaysWhenTheAddressIsTaken(t *testing.T) {
	t.Parallel()
	first := install(t, nil)
	first.serve()
	out := install(t, map[string]string{"HOB_ADDR": first.env["HOB_ADDR"]}).run("serve")
	if out.code != 1 {
		t.Errorf("exit code %d, want 1", out.code)
	}
	mustContain(t, "the error", out.stderr, "cannot listen on "+first.env["HOB_ADDR"], "in use", "--addr")
}

func TestClients_SayHowToReachAServer(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_ADDR": "127.0.0.1:1", "HOB_KEY": "hob_x"})
	for _, args := range [][]string{{"chat", "demo", "hi"}, {"key", "list"}} {
		out := in.run(args...)
		if out.code != 1 {
			t.Errorf("hob %s: exit code %d, want 1", args[0], out.code)
		}
		mustContain(t, "hob "+args[0], out.stderr, "http://127.0.0.1:1", "hob serve", "HOB_ADDR")
	}
}

func TestHelp_ShowsANewcomerTheWay(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	for _, args := range [][]string{{}, {"help"}, {"--help"}} {
		out := in.run(args...)
		if out.code != 0 || out.stderr != "" {
			t.Errorf("hob %v: exit code %d, %q", args, out.code, out.stderr)
		}
		mustContain(t, "the help", out.stdout, "hob serve", `hob chat demo "`+question+`"`, "hob doctor")
		_, list, _ := strings.Cut(out.stdout, "Commands:\n")
		column := -1
		for line := range strings.Lines(list) {
			if !strings.HasPrefix(line, "  hob ") {
				break
			}
			at := regexp.MustCompile(`\S  +`).FindStringIndex(line)
			if at == nil || column >= 0 && at[1] != column {
				t.Errorf("the summary of %q does not stand in its column", line)
				break
			}
			column = at[1]
		}
		if column < 0 {
			t.Errorf("no command is listed:\n%s", out.stdout)
		}
	}
	for _, name := range []string{"serve", "chat", "approvals", "key", "doctor", "provider", "backup", "restore", "migrate", "version"} {
		asked, flagged := in.run("help", name), in.run(name, "--help")
		if asked.code != 0 || asked.stdout != flagged.stdout {
			t.Errorf("hob help %s and hob %s --help differ (exit code %d)", name, name, asked.code)
		}
		want := []string{"usage: hob " + name, "Options", "--data", "HOB_DATA"}
		if name == "version" {
			want = []string{"usage: hob version", "Options", "--json"}
		}
		if mustContain(t, "help "+name, asked.stdout, want...); strings.Contains(asked.stdout, "\n\n\n") {
			t.Errorf("hob help %s has two empty lines:\n%s", name, asked.stdout)
		}
	}
}

func TestVersion_IsOneLineOrJSON(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	if out := in.run("version"); out.code != 0 || !regexp.MustCompile(`^hob \S+ \(go1\S*, \w+/\w+\)\n$`).MatchString(out.stdout) {
		t.Errorf("exit code %d, %q", out.code, out.stdout)
	}
	var v struct{ Version, Go, Platform string }
	if out := in.run("version", "--json"); json.Unmarshal([]byte(out.stdout), &v) != nil || v.Version == "" || v.Go == "" {
		t.Errorf("%q is not the version as JSON", out.stdout)
	}
}

func TestKeys_AreMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	out := in.run("key", "create", "reader", "--scopes", "read")
	secret := strings.TrimSpace(out.stdout)
	if out.code != 0 || !regexp.MustCompile(`^hob_[0-9a-f]{48}$`).MatchString(secret) {
		t.Fatalf("exit code %d, %q, %q", out.code, out.stdout, out.stderr)
	}
	reader := client.New(s.url, secret)
	defer reader.Close()
	if _, err := reader.Agents(t.Context(), client.AgentQuery{}); err != nil {
		t.Errorf("the key does not read: %v", err)
	}
	name, model := "x", "scripted/demo"
	if _, err := reader.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model}); hob.KindOf(err) != hob.Forbidden {
		t.Errorf("a key to read makes an agent: %v", err)
	}
	out = in.run("key", "list")
	mustContain(t, "the list", out.stdout, "reader", "read", "valid", "service", secret[:12])
	if strings.Contains(out.stdout, secret) {
		t.Error("the list shows a secret")
	}
	if out = in.run("key", "revoke", "reader"); out.code != 0 {
		t.Fatalf("exit code %d: %s", out.code, out.stderr)
	}
	if _, err := reader.Agents(t.Context(), client.AgentQuery{}); hob.KindOf(err) != hob.Unauthorized {
		t.Errorf("a revoked key works: %v", err)
	}
	mustContain(t, "the list", in.run("key", "list").stdout, "revoked")

	in.env["HOB_KEY"] = secret
	out = in.run("chat", "demo", "hi")
	if out.code != 1 {
		t.Errorf("exit code %d, want 1", out.code)
	}
	mustContain(t, "the refusal", out.stderr, "does not accept the key", "HOB_KEY")
}

func TestKeys_MistakesAreTold(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	in.serve()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown scope": {[]string{"key", "create", "x", "--scopes", "fly"}, "fly"},
		"unknown agent": {[]string{"key", "create", "x", "--agent", "nobody"}, "there are: demo"},
		"unknown key":   {[]string{"key", "revoke", "nobody"}, "nobody"},
		"in the past":   {[]string{"key", "create", "x", "--expires", "-1h"}, "--expires"},
	} {
		out := in.run(tc.args...)
		if out.code == 0 {
			t.Errorf("%s: exit code 0", name)
		}
		mustContain(t, name, out.stderr, tc.want)
	}
}

func TestServiceKey_OfTheOperatorIsAccepted(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_SERVICE_KEY": "operators-own-key-0123456789"})
	s := in.serve()
	if s.key != "" || strings.Contains(s.stdout()+s.logs(), "operators-own") {
		t.Errorf("the key shows:\n%s%s", s.stdout(), s.logs())
	}
	if _, err := os.Stat(filepath.Join(in.dir, "service.key")); err == nil {
		t.Error("another key was made")
	}
	if me, err := s.client().Me(t.Context()); err != nil || me.Kind != hob.ServicePrincipal {
		t.Errorf("me: %+v, %v", me, err)
	}
	if out := in.run("chat", "demo", question); out.code != 0 {
		t.Errorf("hob chat: %s", out.stderr)
	}
}

func TestChat_TalksInASession(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	cmd := in.command("chat", "demo", "--session", "talk")
	cmd.Stdin = strings.NewReader("hello\n\n" + question + "\n/exit\nnever sent\n")
	out := in.finish(cmd)
	if out.code != 0 {
		t.Fatalf("exit code %d: %s", out.code, out.stderr)
	}
	mustContain(t, "the conversation", out.stderr, "session talk", "database_query", "completed")
	if lines := strings.Split(out.stdout, "\n"); !strings.HasPrefix(out.stdout, "Hello!") || !strings.HasPrefix(lines[len(lines)-2], "There are 7 open orders.") {
		t.Errorf("standard output is not the two answers:\n%s", out.stdout)
	}
	messages, err := s.client().Messages(t.Context(), "talk", 0)
	if err != nil || len(messages) != 4 {
		t.Errorf("the session has %d messages (%v), want 4", len(messages), err)
	}
}

func TestChat_JSONIsTheStream(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	cmd := in.command("chat", "demo", "-", "--json")
	cmd.Stdin = strings.NewReader(question)
	out := in.finish(cmd)
	if out.code != 0 {
		t.Fatalf("exit code %d: %s", out.code, out.stderr)
	}
	lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
	var first hob.EventHead
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.Event != hob.EventStart {
		t.Fatalf("the first line is %s (%v)", lines[0], err)
	}
	i := 0
	for e, err := range s.client().Events(t.Context(), first.Run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(lines) || string(e.Data) != lines[i] {
			t.Fatalf("line %d differs from the log's event %s", i+1, e.Data)
		}
		i++
	}
	if i != len(lines) {
		t.Errorf("%d lines for %d events", len(lines), i)
	}
}

func TestChat_FailsWithItsRun(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	c := in.serve().client()
	id := scripted(t, c, "error: 400 no such thing")
	out := in.run("chat", string(id), "go")
	if out.code != 1 {
		t.Errorf("exit code %d, want 1", out.code)
	}
	mustContain(t, "the conversation", out.stderr, "error: ", "failed (provider_error)")
	if out.stdout != "" {
		t.Errorf("a run without an answer wrote %q", out.stdout)
	}
	scripted(t, c, "text: a")
	out = in.run("chat", "scripted", "go")
	mustContain(t, "the refusal", out.stderr, "2 agents", string(id))
	out = in.run("chat", "nobody", "go")
	mustContain(t, "the refusal", out.stderr, `no agent "nobody"`, "demo")
}

// talk starts hob chat with a script and returns it once it has shown a text beside the answer.
func talk(t *testing.T, in *installation, agent hob.AgentID, until string) *talking {
	t.Helper()
	c := &talking{cmd: in.command("chat", string(agent), "go"), ended: make(chan struct{})}
	c.cmd.Stdout = &c.answer
	shown, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); <-c.ended })
	seen := make(chan struct{})
	go func() {
		defer close(c.ended)
		told := false
		for b := make([]byte, 4096); ; {
			n, err := shown.Read(b)
			c.shown.Write(b[:n])
			if !told && strings.Contains(c.shown.String(), until) {
				told = true
				close(seen)
			}
			if err != nil {
				break
			}
		}
		_ = c.cmd.Wait() // its code is looked at by the test
	}()
	select {
	case <-seen:
	case <-c.ended:
		t.Fatalf("hob chat ended before it showed %q:\n%s%s", until, c.shown.String(), c.answer.String())
	case <-time.After(patience):
		t.Fatalf("hob chat does not show %q", until)
	}
	return c
}

// talking is a hob chat under way. Its output may be read when it has ended.
type talking struct {
	cmd           *exec.Cmd
	ended         chan struct{}
	shown, answer bytes.Buffer // standard error and output
}

func (c *talking) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatal("hob chat does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

func TestChat_CtrlCCancelsTheRun(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	c := in.serve().client()
	chat := talk(t, in, scripted(t, c, "text: one\ndelay: 50s\ntext: two"), "session ")
	if err := chat.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := chat.wait(t); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	mustContain(t, "the conversation", chat.shown.String(), "Ctrl-C again", "cancelled · ")
}

func TestChat_GoesOnAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	chat := talk(t, in, scripted(t, s.client(), "text: one\ndelay: 2s\ntext: two"), "session ")
	s.kill()
	in.serve() // at the same address
	if code := chat.wait(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, chat.shown.String())
	}
	mustContain(t, "the conversation", chat.shown.String(), "the server was restarted", "completed")
	mustContain(t, "the answer", chat.answer.String(), "one", "two")
}
