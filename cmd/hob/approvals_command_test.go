package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"hob"
	"hob/client"
)

// asking makes an agent whose every tool call waits for somebody, and starts one run that does.
func asking(t *testing.T, c *client.Client) (hob.AgentID, hob.Approval) {
	t.Helper()
	id := scripted(t, c, "call: current_time {\"timezone\": \"Europe/Berlin\"}\n---\ntext: {{result}}")
	if _, err := c.Assign(t.Context(), id, client.AssignmentInput{ToolName: "current_time"}); err != nil {
		t.Fatal(err)
	}
	hook := client.HookInput{Event: hob.PreToolUse, Type: hob.ApprovalHook, Config: client.HookConfigInput{Message: "May it know the time?"}}
	if _, err := c.CreateHook(t.Context(), id, hook); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context(), id, client.RunRequest{Message: "go", Tools: true})
	if err != nil || r.Status != hob.AwaitingApproval || len(r.Approvals) != 1 {
		t.Fatalf("the run does not wait: %v, %+v", err, r)
	}
	return id, r.Approvals[0]
}

func TestApprovalsCommand_ListsAndDecides(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	c := in.serve().client()
	if out := in.run("approvals"); out.code != 0 || out.stdout != "Nothing waits.\n" {
		t.Errorf("exit code %d, %q %s", out.code, out.stdout, out.stderr)
	}
	agent, first := asking(t, c)
	_, second := asking(t, c)
	out := in.run("approvals")
	mustContain(t, "the list", out.stdout, first.ApprovalID+" · current_time · "+string(first.RunID)+" · asked for by service:", "May it know the time?",
		`{"timezone":"Europe/Berlin"}`, second.ApprovalID, " · until ")
	var listed struct{ Approvals []hob.Approval }
	if err := json.Unmarshal([]byte(in.run("approvals", "--json").stdout), &listed); err != nil || len(listed.Approvals) != 2 {
		t.Errorf("as JSON: %v, %+v", err, listed)
	}

	out = in.run("approvals", "approve", first.ApprovalID, "--input", `{"timezone":"Asia/Tokyo"}`, "--reason", "there")
	if want := first.ApprovalID + ": approved; run " + string(first.RunID) + " goes on\n"; out.code != 0 || out.stdout != want {
		t.Errorf("exit code %d, %q %s", out.code, out.stdout, out.stderr)
	}
	var last hob.Event
	for e, err := range c.Events(t.Context(), first.RunID, 0) {
		if last = e; err != nil {
			t.Fatal(err)
		}
	}
	mustContain(t, "the answer", string(last.Data), "completed", "Tokyo")
	out = in.run("approvals", "deny", second.ApprovalID, "--json")
	var decided hob.Approval
	if err := json.Unmarshal([]byte(out.stdout), &decided); err != nil || decided.Status != hob.ApprovalDenied {
		t.Errorf("denied: %v, %s%s", err, out.stdout, out.stderr)
	}

	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"approve", first.ApprovalID}, 1, "decided already"},
		{[]string{"approve", "appr_000000000000"}, 1, "Approval not found"},
		{[]string{"approve"}, 2, "which approval?"},
		{[]string{"accept", "x"}, 2, `there is no "accept"`},
		{[]string{"approve", "x", "y"}, 2, `unexpected word "y"`},
		{[]string{"deny", "x", "--input", "{}"}, 2, "--input goes with approve"},
		{[]string{"approve", "x", "--input", "[]"}, 2, "--input must be a JSON object"},
		{[]string{"--reason", "x"}, 2, "--reason and --input go with approve and deny"},
	} {
		out := in.run(append([]string{"approvals"}, tc.args...)...)
		if out.code != tc.code || !strings.Contains(out.stderr, tc.want) {
			t.Errorf("%v: exit code %d, want %d with %q: %s", tc.args, out.code, tc.code, tc.want, out.stderr)
		}
	}

	chat := talk(t, in, agent, "hob approvals approve ") // whose input is no terminal
	waiting := in.run("approvals", "--json")
	if err := json.Unmarshal([]byte(waiting.stdout), &listed); err != nil || len(listed.Approvals) != 1 {
		t.Fatalf("the chat's approval: %v, %s", err, waiting.stdout)
	}
	in.run("approvals", "approve", listed.Approvals[0].ApprovalID)
	if code := chat.wait(t); code != 0 {
		t.Errorf("exit code %d of the chat:\n%s", code, chat.shown.String())
	}
	mustContain(t, "the chat", chat.shown.String(), "? current_time: May it know the time?", "approved by service:", "completed")
	mustContain(t, "its answer", chat.answer.String(), "Berlin")
}
