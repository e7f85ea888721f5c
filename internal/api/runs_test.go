package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/api"
)

// ran is what a test reads of a sync run.
type ran struct {
	RunID     hob.RunID     `json:"run_id"`
	SessionID hob.SessionID `json:"session_id"`
	Status    hob.Status
	Steps     int
	Warnings  []string
}

func TestRun_UsesToolsOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("calls"))
	w.do(ask{"POST", "/api/agents/" + agent + "/tools", w.service, `{"tool_name":"clock"}`, nil})
	for body, steps := range map[string]int{`{"message":"hi"}`: 1, `{"message":"hi","tools":false}`: 1, `{"message":"hi","tools":true}`: 2} {
		if got := as[ran](t, w.do(ask{"POST", "/api/agents/" + agent + "/run", w.service, body, nil}), 200); got.Steps != steps || got.Status != hob.Completed {
			t.Errorf("%s: %+v, want %d steps", body, got, steps)
		}
	}
}

func TestRun_WhatIsAskedReachesTheModel(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("fixed"))
	const picture = "data:image/png;base64,iVBORw0KGgo="
	body := `{"message":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"` + picture + `"}},{"type":"image_url","image_url":"https://x.example/a.png"}],
		"temperature":0.5,"max_tokens":7,"reasoning_effort":"high","response_format":{"type":"json_object"},"context_override":"Rome."}`
	as[ran](t, w.do(ask{"POST", "/api/agents/" + agent + "/run", w.service, body, nil}), 200)
	got := w.model.requests()[0]
	want := []hob.Part{{Type: hob.TextPart, Text: "look"}, {Type: hob.ImagePart, URL: picture}, {Type: hob.ImagePart, URL: "https://x.example/a.png"}}
	if diff := cmp.Diff(want, got.Messages[len(got.Messages)-1].Parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if *got.Temperature != 0.5 || got.MaxTokens != 7 || got.ReasoningEffort != hob.EffortHigh || string(got.ResponseFormat) != `{"type":"json_object"}` {
		t.Errorf("the request is %+v", got)
	}
	if !strings.Contains(got.System, "Rome.") {
		t.Errorf("the system prompt is %q", got.System)
	}
}

func TestRun_TextAndPartsAreBounded(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	path := "/api/agents/" + string(w.agent("fixed")) + "/run"
	long := strings.Repeat("x", 1<<20+1)
	for name, c := range map[string]struct{ body, text string }{
		"text":             {`{"message":"` + long + `"}`, "1048576 bytes of text"},
		"text in parts":    {`{"message":[{"type":"text","text":"` + long + `"}]}`, "1048576 bytes of text"},
		"context":          {`{"message":"hi","context_override":"` + long + `"}`, "context_override must be at most"},
		"too many parts":   {`{"message":[` + strings.Repeat(`{"type":"text","text":"a"},`, 64) + `{"type":"text","text":"a"}]}`, "at most 64 parts"},
		"blank parts":      {`{"message":[{"type":"text","text":" "}]}`, "message is required"},
		"no parts":         {`{"message":[]}`, "message is required"},
		"plain http":       {`{"message":[{"type":"image_url","image_url":{"url":"http://x.example/a.png"}}]}`, "https or data"},
		"a page, no image": {`{"message":[{"type":"image_url","image_url":{"url":"data:text/html;base64,AA=="}}]}`, "image/png"},
		"a deep body":      {`{"message":"hi","x":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`, "nested too deep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFault(t, w.do(ask{"POST", path, w.service, c.body, nil}), 400, c.text)
		})
	}
	large := `{"message":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("AAAA", 1<<20) + `"}}]}`
	as[ran](t, w.do(ask{"POST", path, w.service, large, nil}), 200)
}

func TestDecode_NamesTenUnknownFieldsAtMost(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 15 {
		fmt.Fprintf(&b, `"%c%s":1,`, 'a'+i, strings.Repeat("y", 100))
	}
	warnings, err := api.Decode([]byte("{" + b.String() + `"message":"hi"}`))
	if err != nil || len(warnings) != 11 || !strings.Contains(warnings[10], "5 more") {
		t.Errorf("%d warnings, %q (%v)", len(warnings), warnings, err)
	}
	for _, w := range warnings {
		if len(w) > 120 {
			t.Errorf("a warning of %d bytes", len(w))
		}
	}
}

func TestRun_ASecondTurnKnowsTheFirst(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("fixed"))
	first := as[ran](t, w.do(ask{"POST", "/api/agents/" + agent + "/run", w.service, `{"message":"my name is Ada"}`, nil}), 200)
	as[ran](t, w.do(ask{"POST", "/api/agents/" + agent + "/run", w.service, `{"message":"who am I?","session_id":"` + string(first.SessionID) + `"}`, nil}), 200)
	asked := w.model.requests()
	if m := asked[len(asked)-1].Messages; len(m) != 3 || m[0].Content != "my name is Ada" {
		t.Errorf("the second turn sends %+v", m)
	}
	if other := string(w.agent("fixed")); true {
		r := w.do(ask{"POST", "/api/agents/" + other + "/run", w.service, `{"message":"hi","session_id":"` + string(first.SessionID) + `"}`, nil})
		wantFault(t, r, 409, "")
	}
}

func TestIdempotency_TheSameKeyIsTheSameRun(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("fixed"))
	run := ask{"POST", "/api/agents/" + agent + "/run", w.service, `{"message":"hi","max_steps":3}`, map[string]string{"Idempotency-Key": "k1"}}
	first := as[ran](t, w.do(run), 200)
	again := run
	again.body = `{ "max_steps": 3, "message": "hi" }` // the same, written anew
	second := w.do(again)
	if got := as[ran](t, second, 200); got.RunID != first.RunID || got.Status != hob.Completed || second.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the second answer is %+v %v, the first was %+v", got, second.header, first)
	}
	other := run
	other.body = `{"message":"bye"}`
	wantFault(t, w.do(other), 422, "")
	route := run
	route.path += "/stream"
	wantFault(t, w.do(route), 422, "")
	agent2 := run
	agent2.path = "/api/agents/" + string(w.agent("fixed")) + "/run"
	wantFault(t, w.do(agent2), 422, "")
	someone := run
	someone.key = user(t, "u1")
	if r := w.do(someone); as[ran](t, r, 200).RunID == first.RunID || r.header.Get("Idempotency-Replayed") != "" {
		t.Error("another principal's key finds the run")
	}
	for _, bad := range []string{"a b", strings.Repeat("x", 256), "ü"} {
		r := run
		r.header = map[string]string{"Idempotency-Key": bad}
		if f := wantFault(t, w.do(r), 400, "Idempotency-Key"); f.Code != "invalid_idempotency_key" {
			t.Errorf("code %s", f.Code)
		}
	}
	if n := w.metric("hob_runs_accepted_total"); n != 2 {
		t.Errorf("%d runs were accepted, want 2", n)
	}
}

func TestIdempotency_AStreamIsReplayedAndFollowed(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("slow"))
	run := ask{"POST", "/api/agents/" + agent + "/run/stream", w.service, `{"message":"hi"}`, map[string]string{"Idempotency-Key": "k1"}}
	a, b := w.stream(run), w.stream(run) // the second while the first runs
	head := a.next()
	w.model.end()
	first, second := append([]string{string(head.raw)}, raws(a.rest())...), raws(b.rest())
	third := raws(w.stream(run).rest())
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second reader got (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(first, third); diff != "" {
		t.Errorf("a later reader got (-first +third):\n%s", diff)
	}
	if n := len(w.model.requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

func raws(heads []head) []string {
	list := make([]string, 0, len(heads))
	for _, h := range heads {
		list = append(list, string(h.raw))
	}
	return list
}

func TestSession_OnlyServiceKeysNameTheUser(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("fixed"))
	const id = "11111111-1111-4111-8111-111111111111"
	path, seed := "/api/agents/"+agent+"/sessions", `"initial_messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`
	for _, key := range []string{user(t, id), w.scoped(hob.ScopeAdmin)} {
		wantFault(t, w.do(ask{"POST", path, key, `{"user_id":"` + id + `"}`, nil}), 403, "Service role required to set user_id")
	}
	made := as[ran](t, w.do(ask{"POST", path, w.service, `{"user_id":"` + id + `",` + seed + `}`, nil}), 201)
	as[any](t, w.do(ask{"GET", "/api/sessions/" + string(made.SessionID), user(t, id), "", nil}), 200)
	wantFault(t, w.do(ask{"GET", "/api/sessions/" + string(made.SessionID), user(t, "someone"), "", nil}), 404, "Session not found")
	own := as[ran](t, w.do(ask{"POST", path, user(t, "someone"), "{" + seed + "}", nil}), 201)
	as[any](t, w.do(ask{"GET", "/api/sessions/" + string(own.SessionID) + "/messages", user(t, "someone"), "", nil}), 200)
	many := `{"initial_messages":[` + strings.Repeat(`{"role":"user","content":"a"},{"role":"assistant","content":"b"},`, 100) + `{"role":"user","content":"a"}]}`
	wantFault(t, w.do(ask{"POST", path, user(t, id), many, nil}), 400, "at most 200")
	long := `{"initial_messages":[{"role":"user","content":"` + strings.Repeat("ü", 20_001) + `"},{"role":"assistant","content":"b"}]}`
	wantFault(t, w.do(ask{"POST", path, user(t, id), long, nil}), 400, "initial_messages[0].content")
}
