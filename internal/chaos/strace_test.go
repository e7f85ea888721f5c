//go:build linux

package main

import (
	"strings"
	"testing"

	"hob"
)

// The pieces of a trace: the log's header, frames of a transaction, the sync, and the answer to the client.
const (
	tracedWAL  = "/d/hob.db-wal"
	tracedAddr = "127.0.0.1:1"
	walStart   = `7  pwrite64(11</d/hob.db-wal>, "7\177\6\202"..., 32, 0) = 32`
	frameMore  = `7  pwrite64(11</d/hob.db-wal>, "\0\0\0\5\0\0\0\0SALTSALTCHCKCHCK", 24, 32) = 24`
	frameLast  = `7  pwrite64(11</d/hob.db-wal>, "\0\0\0\5\0\0\0\22SALTSALTCHCKCHCK", 24, 32) = 24`
	pageRun    = `7  pwrite64(11</d/hob.db-wal>, "\r\0\0\0run_1\0", 4096, 56) = 4096`
	pageOther  = `7  pwrite64(11</d/hob.db-wal>, "\r\0\0\0", 4096, 56) = 4096`
	synced     = `7  fsync(11</d/hob.db-wal>) = 0`
	told       = `8  write(15<TCP:[127.0.0.1:1->127.0.0.1:2]>, "HTTP/1.1 200 OK\r\n\r\ndata: {\"event\":\"start\",\"run_id\":\"run_1\"}\n\n", 70) = 70`
)

func order(t *testing.T, lines ...string) (bad []string, held int) {
	t.Helper()
	o := newOrdering(tracedWAL, tracedAddr, []hob.RunID{"run_1"})
	if err := readTrace(strings.NewReader(strings.Join(lines, "\n")+"\n"), func(c traced) error { o.note(c); return nil }); err != nil {
		t.Fatal(err)
	}
	return o.verdict()
}

func TestOrdering_HoldsWhereTheSyncIsBetween(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"one frame":  {walStart, frameLast, pageRun, synced, told},
		"two frames": {frameMore, pageRun, frameLast, pageOther, synced, told},
		"another thread's call within": {
			frameLast, pageRun, `7  fsync(11</d/hob.db-wal> <unfinished ...>`, `9  fsync(4</d/other>) = 0`, `7  <... fsync resumed>) = 0`, told,
		},
		"fdatasync": {frameLast, pageRun, strings.Replace(synced, "fsync", "fdatasync", 1), told},
	} {
		if bad, held := order(t, lines...); len(bad) > 0 || held != 1 {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

func TestOrdering_FindsAnEarlyAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"before the write":                {told, frameLast, pageRun, synced},
		"before the sync":                 {frameLast, pageRun, told, synced},
		"without a sync":                  {frameLast, pageRun, told},
		"the sync is before the write":    {synced, frameLast, pageRun, told},
		"the sync is within":              {frameMore, pageRun, synced, frameLast, pageOther, told, synced},
		"the sync is of another file":     {frameLast, pageRun, `7  fsync(9</d/hob.db>) = 0`, told},
		"the sync failed":                 {frameLast, pageRun, `7  fsync(11</d/hob.db-wal>) = -1 EIO (Input/output error) (INJECTED)`, told},
		"the sync has not ended":          {frameLast, pageRun, `7  fsync(11</d/hob.db-wal> <unfinished ...>`, told, `7  <... fsync resumed>) = 0`},
		"the write has not ended":         {frameLast, strings.Replace(pageRun, ") = 4096", " <unfinished ...>", 1), `9  fsync(11</d/hob.db-wal>) = 0`, `7  <... pwrite64 resumed>) = 4096`, told},
		"the write failed":                {frameLast, strings.Replace(pageRun, "= 4096", "= -1 ENOSPC (No space left on device)", 1), synced, told},
		"nobody was told in this trace":   {frameLast, pageRun, synced},
		"another connection is told":      {frameLast, pageRun, synced, strings.Replace(told, "127.0.0.1:1->", "127.0.0.1:3->", 1)},
		"the transaction was never ended": {frameMore, pageRun, synced, told},
	} {
		if bad, held := order(t, lines...); len(bad) != 1 || held != 0 {
			t.Errorf("%s: it is not found (%d held)", name, held)
		}
	}
}

func TestUnquote_UndoesTheEscapes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`plain`: "plain", `a\nb\tc\rd\ve\ff`: "a\nb\tc\rd\ve\ff", `\"q\"\\`: `"q"\`, `\0\0\5`: "\x00\x00\x05", `\1777`: "\x7f7", `\22S`: "\x12S",
		`\377\\0`: "\xff\\0", `end\`: `end\`,
	} {
		if got := string(unquote(text)); got != want {
			t.Errorf("%s reads as %q, want %q", text, got, want)
		}
	}
}

func TestReadTrace_ReadsTargetsAndSizes(t *testing.T) {
	t.Parallel()
	var calls []traced
	text := strings.Join([]string{
		`1  --- SIGURG {si_signo=SIGURG} ---`, told, `3  <... write resumed>) = 5`, pageRun,
		`4  write(1<pipe:[5]>, "a, \"b\") = 3", 12) = -1 EPIPE (Broken pipe)`, `5  +++ exited with 0 +++`, `6  fsync(3</never ended> <unfinished ...>`,
	}, "\n") + "\n"
	if err := readTrace(strings.NewReader(text), func(c traced) error { calls = append(calls, c); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 3 {
		t.Fatalf("%d calls, want 3: %+v", len(calls), calls)
	}
	if c := calls[0]; c.target != "TCP:[127.0.0.1:1->127.0.0.1:2]" || c.size != 70 || c.failed || c.enter != 2 || c.exit != 2 {
		t.Errorf("the answer reads as %+v", c)
	}
	if c := calls[1]; c.target != tracedWAL || c.name != "pwrite64" || c.size != 4096 {
		t.Errorf("the page reads as %+v", c)
	}
	if c := calls[2]; c.data != `a, \"b\") = 3` || c.size != 12 || !c.failed {
		t.Errorf("the failed write reads as %+v", c)
	}
}
