//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob/internal/fakeai"
)

func TestTens_EndAtTheMost(t *testing.T) {
	t.Parallel()
	for most, want := range map[int][]int{0: nil, 1: {1}, 99: {1, 10}, 100: {1, 10, 100}, 1000: {1, 10, 100, 1000}} {
		if got := tens(most); !cmp.Equal(got, want) {
			t.Errorf("tens(%d) = %v, want %v", most, got, want)
		}
	}
}

// Beside the n-th use of a session through Hob, raw sends the history of an n-th use. The first use is the proof's.
func TestLengths_RawAndHobHaveTheSameHistory(t *testing.T) {
	t.Parallel()
	for _, uses := range []int{1, 3, 50} {
		one := &length{turns: 9, uses: uses}
		l := &lengths{stand: &stand{server: &server{addr: "x"}}, runs: 20}
		for i := range l.sent()/uses + 1 {
			one.requests = append(one.requests, []byte{byte(i)})
		}
		var histories []int
		for use := range uses {
			histories = append(histories, use)
		}
		used := map[byte]int{0: 1}
		raw := inUse(l, one, histories)
		sent := l.through(one).requests
		if len(sent) != l.sent() || len(raw) != l.sent() {
			t.Fatalf("%d uses: %d runs through hob, %d raw, want %d", uses, len(sent), len(raw), l.sent())
		}
		for i, request := range sent {
			if session := request[0]; raw[i] != used[session] {
				t.Errorf("%d uses: run %d is use %d of its session, and raw sends the history of use %d", uses, i, used[session], raw[i])
			}
			if used[request[0]]++; used[request[0]] > uses {
				t.Errorf("a session is used %d times, want at most %d", used[request[0]], uses)
			}
		}
	}
}

// messagesOf is how many messages a request to a model has.
func messagesOf(t *testing.T, request []byte) int {
	t.Helper()
	_, body, _ := bytes.Cut(request, []byte("\r\n\r\n"))
	var in struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		t.Fatal(err)
	}
	return len(in.Messages)
}

func TestDialoguesBehind_EachHasTheOnesBeforeIt(t *testing.T) {
	t.Parallel()
	tools, err := startTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.stop)
	var mu sync.Mutex
	var got []int // messages of each model call
	answers := fakeai.Bench{Tokens: 5, Steps: toolSteps}.Handler()
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		got = append(got, strings.Count(string(body), `"role":`))
		mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		answers.ServeHTTP(w, r)
	}))
	t.Cleanup(fake.Close)
	m := &model{addr: fake.Listener.Addr().String()}
	b := &bench{clock: newClock(), tools: tools}
	const earlierTurns, times = 4, 3
	behind := history("an answer", earlierTurns)
	all, err := b.dialoguesBehind(t.Context(), m, behind, times)
	if err != nil {
		t.Fatal(err)
	}
	var want []int
	for use := range times {
		for step := range toolSteps + 1 { // a call and its result in each step, the question and the answer in each use
			want = append(want, len(behind)+use*(2*toolSteps+2)+2*step)
		}
		if len(all[use]) != toolSteps+1 || messagesOf(t, all[use][0].chat) != want[use*(toolSteps+1)] {
			t.Errorf("use %d has %d model calls, the first with %d messages", use, len(all[use]), messagesOf(t, all[use][0].chat))
		}
	}
	if !cmp.Equal(got, want) {
		t.Errorf("the model calls had %v messages, want %v", got, want)
	}
	got = nil
	open := b.dialogues(m, all)
	for range 2 { // two clients, the second of which goes on where the first one ended
		o, err := slice{clock: b.clock, clients: 1, runs: 2, open: open}.load(t.Context())
		if err != nil || o.err() != nil {
			t.Fatal(err, o.err())
		}
	}
	if want = append(want, want[:toolSteps+1]...); !cmp.Equal(got, want) {
		t.Errorf("repeated, the model calls had %v messages, want %v", got, want)
	}
}

// Sessions of one length are made by several clients, but never two turns of one session at the same time.
func TestMakeTurns_OneAfterTheOtherInEachSession(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	made, underWay := map[string]int{}, map[string]bool{}
	hob := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		session := string(body)
		mu.Lock()
		if err != nil || underWay[session] {
			t.Errorf("two turns of %s at the same time, %v", session, err)
		}
		underWay[session] = true
		mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		mu.Lock()
		underWay[session] = false
		made[session]++
		mu.Unlock()
		_, _ = io.WriteString(w, completeLine)
	}))
	t.Cleanup(hob.Close)
	v := &server{addr: hob.Listener.Addr().String()}
	one := &length{turns: 120}
	want := map[string]int{}
	for _, session := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		request := v.runRequest("agent", session, question)
		one.requests = append(one.requests, request)
		_, body, _ := bytes.Cut(request, []byte("\r\n\r\n"))
		want[string(body)] = one.turns
	}
	b := &bench{clock: newClock()}
	if err := b.makeTurns(t.Context(), v.addr, one); err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(made, want) {
		t.Errorf("made %v, want %v", made, want)
	}
}

// completeLine is all that a client looks for in a run's stream.
const completeLine = "data: " + completeHead + `,"status":"completed"}` + "\n\n"

func TestMakeTurns_TellsARunThatFailed(t *testing.T) {
	t.Parallel()
	hob := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: "+completeHead+`,"status":"failed"}`+"\n\n")
	}))
	t.Cleanup(hob.Close)
	v := &server{addr: hob.Listener.Addr().String()}
	b := &bench{clock: newClock()}
	err := b.makeTurns(t.Context(), v.addr, &length{turns: 3, requests: [][]byte{v.runRequest("agent", "a", question)}})
	if err == nil || !strings.Contains(err.Error(), "did not complete") {
		t.Errorf("a run that failed is told as %v", err)
	}
}

// A length is proved by a run that is whole and for which nothing was left out of the conversation.
func TestProve_RefusesACondensedConversation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, event, want string }{
		{"nothing is left out", "", ""},
		{"left out before the call", `data: {"event":"proactive_compact","method":"prune","succeeded":true}` + "\n\n", "Cuts:1"},
		{"summarised", `data: {"event":"proactive_compact","method":"summary","succeeded":true}` + "\n\n", "Summaries:1 Cuts:1"},
		{"refused as too long", `data: {"event":"reactive_compact","step":1}` + "\n\n", "Cuts:1"},
		{"the oldest turns were not read", `data: {"event":"warning","code":"history_cut"}` + "\n\n", "Cuts:1"},
		{"another warning", `data: {"event":"warning","code":"request"}` + "\n\n", ""},
	} {
		hob := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, tt.event+completeLine)
		}))
		t.Cleanup(hob.Close)
		v := &server{addr: hob.Listener.Addr().String(), clock: newClock()}
		l := &lengths{stand: &stand{server: v}}
		err := l.prove(t.Context(), &length{turns: 7, requests: [][]byte{v.runRequest("agent", "a", question)}}, told{})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// took is a contender all of whose runs took the same.
func took(d time.Duration) *contender {
	c := &contender{}
	c.times.add(d)
	return c
}

func TestGrown_ComparesWhatHobAdds(t *testing.T) {
	t.Parallel()
	b := &bench{report: newReport()}
	l := &lengths{all: []*length{
		{turns: 1, raw: took(11 * time.Millisecond), hob: took(22 * time.Millisecond)},
		{turns: 10, raw: took(22 * time.Millisecond), hob: took(44 * time.Millisecond)},
		{turns: 100, raw: took(110 * time.Millisecond), hob: took(143 * time.Millisecond)},
	}}
	if err := b.grown(l, "tool step", toolSteps+1); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range b.report.Rows {
		got = append(got, strings.Join(row.cells(), "|"))
	}
	want := []string{
		"9|added time of a tool step, 10 earlier turns ÷ 1||2.00 ×||≤ 2.00 ×|≤ 1.25 ×|must",
		"9|added time of a tool step, 100 earlier turns ÷ 1||3.00 ×||≤ 2.00 ×|≤ 1.25 ×|MISSED",
	}
	if !cmp.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	lines := strings.Join(b.report.Lines[9], "\n")
	for _, part := range []string{"context_window is 10000000", "1 earlier turn       1.00 ms", "10 earlier turns     2.00 ms", "100 earlier turns    3.00 ms"} {
		if !strings.Contains(lines, part) {
			t.Errorf("the lines lack %q:\n%s", part, lines)
		}
	}
	l.all[0].hob = took(11 * time.Millisecond)
	if err := b.grown(l, "tool step", toolSteps+1); err == nil {
		t.Error("nothing added behind one turn is taken as something to compare with")
	}
}

func TestCondense_AnswersWithASummary(t *testing.T) {
	t.Parallel()
	tools, err := startTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.stop)
	w, err := connect(t.Context(), newClock(), tools.addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	a, err := ask(w, request{method: http.MethodPost, host: tools.addr, path: condensePath + "/chat/completions", body: []byte("{}")}.bytes())
	if want := "<summary>" + summary + "</summary>"; err != nil || a.Text != want {
		t.Errorf("a summary reads %q, %v, want %q", a.Text, err, want)
	}
}

func TestWindow_IsSetOnTheAgent(t *testing.T) {
	t.Parallel()
	status, got := http.StatusOK, ""
	hob := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + string(body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(hob.Close)
	v := &server{addr: hob.Listener.Addr().String(), client: hob.Client()}
	if err := v.window(t.Context(), "a", 5000); err != nil {
		t.Fatal(err)
	}
	if want := `PATCH /api/agents/a {"settings":{"context_window":5000}}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	status = http.StatusUnprocessableEntity
	if err := v.window(t.Context(), "a", 5); err == nil || !strings.Contains(err.Error(), "status 422") {
		t.Errorf("a refused window is told as %v", err)
	}
}
