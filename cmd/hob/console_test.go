package main_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hob"
	"hob/client"
)

// sandboxStub is an outside sandbox that says of each program that it is busy.
func sandboxStub(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"error":"busy","_platform_error":true}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// actions is the ledger by action.
func actions(t *testing.T, c *client.Client, f hob.UsageFilter) map[string]int64 {
	t.Helper()
	f.GroupBy = hob.ByAction
	u, err := c.Usage(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, r := range u.Usage {
		counts[r.Key] = r.Quantity
	}
	return counts
}

func TestConsole_TriesToolsOnTheProgramItself(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := newToolServer(t, "")
			in := install(t, map[string]string{
				"HOB_DATABASE_URL": database, "HOB_EGRESS_ALLOW": strings.TrimPrefix(tools.URL, "http://"), "CODE_SANDBOX_URL": sandboxStub(t),
			})
			s := in.serve()
			c := s.client()
			try := func(tool string, in client.ToolTest) client.ToolTested {
				t.Helper()
				got, err := c.TestTool(t.Context(), tool, in)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}

			now := try("current_time", client.ToolTest{Arguments: json.RawMessage(`{"timezone":"Europe/Paris"}`)})
			if now.IsError || now.Action != hob.ActionToolCall || !strings.Contains(now.Result, "Paris") || len(now.Trace) != 11 {
				t.Errorf("the time: %+v", now)
			}
			bad := try("current_time", client.ToolTest{Arguments: json.RawMessage(`{"timezone":1}`)})
			if last := bad.Trace[len(bad.Trace)-1]; !bad.Free || last.Stage != "schema" || last.Outcome != "refused" {
				t.Errorf("a bad argument: %+v", bad)
			}

			private := try("http_request", client.ToolTest{Arguments: json.RawMessage(`{"url":"http://10.0.0.1/"}`)})
			told := ""
			for _, p := range private.Trace {
				told += p.Detail
			}
			if !private.Free || strings.Contains(private.Result, "HOB_EGRESS_ALLOW") || !strings.Contains(told, "HOB_EGRESS_ALLOW=10.0.0.1:80 opens it") {
				t.Errorf("a private address: %+v", private)
			}

			var none *hob.Error
			if _, err := c.TestTool(t.Context(), "current_time", client.ToolTest{DryRun: true}); !errors.As(err, &none) || !strings.Contains(none.Message, "tools with a preview: database_write") {
				t.Errorf("a dry run of a tool without a preview: %v", err)
			}

			kind, off, name := string(hob.HTTPTool), false, "charge"
			row, err := c.CreateTool(t.Context(), client.ToolInput{
				Name: &name, Description: &name, Type: &kind, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
				Config: &client.ToolConfigInput{Endpoint: tools.URL + "/charge"}, IsActive: &off,
			})
			if err != nil {
				t.Fatal(err)
			}
			pinned := client.ToolTest{Arguments: json.RawMessage(`{"n":1}`), ConfigOverride: json.RawMessage(`{"n":5}`), IdempotencyKey: "k"}
			first, second := try(string(row.ID), pinned), try(string(row.ID), pinned)
			other := try(string(row.ID), client.ToolTest{Arguments: json.RawMessage(`{"n":1}`)})
			if string(first.Arguments) != `{"n":5}` || first.Result != `{"done":{"n":5}}` || len(first.Warnings) == 0 || second.IsError || other.IsError {
				t.Errorf("a tool that is off: %+v, %+v, %+v", first, second, other)
			}
			if calls := tools.calls("charge"); len(calls) != 3 || calls[0] != calls[1] || calls[2].key == calls[0].key || calls[2].body != `{"n":1}` {
				t.Errorf("it got %+v", calls)
			}

			code := try("code_execute", client.ToolTest{Arguments: json.RawMessage(`{"language":"python","code":"1"}`)})
			if !code.Free || code.Action != "" || code.Result != `{"error":"busy"}` {
				t.Errorf("the sandbox's own fault: %+v", code)
			}
			byTool, err := c.Usage(t.Context(), hob.UsageFilter{GroupBy: hob.ByTool})
			if err != nil || len(byTool.Usage) != 2 || byTool.Usage[0].Key != "charge" || byTool.Usage[0].Quantity != 3 || byTool.Usage[1].Key != "current_time" {
				t.Errorf("by tool: %+v, %v", byTool, err)
			}
			if got := actions(t, c, hob.UsageFilter{}); got[hob.ActionToolCall] != 4 || got[hob.ActionCodeExecute] != 0 {
				t.Errorf("on the books are %v, want 4 tool calls", got)
			}
			mustContain(t, "the log", s.logs(), "a tool was tried", "tool=charge", "ref="+string(row.ID))
		})
	}
}

// A run tells the same actions in its answer, its record, its stream and the ledger.
func TestActions_AreTheSameWhereverTheyAreTold(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database})
			c := in.serve().client()
			agent, model := "clockmaker", "scripted"
			a, err := c.CreateAgent(t.Context(), client.AgentInput{
				Name: &agent, Model: &model, Settings: json.RawMessage(`{"script":"call: current_time {}\n---\ntext: It is late.\n"}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Assign(t.Context(), a.ID, client.AssignmentInput{ToolName: "current_time"}); err != nil {
				t.Fatal(err)
			}
			run, err := c.Run(t.Context(), a.ID, client.RunRequest{Message: "How late is it?", Tools: true})
			if err != nil {
				t.Fatal(err)
			}
			record, err := c.RunRecord(t.Context(), run.RunID)
			if err != nil {
				t.Fatal(err)
			}
			var end hob.CompleteEvent
			if err := json.Unmarshal(record.Events[len(record.Events)-1], &end); err != nil {
				t.Fatal(err)
			}
			ledger := actions(t, c, hob.UsageFilter{Run: run.RunID})
			if ledger[hob.ActionRun] != 1 || ledger[hob.ActionToolCall] != 1 || ledger[hob.ActionModelCall] != 2 {
				t.Errorf("on the books are %v", ledger)
			}
			for where, got := range map[string]map[string]int64{"answer": run.Actions, "record": record.Actions, "complete": end.Actions} {
				if len(got) != len(ledger) {
					t.Errorf("the %s tells %v, on the books are %v", where, got, ledger)
				}
				for action, n := range ledger {
					if got[action] != n {
						t.Errorf("the %s tells %d %s, on the books are %d", where, got[action], action, n)
					}
				}
			}
		})
	}
}
