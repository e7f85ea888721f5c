//go:build linux

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestTickNumber(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]int{
		`{"event":"chunk","content":"tick-17 "}`:         17,
		`{"event":"content_delta","delta":"tick-0 "}`:    0,
		`{"event":"complete","content":"tick-0 tick-1"}`: -1,
		`{"event":"chunk","content":"tick- "}`:           -1,
		`{"event":"chunk","content":"x"}`:                -1,
	} {
		if got := tickNumber([]byte(data)); got != want {
			t.Errorf("tickNumber(%s) = %d, want %d", data, got, want)
		}
	}
}

// The crowd is tried on a server that is one run: it says what the model says, to the starter and to all readers.
func TestCrowd_MeasuresWhenTheLastReaderHasAnEvent(t *testing.T) {
	t.Parallel()
	const readers, ticks = 20, 3
	tools, err := startTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.stop)
	relay := newRelay(readers)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) { relay.serve(w, r, tools.addr) })
	b := &bench{clock: newClock(), tools: tools}
	v := &server{addr: addr, clock: b.clock}
	c, err := b.openCrowd(t.Context(), v, crowdSize{agent: "a", readers: readers, ticks: ticks})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.tickAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.finish(); err != nil {
		t.Fatal(err)
	}
	for i := range c.ticks {
		k := &c.ticks[i]
		first, last := time.Duration(k.first.Load()), time.Duration(k.last.Load())
		if k.got.Load() != readers || first < k.sent || last < first || last > b.clock.now() {
			t.Errorf("event %d: sent %s, first %s, last %s, %d readers", i, k.sent, first, last, k.got.Load())
		}
	}
}

// relay is a server with one run.
type relay struct {
	feeds chan chan string
	all   int
}

func newRelay(readers int) *relay {
	return &relay{feeds: make(chan chan string, readers), all: readers}
}

func (l *relay) serve(w http.ResponseWriter, r *http.Request, model string) {
	rc := http.NewResponseController(w)
	send := func(frame string) {
		fmt.Fprintf(w, "id: 1\ndata: %s\n\n", frame)
		_ = rc.Flush()
	}
	send(`{"event":"start","run_id":"run_1"}`)
	defer send(`{"event":"complete","status":"completed"}`)
	if r.Method == http.MethodGet {
		feed := make(chan string, 16)
		l.feeds <- feed
		for text := range feed {
			send(`{"event":"chunk","content":` + text + `}`)
		}
		return
	}
	in, err := connect(r.Context(), newClock(), model, patience)
	if err != nil {
		return
	}
	defer in.close()
	var feeds []chan string
	_ = in.exchange(chat(model, firstMessages(), nil), func(line []byte) {
		_, text, found := strings.Cut(string(line), `"content":`)
		if text, _, _ = strings.Cut(text, "}"); !found || text == `""` {
			return
		}
		for len(feeds) < l.all {
			feeds = append(feeds, <-l.feeds)
		}
		for _, f := range feeds {
			f <- text
		}
	})
	for _, f := range feeds {
		close(f)
	}
}
