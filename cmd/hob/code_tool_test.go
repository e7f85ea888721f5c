package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"hob"
	"hob/client"
)

// coder makes an agent that calls code_execute once with a program, and gives the result of the call.
func coder(t *testing.T, c *client.Client, args map[string]any) (hob.RunResult, string) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	agent := scripted(t, c, "call: code_execute "+string(raw)+"\n---\ntext: done\n")
	if _, err := c.Assign(t.Context(), agent, client.AssignmentInput{ToolName: "code_execute"}); err != nil {
		t.Fatal(err)
	}
	run, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
	if err != nil {
		t.Fatal(err)
	}
	record, err := c.RunRecord(t.Context(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range record.Events {
		var e struct {
			Type   hob.EventType `json:"type"`
			Result string        `json:"result"`
		}
		if err := json.Unmarshal(raw, &e); err == nil && e.Type == hob.EventToolResult {
			return run, e.Result
		}
	}
	t.Fatalf("no tool result among %s", record.Events)
	return run, ""
}

// ran is what the model reads of a program.
type ran struct {
	Stdout   string `json:"stdout"`
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error"`
	Files    []struct{ Name, Type, URL string }
}

func TestCodeExecute_FilesCanBeFetchedByTheirLinksWithoutAKey(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := install(t, map[string]string{"HOB_DATABASE_URL": database}).serve().client()
			run, text := coder(t, c, map[string]any{
				"language": "python", "code": "import csv\nwith open('/output/a.csv', 'w', newline='') as f:\n    csv.writer(f).writerow(['x', 1])\nprint('written')",
			})
			var got ran
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if got.Stdout != "written\n" || got.ExitCode != 0 || got.Error != "" || len(got.Files) != 1 || got.Files[0].Type != "text/csv" {
				t.Fatalf("got %s", text)
			}
			if ledger := actions(t, c, hob.UsageFilter{Run: run.RunID}); ledger[hob.ActionCodeExecute] != 1 {
				t.Errorf("on the books are %v", ledger)
			}
			res, err := http.Get(got.Files[0].URL)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || string(body) != "x,1\r\n" {
				t.Errorf("status %d: %q (%v)", res.StatusCode, body, err)
			}
		})
	}
}

func TestCodeExecute_RunsInTheOperatorsSandboxWhereThereIsOne(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked <- r.Method + " " + r.Header.Get("Authorization") + " " + string(b)
		_, _ = io.WriteString(w, `{"stdout":"elsewhere\n","stderr":"","exit_code":0,"files":[]}`)
	}))
	t.Cleanup(srv.Close)
	c := install(t, map[string]string{"CODE_SANDBOX_URL": srv.URL, "CODE_SANDBOX_API_KEY": "sandbox-key-0123"}).serve().client()
	_, text := coder(t, c, map[string]any{"language": "javascript", "code": "1", "timeout": 9})
	if text != `{"stdout":"elsewhere\n","stderr":"","exit_code":0,"files":[]}` {
		t.Errorf("the result is %s", text)
	}
	if got, want := <-asked, `POST Bearer sandbox-key-0123 {"language":"javascript","code":"1","timeout":9}`; got != want {
		t.Errorf("asked %s\nwant  %s", got, want)
	}
}

func TestCodeExecute_IsOffWhereTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_SANDBOX": "off"})
	run, text := coder(t, in.serve().client(), map[string]any{"language": "python", "code": "print(1)"})
	if text != `{"error":"Code sandbox is not configured"}` || run.Actions[hob.ActionCodeExecute] != 0 {
		t.Errorf("%s, on the books %v", text, run.Actions)
	}
	mustContain(t, "doctor", in.run("doctor").stdout, "HOB_SANDBOX=off")
}

func TestDoctor_TriesEveryWallOfTheSandbox(t *testing.T) {
	t.Parallel()
	out := install(t, nil).run("doctor")
	for _, w := range []string{"namespaces", "files", "read-only root", "network", "system calls", "rights", "landlock", "memory", "surroundings", "processes"} {
		if !regexp.MustCompile(`(?m)^ok    sandbox +` + w + `: `).MatchString(out.stdout) {
			t.Errorf("doctor does not tell that the wall %q stands", w)
		}
	}
	if t.Failed() {
		t.Log(out.stdout)
	}
}

func TestHelper_IsNoCommand(t *testing.T) {
	t.Parallel()
	in := install(t, map[string]string{"HOB_SANDBOX_HELPER": "1"})
	if out := in.run("version"); out.code != 0 || !strings.HasPrefix(out.stdout, "hob ") {
		t.Errorf("the variable alone changes the program: exit code %d\n%s", out.code, out.stdout)
	}
	cmd := in.command()
	cmd.Args = []string{"hob-sandbox"}
	if out := in.finish(cmd); out.code != 2 && !strings.Contains(out.stdout, "Commands:") {
		t.Errorf("name and variable, but no socket: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

func TestMetrics_TellOfEachWall(t *testing.T) {
	t.Parallel()
	s := install(t, nil).serve()
	if _, text := coder(t, s.client(), map[string]any{"language": "javascript", "code": "console.log(1)"}); !strings.Contains(text, `"stdout":"1\n"`) {
		t.Fatal(text)
	}
	text := metricsOf(t, s.url)
	for _, w := range []string{"self-test", "network", "landlock", "processes"} {
		mustContain(t, "/metrics", text, fmt.Sprintf("hob_sandbox_wall{wall=%q} 1\n", w))
	}
}

// Files that runs leave are theirs alone who run, whatever their key may do with buckets, and go with the session.
func TestCodeExecute_FilesAreWhoseTheRunIs(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := install(t, map[string]string{"HOB_DATABASE_URL": database}).serve()
			admin, all := s.client(), s.files()
			agent := scripted(t, admin, `call: code_execute {"language":"javascript","code":"require('fs').writeFileSync('/output/a.txt', 'mine')"}
---
text: done
`)
			if _, err := admin.Assign(t.Context(), agent, client.AssignmentInput{ToolName: "code_execute"}); err != nil {
				t.Fatal(err)
			}
			key := func(in client.KeyInput) string {
				k, err := admin.CreateKey(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				return k.Secret
			}
			mine, bound := key(client.KeyInput{Name: "mine"}), key(client.KeyInput{Name: "bound", Agent: agent})
			others := key(client.KeyInput{Name: "others", Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeConfigure}})
			var sessions []hob.SessionID
			for who, secret := range map[string]string{"a default key": mine, "a bound key": bound} {
				c := client.New(s.url, secret)
				run, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
				if err != nil || run.Status != hob.Completed {
					t.Fatalf("%s: %+v, %v", who, run, err)
				}
				sessions = append(sessions, run.SessionID)
				var got ran
				if text := toolResults(t, c, run.RunID)[0]; json.Unmarshal([]byte(text), &got) != nil || len(got.Files) != 1 || got.Error != "" {
					t.Fatalf("%s: %s", who, text)
				}
				res, err := http.Get(got.Files[0].URL)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if string(body) != "mine" {
					t.Errorf("%s: the link gives %d %q", who, res.StatusCode, body)
				}
			}
			listed := func(secret string) int {
				f := &files{t, s.url, secret}
				var rows []struct{ Name string }
				if err := json.Unmarshal(f.must("POST", "object/list/"+hob.OutputBucket, ""), &rows); err != nil {
					t.Fatal(err)
				}
				return len(rows)
			}
			if a, b, c := listed(all.key), listed(mine), listed(others); a != 2 || b != 1 || c != 0 {
				t.Errorf("the operator sees %d files, the key that ran %d, another one %d; want 2, 1, 0", a, b, c)
			}
			for _, id := range sessions {
				if err := admin.DeleteSession(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if n := listed(all.key); n != 0 {
				t.Errorf("%d files outlive their sessions", n)
			}
		})
	}
}
