package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hob/internal/sandbox"
)

// helper is the program that the tests' helpers are started from, small and built as hob is.
var helper = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hob-sandbox-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "helper")
	build := exec.Command("go", "build", "-o", path, "./testdata/helper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if s, err := shared(); err == nil {
		s.Close()
	}
	if path, err := helper(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// closed makes a sandbox whose walls were not tried yet.
func closed(t testing.TB, c sandbox.Config) *sandbox.Sandbox {
	t.Helper()
	var err error
	if c.Program, err = helper(); err != nil {
		t.Fatal(err)
	}
	s := sandbox.New(c)
	t.Cleanup(s.Close)
	return s
}

// open makes a sandbox for a test. CI has everything that its walls need, so a wall that is missing is a fault.
func open(t testing.TB, c sandbox.Config) *sandbox.Sandbox {
	t.Helper()
	s := closed(t, c)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatalf("the sandbox is off: %v", err)
	}
	return s
}

func run(t testing.TB, s *sandbox.Sandbox, l sandbox.Language, code string) sandbox.Result {
	t.Helper()
	return runFor(t, s, l, code, 20*time.Second)
}

func runFor(t testing.TB, s *sandbox.Sandbox, l sandbox.Language, code string, d time.Duration) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	r, err := s.Run(ctx, sandbox.Request{Workspace: t.Name(), Language: l, Code: code, Timeout: d})
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return r
}

// shared is the sandbox of the tests that only run programs: it takes many at once.
var shared = sync.OnceValues(func() (*sandbox.Sandbox, error) {
	path, err := helper()
	if err != nil {
		return nil, err
	}
	return sandbox.New(sandbox.Config{Program: path, Limits: sandbox.Limits{Waiting: 1000, Wait: time.Minute, PerWorkspace: 4}}), nil
})

func theShared(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Fatalf("the sandbox is off: %v", err)
	}
	return s
}

func TestWalls_AllStandHere(t *testing.T) {
	t.Parallel()
	walls, err := closed(t, sandbox.Config{}).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, w := range walls {
		names[w.Name] = true
		if !w.OK && !w.Extra {
			t.Errorf("%s: %s (%s)", w.Name, w.Detail, w.Fix)
		}
	}
	for _, name := range []string{
		"namespaces", "time namespace", "files", "read-only root", "network", "system calls", "rights", "landlock", "memory",
		"surroundings", "processes",
	} {
		if !names[name] {
			t.Errorf("the wall %q was not tried", name)
		}
	}
}

func TestWalls_OneThatIsMissingTurnsItOffAndIsNamed(t *testing.T) {
	t.Parallel()
	for without, weak := range map[string]bool{"landlock": true, "limits": true, "seccomp": false} {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			c := sandbox.Config{Without: []string{without}}
			_, err := closed(t, c).Run(t.Context(), sandbox.Request{Language: sandbox.JavaScript, Code: "1"})
			var off *sandbox.OffError
			if !errors.As(err, &off) || off.Missing == "" || off.Reason == "" || off.Fix == "" {
				t.Fatalf("without %s: %v", without, err)
			}
			c.Weak = true
			_, err = closed(t, c).Run(t.Context(), sandbox.Request{Language: sandbox.JavaScript, Code: "1"})
			if weak && err != nil {
				t.Errorf("weak, without %s: %v", without, err)
			}
			if !weak && !errors.As(err, &off) {
				t.Errorf("weak, without %s: it ran all the same (%v)", without, err)
			}
		})
	}
}

func TestPython_OfAMachineWithoutItIsNotAllowedAndJavaScriptIs(t *testing.T) {
	t.Parallel()
	s := open(t, sandbox.Config{NoPython: true})
	_, err := s.Run(t.Context(), sandbox.Request{Language: sandbox.Python, Code: "print(1)"})
	var language *sandbox.LanguageError
	if !errors.As(err, &language) || !strings.Contains(err.Error(), "allowed: javascript") {
		t.Errorf("python: %v", err)
	}
	if r := run(t, s, sandbox.JavaScript, "console.log(1)"); r.Stdout != "1\n" {
		t.Errorf("javascript: %+v", r)
	}
	_, err = s.Run(t.Context(), sandbox.Request{Language: "ruby", Code: "1"})
	if !errors.As(err, &language) {
		t.Errorf("ruby: %v", err)
	}
}

func TestClose_EndsCallsUnderWayAndRefusesOthers(t *testing.T) {
	t.Parallel()
	s := open(t, sandbox.Config{})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(context.Background(), sandbox.Request{Language: sandbox.Python, Code: "import time\ntime.sleep(60)", Timeout: time.Minute})
		ended <- err
	}()
	time.Sleep(500 * time.Millisecond)
	s.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a call that was cut off has no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a call goes on")
	}
	if _, err := s.Run(t.Context(), sandbox.Request{Language: sandbox.Python, Code: "1"}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("a call behind the end: %v", err)
	}
}

func TestRun_EndsWithItsCaller(t *testing.T) {
	t.Parallel()
	s := theShared(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	began := time.Now()
	_, err := s.Run(ctx, sandbox.Request{Language: sandbox.Python, Code: "while True: pass", Timeout: time.Minute})
	if !errors.Is(err, context.Canceled) || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
