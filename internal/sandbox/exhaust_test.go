package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hob/internal/sandbox"
)

func TestExhaustion_MeetsItsLimit(t *testing.T) {
	t.Parallel()
	s := open(t, sandbox.Config{Limits: sandbox.Limits{
		CPU: 3 * time.Second, Memory: 128 << 20, Processes: 32, Output: 64 << 10, Disk: 16 << 20, Inodes: 200, Files: 5, FileSize: 1 << 20,
		PerWorkspace: 4,
	}})
	tests := map[string]struct {
		language sandbox.Language
		code     string
		limit    sandbox.Limit
		timeout  time.Duration
	}{
		"py sleeps":          {"python", "import time\nprint('begun')\ntime.sleep(60)", sandbox.LimitTime, time.Second},
		"py spins":           {"python", "while True: pass", sandbox.LimitCPU, 60 * time.Second},
		"py ignores signals": {"python", "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass", sandbox.LimitCPU, 60 * time.Second},
		"py spins in many":   {"python", "import os\nfor _ in range(3): os.fork()\nwhile True: pass", sandbox.LimitCPU, 60 * time.Second},
		"py big integer":     {"python", "print(len(str(9 ** 9 ** 9)))", sandbox.LimitCPU, 60 * time.Second},
		"py regex":           {"python", "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')", sandbox.LimitCPU, 60 * time.Second},
		"py memory":          {"python", "x = bytearray(1 << 30)", sandbox.LimitMemory, 30 * time.Second},
		"py memory, slowly":  {"python", "x = []\nwhile True: x.append('x' * 100000)", sandbox.LimitMemory, 30 * time.Second},
		"py memory of many":  {"python", "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n        time.sleep(30)\ntime.sleep(30)", sandbox.LimitMemory, 30 * time.Second},
		"py forks":           {"python", "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(30)", sandbox.LimitProcesses, 30 * time.Second},
		"py threads":         {"python", "import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()", sandbox.LimitProcesses, 30 * time.Second},
		"py mappings":        {"python", "import ctypes, os, time\nl = ctypes.CDLL(None)\nl.mmap.restype = ctypes.c_void_p\nl.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\np = l.mmap(None, 80 << 20, 0, 0x22, -1, 0)\nfor i in range(0, 80 << 20, 8192): l.mprotect(p + i, 4096, 1)\nfor _ in range(4):\n    if os.fork() == 0: time.sleep(30)\ntime.sleep(30)", sandbox.LimitMemory, 30 * time.Second},
		"py locks":           {"python", "import fcntl, time\nf = open('/tmp/l', 'w')\nfor i in range(1100): fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * i)\ntime.sleep(30)", sandbox.LimitFiles, 30 * time.Second},
		"py unseen children": {"python", "import os, time\nwhile True:\n    if os.fork() == 0:\n        e = time.process_time() + 0.02\n        while time.process_time() < e: pass\n        os._exit(0)\n    os.wait()", sandbox.LimitCPU, 60 * time.Second},
		"py orphans":         {"python", "import os, time\nfor _ in range(20):\n    p = os.fork()\n    if p == 0:\n        if os.fork() == 0:\n            e = time.process_time() + 0.3\n            while time.process_time() < e: pass\n        os._exit(0)\n    os.waitpid(p, 0)\ntime.sleep(30)", sandbox.LimitCPU, 60 * time.Second},
		"py prints":          {"python", "for _ in range(100000): print('x' * 100)", sandbox.LimitOutput, 30 * time.Second},
		"py prints errors":   {"python", "import sys\nsys.stderr.write('x' * 1000000)", sandbox.LimitOutput, 30 * time.Second},
		"py disk":            {"python", "with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", sandbox.LimitDisk, 30 * time.Second},
		"py inodes":          {"python", "for i in range(100000): open('/tmp/%d' % i, 'w').close()", sandbox.LimitDisk, 30 * time.Second},
		"py many files":      {"python", "for i in range(30): open('/output/%02d' % i, 'w').write('x')", sandbox.LimitFiles, 30 * time.Second},
		"py large file":      {"python", "open('/output/x', 'wb').write(bytes(2 << 20))", sandbox.LimitFileSize, 30 * time.Second},
		"py holes":           {"python", "f = open('/output/x', 'wb'); f.truncate(15 << 20); f.close()", sandbox.LimitFileSize, 30 * time.Second},
		"js sleeps":          {"javascript", "console.log('begun'); setTimeout(() => {}, 60000)", sandbox.LimitTime, time.Second},
		"js spins":           {"javascript", "for (;;) {}", sandbox.LimitCPU, 60 * time.Second},
		"js spins in jobs":   {"javascript", "for (;;) await null", sandbox.LimitCPU, 60 * time.Second},
		"js regex":           {"javascript", "/(a+)+$/.test('a'.repeat(64) + 'b')", sandbox.LimitCPU, 60 * time.Second},
		"js memory":          {"javascript", "const x = []; for (;;) x.push('x'.repeat(100000) + x.length)", sandbox.LimitMemory, 30 * time.Second},
		"js buffers":         {"javascript", "const x = []; for (;;) x.push(new Uint8Array(1 << 20).fill(1))", sandbox.LimitMemory, 30 * time.Second},
		"js prints":          {"javascript", "for (let i = 0; i < 20000; i++) console.log('x'.repeat(100))", sandbox.LimitOutput, 30 * time.Second},
		"js disk":            {"javascript", "for (let i = 0; ; i++) require('fs').writeFileSync('/tmp/' + i, 'x'.repeat(1000000))", sandbox.LimitDisk, 30 * time.Second},
		"js many files":      {"javascript", "for (let i = 0; i < 30; i++) require('fs').writeFileSync('/output/f' + i, 'x')", sandbox.LimitFiles, 30 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runFor(t, s, tt.language, tt.code, tt.timeout)
			if !slices.ContainsFunc(r.Limits, func(e *sandbox.LimitError) bool { return e.Limit == tt.limit && e.Text != "" }) {
				t.Errorf("met %v, want %s\nexit code %d after %s\n%.300s\n%.600s", r.Limits, tt.limit, r.ExitCode, r.Took, r.Stdout, r.Stderr)
			}
			if len(r.Stdout)+len(r.Stderr) > 64<<10 || len(r.Files) > 5 {
				t.Errorf("%d bytes of output, %d files", len(r.Stdout)+len(r.Stderr), len(r.Files))
			}
			if tt.limit == sandbox.LimitOutput && !r.Truncated {
				t.Error("that output is missing is not said")
			}
			if tt.limit == sandbox.LimitTime && (r.Stdout != "begun\n" || r.ExitCode != 137) {
				t.Errorf("what was printed before the end is lost: %q, exit code %d", r.Stdout, r.ExitCode)
			}
		})
	}
}

func TestRecursion_EndsInAnErrorOfTheProgram(t *testing.T) {
	t.Parallel()
	for l, code := range map[sandbox.Language]string{
		sandbox.Python: "def f(): return f()\nf()", sandbox.JavaScript: "const f = () => f() + 1; f()",
	} {
		if r := run(t, theShared(t), l, code); r.ExitCode != 1 || r.Stderr == "" {
			t.Errorf("%s: exit code %d\n%.300s", l, r.ExitCode, r.Stderr)
		}
	}
}

func TestCode_HasALimit(t *testing.T) {
	t.Parallel()
	s := closed(t, sandbox.Config{Limits: sandbox.Limits{Code: 100}})
	_, err := s.Run(t.Context(), sandbox.Request{Language: sandbox.Python, Code: strings.Repeat("#", 101)})
	var limit *sandbox.LimitError
	if !errors.As(err, &limit) || limit.Limit != sandbox.LimitCode {
		t.Errorf("got %v", err)
	}
}

func TestTimeout_IsClamped(t *testing.T) {
	t.Parallel()
	l := sandbox.DefaultLimits()
	for asked, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, -1: 30 * time.Second, time.Millisecond: time.Second, time.Minute: time.Minute, time.Hour: 300 * time.Second,
	} {
		if got := l.Clamp(asked); got != want {
			t.Errorf("%s: %s, want %s", asked, got, want)
		}
	}
}

// What a program can leave in pipes is bounded by the kernel, for its user: as many bytes as pipe-user-pages-soft says, and two
// pages in each pipe beyond.
func TestPipes_HoldNoMoreThanTheirBound(t *testing.T) {
	t.Parallel()
	r := run(t, theShared(t), sandbox.Python, `import os, time
r, w = os.pipe()
for _ in range(24):
    if os.fork() == 0:
        n, keep = 0, []
        try:
            while True:
                p = os.pipe(); keep.append(p); os.set_blocking(p[1], False)
                try:
                    while True: n += os.write(p[1], b'x' * 4096)
                except BlockingIOError: pass
        except OSError: pass
        os.write(w, b'%d ' % n); time.sleep(2); os._exit(0)
total, seen = 0, b''
while seen.count(b' ') < 24: seen += os.read(r, 4096)
print(sum(map(int, seen.split())) >> 20)`)
	mb, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
	if err != nil || mb > 96 {
		t.Errorf("%q MB in pipes, at most 96 are documented\n%+v", r.Stdout, r)
	}
}

func TestQueue_NoWorkspaceTakesAllPlaces(t *testing.T) {
	t.Parallel()
	s := open(t, sandbox.Config{Limits: sandbox.Limits{
		PerWorkspace: 1, Global: 1, Waiting: 4, WaitingPerWorkspace: 2, Wait: time.Minute,
	}})
	var calls sync.WaitGroup
	var mu sync.Mutex
	var order []string
	start := func(workspace, code string) chan error {
		ended := make(chan error, 1)
		calls.Go(func() {
			_, err := s.Run(t.Context(), sandbox.Request{Workspace: workspace, Language: sandbox.JavaScript, Code: code})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				order = append(order, workspace)
			}
			ended <- err
		})
		time.Sleep(50 * time.Millisecond)
		return ended
	}
	const nap = "await new Promise(r => setTimeout(r, 1000))"
	start("a", nap)
	start("a", "1")
	start("a", "1")
	if err := <-start("a", "1"); !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("a third call that would wait, of a workspace that may have two: %v", err)
	}
	start("b", "1") // comes last, and is no third
	calls.Wait()
	if got := strings.Join(order, ""); got != "abaa" {
		t.Errorf("turns were given in the order %s, want abaa", got)
	}
}

func TestQueue_IsBoundedForAWorkspaceAndForAll(t *testing.T) {
	t.Parallel()
	s := open(t, sandbox.Config{Limits: sandbox.Limits{PerWorkspace: 1, Global: 2, Waiting: 2, Wait: 500 * time.Millisecond}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const sleep = "import time\ntime.sleep(30)"
	var calls sync.WaitGroup
	start := func(workspace string) chan error {
		ended := make(chan error, 1)
		calls.Go(func() {
			_, err := s.Run(ctx, sandbox.Request{Workspace: workspace, Language: sandbox.Python, Code: sleep, Timeout: time.Minute})
			ended <- err
		})
		time.Sleep(100 * time.Millisecond)
		return ended
	}
	a := start("a")
	if err := <-start("a"); !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("a second call of a workspace that may have one: %v", err)
	}
	b := start("b")
	if err := <-start("c"); !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("a third call where there may be two: %v", err)
	}
	waiting := []chan error{start("d"), start("e")}
	began := time.Now()
	if err := <-start("f"); !errors.Is(err, sandbox.ErrBusy) || time.Since(began) > 400*time.Millisecond {
		t.Errorf("a call where two wait already: %v after %s", err, time.Since(began))
	}
	for _, w := range waiting {
		if err := <-w; !errors.Is(err, sandbox.ErrBusy) {
			t.Errorf("a call that waited: %v", err)
		}
	}
	cancel()
	for _, ended := range []chan error{a, b} {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose caller left: %v", err)
		}
	}
	calls.Wait()
	if _, err := s.Run(t.Context(), sandbox.Request{Workspace: "a", Language: sandbox.Python, Code: "1"}); err != nil {
		t.Errorf("behind them: %v", err)
	}
}
