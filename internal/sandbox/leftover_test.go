package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hob/internal/sandbox"
)

// census counts what a sandbox could leave behind: the processes that descend from one, the mounts and descriptors of this
// process.
type census struct{ processes, mounts, descriptors int }

func count(t testing.TB, root int) census {
	t.Helper()
	var c census
	for _, pid := range descendants(root) {
		if name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil && bytes.HasPrefix(name, []byte("hob-sandbox")) {
			c.processes++
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	c.mounts = bytes.Count(mounts, []byte("\n"))
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	c.descriptors = len(entries)
	return c
}

func descendants(root int) []int {
	all := []int{root}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob("/proc/" + strconv.Itoa(all[i]) + "/task/*/children")
		for _, l := range lists {
			b, _ := os.ReadFile(l)
			for f := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all[1:]
}

// TestCalls_FiveHundredLeaveNothing is not parallel: it counts the descriptors of this process.
func TestCalls_FiveHundredLeaveNothing(t *testing.T) {
	s := open(t, sandbox.Config{})
	programs := []struct {
		language sandbox.Language
		code     string
	}{
		{sandbox.JavaScript, "console.log(1)"},
		{sandbox.Python, "open('/output/a', 'w').write('x')"},
		{sandbox.JavaScript, "throw new Error('x')"},
		{sandbox.JavaScript, "require('fs').writeFileSync('/output/a', 'x')"},
		{sandbox.Python, "import os\nos.fork()"},
	}
	for _, p := range programs {
		run(t, s, p.language, p.code)
	}
	settle := func() census { time.Sleep(time.Second); return count(t, os.Getpid()) }
	before := settle()
	for i := range 500 {
		p := programs[i%len(programs)]
		run(t, s, p.language, p.code)
	}
	after := settle()
	if after != before {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	s.Close()
	if c := count(t, os.Getpid()); c.processes != 0 {
		t.Errorf("%d processes are left behind the end", c.processes)
	}
}

// victimEnv makes the test below play the server that is killed.
const victimEnv = "HOB_TEST_SANDBOX_VICTIM"

func TestKilledServer_LeavesNothing(t *testing.T) {
	if os.Getenv(victimEnv) != "" {
		playVictim(t)
		return
	}
	if _, err := helper(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledServer_LeavesNothing$", "-test.v")
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "RUNNING") {
	}
	pids := descendants(cmd.Process.Pid)
	if len(pids) < 4 { // two programs, each with a helper
		t.Fatalf("only %d processes run", len(pids))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	deadline := time.Now().Add(5 * time.Second)
	for left := pids; len(left) > 0; time.Sleep(20 * time.Millisecond) {
		var still []int
		for _, pid := range left {
			if b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil && len(b) > 0 {
				still = append(still, pid)
			}
		}
		if left = still; time.Now().After(deadline) {
			t.Fatalf("%d processes live on after 5 s", len(left))
		}
	}
}

func playVictim(t *testing.T) {
	s := open(t, sandbox.Config{})
	const code = "import os, time\nos.fork()\nopen('/output/x', 'w').write('x')\ntime.sleep(60)"
	for _, w := range []string{"a", "b"} {
		go func() {
			_, _ = s.Run(context.Background(), sandbox.Request{Workspace: w, Language: sandbox.Python, Code: code, Timeout: 60 * time.Second})
		}()
	}
	for len(descendants(os.Getpid())) < 6 {
		time.Sleep(20 * time.Millisecond)
	}
	_, _ = os.Stdout.WriteString("RUNNING\n")
	time.Sleep(60 * time.Second)
}

func BenchmarkStart(b *testing.B) {
	programs := map[sandbox.Language]string{sandbox.Python: "print(1)", sandbox.JavaScript: "console.log(1)"}
	for _, l := range sandbox.Languages() {
		b.Run(string(l)+"/bare", func(b *testing.B) {
			args := map[sandbox.Language][]string{
				sandbox.Python: {"/usr/bin/python3", "-I", "-S", "-c", programs[l]}, sandbox.JavaScript: {"node", "-e", programs[l]},
			}[l]
			for b.Loop() {
				if err := exec.Command(args[0], args[1:]...).Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
		for name, warm := range map[string]int{"waiting": 2, "cold": 0} {
			b.Run(string(l)+"/"+name, func(b *testing.B) {
				s := open(b, sandbox.Config{Warm: 2})
				run(b, s, l, programs[l])
				for b.Loop() {
					b.StopTimer()
					if warm == 0 {
						s.Close()
						s = open(b, sandbox.Config{})
						if l == sandbox.Python { // the interpreter is looked for once
							_, _ = s.Check(b.Context())
						}
					} else {
						time.Sleep(150 * time.Millisecond)
					}
					b.StartTimer()
					run(b, s, l, programs[l])
				}
			})
		}
	}
}
