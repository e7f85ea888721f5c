package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestOutage_TellsItsBeginningNowAndThenAndItsEnd(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	o := Outage{Log: slog.New(slog.NewTextHandler(&text, nil)), Fault: "away", Over: "back"}
	began, down := monotonic(), errors.New("refused")
	lines := func() []string {
		defer text.Reset()
		return strings.Split(strings.TrimSpace(text.String()), "\n")
	}
	o.note(nil, began)
	if text.Len() > 0 {
		t.Errorf("without a fault: %s", text.String())
	}
	for i := range 70 { // a fault a second
		o.note(down, began.Add(time.Duration(i)*time.Second))
	}
	got := lines()
	if len(got) != 3 || !strings.Contains(got[0], "away") || !strings.Contains(got[0], "refused") ||
		!strings.Contains(got[0], "not_logged=0") || !strings.Contains(got[1], "not_logged=29") || !strings.Contains(got[2], "not_logged=29") {
		t.Errorf("70 faults in 70 s:\n%s", strings.Join(got, "\n"))
	}
	o.note(nil, began.Add(70*time.Second))
	o.note(nil, began.Add(71*time.Second))
	if got = lines(); len(got) != 1 || !strings.Contains(got[0], "back") || !strings.Contains(got[0], "not_logged=9") {
		t.Errorf("the end:\n%s", strings.Join(got, "\n"))
	}
	o.note(down, began.Add(72*time.Second))
	if got = lines(); len(got) != 1 || !strings.Contains(got[0], "away") {
		t.Errorf("the next one:\n%s", strings.Join(got, "\n"))
	}
}
