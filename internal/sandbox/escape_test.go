package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hob/internal/sandbox"
)

// pyTry and jsTry run one attempt and say how it went.
const (
	pyTry = "import os, sys, socket, ctypes, errno, struct\n" +
		"libc = ctypes.CDLL(None, use_errno=True)\n" +
		"def call(*a):\n    r = libc.syscall(*a)\n    if r == -1: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n    return r\n" +
		"def attempt(f):\n    try: v = f()\n    except BaseException as e: print('CONTAINED', type(e).__name__, e)\n    else: print('ESCAPED', v)\n"
	jsTry = "const fs = require('fs');\n" +
		"const attempt = f => { let v; try { v = f() } catch (e) { console.log('CONTAINED', String(e)); return } console.log('ESCAPED', v) };\n"
)

func TestEscapes_AreContained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.txt")
	if err := os.WriteFile(secret, []byte("top secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{}, 1)
	go func() {
		if c, err := listener.Accept(); err == nil {
			_ = c.Close()
			reached <- struct{}{}
		}
	}()
	py := map[string]string{
		"read a file":       fmt.Sprintf("attempt(lambda: open(%q).read())", secret),
		"read passwords":    "attempt(lambda: open('/etc/shadow').read())",
		"list the root":     "attempt(lambda: os.listdir('/'))",
		"list home":         "attempt(lambda: os.listdir('/root'))",
		"read proc":         "attempt(lambda: open('/proc/1/environ').read())",
		"read own maps":     "attempt(lambda: open('/proc/self/maps').read())",
		"read sys":          "attempt(lambda: os.listdir('/sys'))",
		"list devices":      "attempt(lambda: os.listdir('/dev'))",
		"raw memory":        "attempt(lambda: open('/dev/mem', 'rb').read(1))",
		"write the root":    "attempt(lambda: open('/x', 'w'))",
		"write the library": "attempt(lambda: open(os.__file__, 'a'))",
		"write beside":      "attempt(lambda: open('/wall/x', 'w'))",
		"link to a file":    fmt.Sprintf("os.symlink(%q, '/output/link')\nattempt(lambda: open('/output/link').read())", secret),
		"climb":             "attempt(lambda: os.listdir('/output/../../../../root'))",
		"chroot":            "attempt(lambda: os.chroot('/tmp'))",
		"tcp":               fmt.Sprintf("attempt(lambda: socket.create_connection(('127.0.0.1', %d), 2))", listener.Addr().(*net.TCPAddr).Port),
		"udp":               "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))",
		"ipv6":              "attempt(lambda: socket.socket(socket.AF_INET6))",
		"unix socket":       "attempt(lambda: socket.socket(socket.AF_UNIX))",
		"netlink":           "attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
		"vsock":             "attempt(lambda: socket.socket(40, socket.SOCK_STREAM))",
		"packet":            "attempt(lambda: socket.socket(17, socket.SOCK_RAW))",
		"resolve":           "attempt(lambda: socket.gethostbyname('example.com'))",
		"download":          "import urllib.request\nattempt(lambda: urllib.request.urlopen('http://169.254.169.254/', timeout=2))",
		"become root":       "attempt(lambda: os.setuid(1))",
		"mount":             "attempt(lambda: call(165, b'none', b'/tmp', b'tmpfs', 0, 0))",
		"unshare":           "attempt(lambda: call(272, 0x10000000))",
		"clone a namespace": "attempt(lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0))",
		"clone, high bits":  "attempt(lambda: call(56, ctypes.c_ulong((5 << 32) | 0x10000000 | 17), 0, 0, 0, 0))",
		"clone3":            "attempt(lambda: call(435, ctypes.create_string_buffer(88), 88))",
		"setns":             "attempt(lambda: call(308, 0, 0))",
		"ptrace":            "attempt(lambda: call(101, 16, 1, 0, 0))",
		"read another":      "attempt(lambda: call(310, 1, 0, 0, 0, 0, 0))",
		"keyring":           "attempt(lambda: call(250, 0, -3, 1))",
		"bpf":               "attempt(lambda: call(321, 0, 0, 0))",
		"perf":              "attempt(lambda: call(298, 0, 0, -1, -1, 0))",
		"io_uring":          "attempt(lambda: call(425, 1, ctypes.create_string_buffer(120)))",
		"userfaultfd":       "attempt(lambda: call(323, 1))",
		"module":            "attempt(lambda: call(313, 0, b'', 0))",
		"memfd":             "attempt(lambda: call(319, b'x', 0))",
		"device node":       "attempt(lambda: os.mknod('/tmp/mem', 0o20666, os.makedev(1, 1)))",
		"drop the limits":   "import resource\nattempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)))",
		"host name":         "attempt(lambda: call(170, b'x', 1))",
		"set the clock":     "import time\nattempt(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))",
		"run what it wrote": "open('/tmp/x', 'w').write('#!/usr/bin/python3\\n'); os.chmod('/tmp/x', 0o755)\nattempt(lambda: os.execv('/tmp/x', ['x']))",
		"run a shell":       "attempt(lambda: os.execv('/bin/sh', ['sh', '-c', 'id']))",
		"kill the helper":   "import signal, time\nos.kill(1, signal.SIGKILL); time.sleep(0.2)\nprint('CONTAINED still here')",
		"stop the helper":   "import signal, time\nfor n in range(1, 65):\n    for p in range(1, 16):\n        if p == os.getpid() or n in (9, 18, 19, 20, 21, 22) and p != 1: continue\n        try: os.kill(p, n)\n        except OSError: pass\ntime.sleep(0.2)\nprint('CONTAINED still here')",
		"signal its group":  "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.kill(0, signal.SIGTERM)\ntry: os.kill(-1, signal.SIGTERM)\nexcept ProcessLookupError: pass\ntime.sleep(0.2)\nprint('CONTAINED still here')",
		"join its group":    "attempt(lambda: os.setpgid(0, 1))",
		"its limits":        "import resource\nattempt(lambda: resource.prlimit(1, resource.RLIMIT_CPU, (0, 0)))",
		"socket pair":       "attempt(lambda: socket.socketpair())",
		"shared memory":     "import mmap\nattempt(lambda: mmap.mmap(-1, 4096))",
		"shared zeros":      "import mmap\nattempt(lambda: mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096))",
		"epoll":             "import select\nattempt(lambda: select.epoll())",
		"eventfd":           "attempt(lambda: call(290, 0, 0))",
		"timerfd":           "attempt(lambda: call(283, 0, 0))",
		"signalfd":          "attempt(lambda: call(289, -1, ctypes.create_string_buffer(8), 8, 0))",
		"inotify":           "attempt(lambda: call(294, 0))",
		"fanotify":          "attempt(lambda: call(300, 0, 0))",
		"message queue":     "attempt(lambda: call(240, b'x', 0o102, 0o600, None))",
		"system v messages": "attempt(lambda: call(68, 0, 0o1600))",
		"system v sets":     "attempt(lambda: call(64, 0, 100, 0o1600))",
		"system v segment":  "attempt(lambda: call(29, 0, 4096, 0o1600))",
		"larger pipes":      "import fcntl\nr, w = os.pipe()\nattempt(lambda: fcntl.fcntl(w, 1031, 1 << 20))",
		"pages into a pipe": "r, w = os.pipe()\nf = os.open('/tmp/s', os.O_RDWR | os.O_CREAT)\nos.write(f, b'x' * 4096)\nattempt(lambda: call(275, f, ctypes.byref(ctypes.c_long(0)), w, None, 4096, 0))",
		"memory into pipes": "r, w = os.pipe()\nattempt(lambda: call(278, w, None, 0, 0))",
		"locks of a file":   "import fcntl, struct\nf = open('/tmp/l', 'w')\nattempt(lambda: fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 1, 0)))",
		"leases":            "import fcntl\nf = open('/tmp/l', 'w')\nattempt(lambda: fcntl.fcntl(f, 1024, fcntl.F_WRLCK))",
		"attributes":        "attempt(lambda: os.setxattr('/tmp', 'user.x', b'x'))",
		"forget children":   "import signal\nattempt(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))",
		"children unwaited": "attempt(lambda: call(13, 17, ctypes.create_string_buffer(struct.pack('QQQQ', 0, 2 | 0x4000000, 0, 0)), None, 8))",
		"further filters":   "attempt(lambda: call(317, 1, 0, None))",
		"other processes":   "attempt(lambda: [os.kill(p, 0) for p in range(2, 5000) if p != os.getpid()])",
		"the environment":   "bad = sorted(set(os.environ) - {'HOME', 'TMPDIR', 'PATH', 'LANG', 'USER', 'LD_LIBRARY_PATH', 'MALLOC_ARENA_MAX', 'LC_CTYPE'})\nprint('ESCAPED' if bad else 'CONTAINED', bad)",
		"packages beside":   "sys.path.append('/usr/lib/python3/dist-packages')\nattempt(lambda: __import__('apt'))",
	}
	py["what is inherited"] = "import fcntl\ndef is_open(f):\n    try: fcntl.fcntl(f, 1); return True\n    except OSError: return False\nbad = [f for f in range(4, 256) if is_open(f)]\nprint('ESCAPED' if bad else 'CONTAINED', bad)"
	js := map[string]string{
		"read a file":     fmt.Sprintf("attempt(() => fs.readFileSync(%q, 'utf8'))", secret),
		"list the root":   "attempt(() => fs.readdirSync('/'))",
		"climb":           "attempt(() => fs.readdirSync('/output/../../root'))",
		"read proc":       "attempt(() => fs.readFileSync('/proc/self/environ'))",
		"the device":      "attempt(() => fs.readFileSync('/dev/zero'))",
		"write the root":  "attempt(() => fs.writeFileSync('/etc/passwd', 'x'))",
		"write beside":    "attempt(() => fs.writeFileSync('/wall/x', 'x'))",
		"sockets":         "attempt(() => require('net'))",
		"processes":       "attempt(() => require('child_process').execSync('id'))",
		"fetch":           "attempt(() => fetch('http://127.0.0.1/'))",
		"the host's own":  "attempt(() => __write(1, 'x'))",
		"std of quickjs":  "attempt(() => std.loadFile('/etc/passwd'))",
		"os of quickjs":   "attempt(() => os.exec(['/bin/sh']))",
		"constructor":     "const e = (function () {}).constructor('return Object.keys(globalThis).filter(n => n.startsWith(\"__\") && n !== \"__turn\" && n !== \"__watch\").join()')(); console.log(e === '' ? 'CONTAINED' : 'ESCAPED ' + e)",
		"the environment": "console.log(Object.keys(process.env).length === 0 ? 'CONTAINED' : 'ESCAPED')",
	}
	check := func(t *testing.T, l sandbox.Language, code string) {
		t.Parallel()
		r := run(t, theShared(t), l, code)
		whole := r.Stdout + r.Stderr
		if !strings.Contains(whole, "CONTAINED") || strings.Contains(whole, "ESCAPED") || strings.Contains(whole, "top secret") {
			t.Errorf("%s\n%+v", code, r)
		}
		for _, f := range r.Files {
			t.Errorf("the file %s came out", f.Name)
		}
	}
	t.Run("programs", func(t *testing.T) {
		for name, code := range py {
			t.Run("py "+name, func(t *testing.T) { check(t, sandbox.Python, pyTry+code) })
		}
		for name, code := range js {
			t.Run("js "+name, func(t *testing.T) { check(t, sandbox.JavaScript, jsTry+code) })
		}
	})
	_ = listener.Close()
	select {
	case <-reached:
		t.Error("a program reached a listener of this machine")
	default:
	}
}

func TestResultFiles_AreRegularOnesOnly(t *testing.T) {
	t.Parallel()
	r := run(t, theShared(t), sandbox.Python, "import os, socket\nos.symlink('/etc/passwd', '/output/link')\nos.symlink('/', '/output/dir')\n"+
		"open('/output/bad\\nname', 'w')\nopen('/output/\\x1b[31m', 'w')\nopen('/output/ok', 'w').write('1')\n"+
		"os.makedirs('/output/' + '/'.join('d' * 12))\nopen('/output/' + '/'.join('d' * 12) + '/deep', 'w')\nopen('/output/closed', 'w').close()\nos.chmod('/output/closed', 0)\nopen(b'/output/\\xff', 'w')")
	var names []string
	for _, f := range r.Files {
		names = append(names, f.Name)
	}
	// Root may read what nobody may.
	got := strings.TrimPrefix(strings.Join(names, " "), "closed ")
	if got != "ok" || len(r.Skipped) < 6 || r.ExitCode != 0 {
		t.Errorf("files %q\nskipped %q\n%s", names, r.Skipped, r.Stderr)
	}
}

func TestCalls_LeaveNothingForTheNext(t *testing.T) {
	t.Parallel()
	s := open(t, sandbox.Config{Warm: 1})
	for _, l := range sandbox.Languages() {
		code := map[sandbox.Language][2]string{
			sandbox.Python: {
				"import os, builtins, subprocess, sys\nopen('/tmp/left', 'w').write('x'); open('/output/left', 'w').write('x'); builtins.left = 1; os.environ['LEFT'] = '1'\n" +
					"subprocess.Popen([sys.executable, '-c', 'import time\\ntime.sleep(60)'], start_new_session=True)",
				"import os, builtins\nprint(os.listdir('/output'), sorted(os.listdir('/tmp')), hasattr(builtins, 'left'), 'LEFT' in os.environ, os.getpid() < 100)",
			},
			sandbox.JavaScript: {
				"globalThis.left = 1; Array.prototype.left = 1; require('fs').writeFileSync('/tmp/left', 'x'); require('fs').writeFileSync('/output/left', 'x')",
				"console.log(typeof left, typeof [].left, require('fs').readdirSync('/tmp'), require('fs').readdirSync('/output'))",
			},
		}[l]
		want := map[sandbox.Language]string{sandbox.Python: "[] ['main.py'] False False True\n", sandbox.JavaScript: "undefined undefined [] []\n"}[l]
		for range 3 {
			if r := run(t, s, l, code[0]); r.ExitCode != 0 {
				t.Fatalf("%s: %+v", l, r)
			}
			if r := run(t, s, l, code[1]); r.Stdout != want {
				t.Errorf("%s: %q, want %q (%s)", l, r.Stdout, want, r.Stderr)
			}
		}
	}
}
