package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"hob/internal/sandbox"
)

// helper is the program that the tests' helpers are started from. Test binaries may be built with cgo, which a helper
// cannot be.
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

func TestTry(t *testing.T) {
	s := closed(t, sandbox.Config{})
	walls, err := s.Check(t.Context())
	for _, w := range walls {
		t.Logf("%+v", w)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r := run(t, s, sandbox.Python, "import sys, json\nprint('hi', sys.version)\nopen('/output/a.csv','w').write('1,2')\nprint(1/0)")
		t.Logf("%+v", r)
		r = run(t, s, sandbox.JavaScript, "console.log('hi', [1,2n,{a:new Map([[1,2]])}]); require('fs').writeFileSync('/output/x.txt','é'); await new Promise(r=>setTimeout(r,20)); async function f(){ throw new Error('boo') } f()")
		t.Logf("%+v", r)
	}
}
