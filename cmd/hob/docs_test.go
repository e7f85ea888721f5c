package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testedBlock is a block of commands in the documentation that is marked for this test.
var testedBlock = regexp.MustCompile("(?s)<!-- test -->\n```sh\n(.*?)```")

// TestDocs_CommandsWork runs the marked commands of the user's pages against a fresh server per page, as a reader would
// with a copy of the page, and then once more, as a reader would who comes back to it. An answer that is an error fails them.
func TestDocs_CommandsWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Fatal("openssl is missing; install it with: apt-get install openssl")
	}
	for _, page := range []string{"README.md", "docs/api.md", "docs/agents.md", "docs/usage.md", "docs/tool-console.md", "docs/probing.md", "docs/backup.md", "docs/storage.md", "docs/tools.md", "docs/web-kind.md", "docs/database-tools.md", "docs/web-tools.md", "docs/sandbox.md", "docs/hooks.md", "docs/approvals.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("..", "..", page))
			if err != nil {
				t.Fatal(err)
			}
			blocks := testedBlock.FindAllStringSubmatch(string(text), -1)
			if len(blocks) == 0 {
				t.Fatalf("%s has no block marked <!-- test -->", page)
			}
			port := unusedPort(t)
			in := install(t, map[string]string{
				"HOB_JWT_SECRET": "only-for-this-test-0123456789abcdef", "HOB_EGRESS_ALLOW": "127.0.0.1:" + port,
			})
			s := in.serve()
			shell := readerOf(t, in, s)
			for _, round := range []string{"first", "second"} {
				for i, block := range blocks {
					cmd := exec.Command("bash", "-euo", "pipefail", "-c", block[1])
					cmd.Dir, cmd.Env = shell.Dir, append(slices.Clone(shell.Env), "PORT="+port) // where a page serves something
					out := in.on(t).finish(cmd)
					failed := strings.Contains(out.stdout, `"is_error":true`) && page != "docs/tool-console.md" // which shows one
					if out.code != 0 || strings.TrimSpace(out.stdout) == "" || failed {
						t.Errorf("block %d of %s, the %s time: exit code %d\n%s\n%s%s", i+1, page, round, out.code, block[1], out.stdout, out.stderr)
					}
				}
			}
		})
	}
}

// TestReadme_TheRunSurvivesTheKill does what the README shows.
func TestReadme_TheRunSurvivesTheKill(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	in := install(t, nil)
	s := in.serve()
	shell := readerOf(t, in, s)
	if err := os.Symlink(in.dir, filepath.Join(shell.Dir, "hob-data")); err != nil {
		t.Fatal(err)
	}
	follow := func(mark string) output {
		block := regexp.MustCompile("(?s)<!-- test: " + mark + " -->\n```sh\n(.*?)```").FindStringSubmatch(string(text))
		if block == nil {
			t.Fatalf("the README has no block marked %q", mark)
		}
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", block[1])
		cmd.Dir, cmd.Env = shell.Dir, shell.Env
		return in.finish(cmd)
	}
	if out := follow("kill"); out.code != 0 {
		t.Fatalf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	<-s.ended
	in.serve() // at the same address
	out := follow("restarted")
	if n := strings.Count(out.stdout, `"event":"tool_result"`); n != 1 {
		t.Errorf("the tool's result is there %d times, want 1", n)
	}
	mustContain(t, "the events", out.stdout, `"event":"attempt"`, `"content":"I looked at `, `"status":"completed"`)
}

// unusedPort is a port of this machine that nobody listens on.
func unusedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// readerOf is the shell of somebody who follows the pages: hob is at hand, and curl fails when it gets an error.
func readerOf(t *testing.T, in *installation, s *serving) *exec.Cmd {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal("curl is missing; install it with: apt-get install curl")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(bin, "hob")); err != nil {
		t.Fatal(err)
	}
	strict := "#!/bin/sh\nexec " + curl + " --fail-with-body \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "curl"), []byte(strict), 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(in.dir, "service.key"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := in.command()
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "HOB_URL="+s.url, "HOB_KEY="+strings.TrimSpace(string(key)))
	return cmd
}

// TestNode_ClientsReadTheStreams runs a JavaScript client against the server.
func TestNode_ClientsReadTheStreams(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is missing; install it with: apt-get install nodejs")
	}
	in := install(t, nil)
	s := in.serve()
	cmd := exec.Command(node, "testdata/client.mjs")
	cmd.Env = readerOf(t, in, s).Env
	if out := in.finish(cmd); out.code != 0 || out.stdout != "ok\n" {
		t.Errorf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}
