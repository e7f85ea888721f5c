package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun_PassesTheClusterAndTheExitCode(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run([]string{"--", "sh", "-c", `cat; echo "$HOB_TEST_POSTGRES"; exit 7`},
		stdio{strings.NewReader("from stdin\n"), &out, &errs})
	if code != 7 {
		t.Errorf("exit code %d, want 7 (%s)", code, errs.String())
	}
	if got := out.String(); !strings.HasPrefix(got, "from stdin\npostgres://postgres@127.0.0.1:") {
		t.Errorf("output %q, want stdin and the cluster's URL", got)
	}
}

func TestRun_RefusesBadCommands(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want int
	}{{nil, exitUsage}, {[]string{"--"}, exitUsage}, {[]string{"/nonexistent/command"}, exitNotStarted}, {[]string{"sh", "-c", "kill -9 $$"}, 128 + 9}} {
		var errs bytes.Buffer
		if got := run(tc.args, stdio{nil, &errs, &errs}); got != tc.want {
			t.Errorf("run(%q) = %d, want %d (%s)", tc.args, got, tc.want, errs.String())
		}
	}
}
