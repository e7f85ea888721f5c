package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"hob"
	"hob/client"
	"hob/internal/pgtest"
)

// clerk is a scripted agent whose database tools reach the sample's orders.
type clerk struct {
	t     *testing.T
	c     *client.Client
	shown string // SQLite's main, or the sample's schema on Postgres
}

// hire gives an agent that plays a script both tools. more is put into the configuration of database_write.
func (k clerk) hire(script, more string) hob.AgentID {
	k.t.Helper()
	agent := scripted(k.t, k.c, script)
	for tool, extra := range map[string]string{"database_query": "", "database_write": more} {
		_, err := k.c.Assign(k.t.Context(), agent, client.AssignmentInput{
			ToolName: tool, ConfigOverride: json.RawMessage(`{"schemas":{"` + k.shown + `":["orders"]}` + extra + `}`),
		})
		if err != nil {
			k.t.Fatal(err)
		}
	}
	return agent
}

// works lets the agent run, and gives the results of its calls.
func (k clerk) works(agent hob.AgentID) (hob.RunResult, []string) {
	k.t.Helper()
	run, err := k.c.Run(k.t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
	if err != nil {
		k.t.Fatal(err)
	}
	record, err := k.c.RunRecord(k.t.Context(), run.RunID)
	if err != nil {
		k.t.Fatal(err)
	}
	var results []string
	for _, raw := range record.Events {
		var e struct {
			Type   hob.EventType `json:"type"`
			Result string        `json:"result"`
		}
		if err := json.Unmarshal(raw, &e); err == nil && e.Type == hob.EventToolResult {
			results = append(results, e.Result)
		}
	}
	return run, results
}

const (
	asksNotes  = `call: database_query {"query":"SELECT count(*) AS n FROM orders WHERE note = 'seen'"}`
	writesNote = `call: database_write {"table":"orders","operation":"update","data":{"note":"seen"},"where":{"id":[1,2]},"returning":["id"]}`
	writesAll  = `call: database_write {"table":"orders","operation":"update","data":{"note":"seen"},"where":{"status":"open"}}`
	turn       = "\n---\n"
)

func TestDatabaseTools_QueryAndWriteInARun(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database})
			k := clerk{t: t, c: in.serve().client(), shown: map[string]string{"sqlite": "main", "postgres": "hob_demo"}[name]}

			agent := k.hire(writesNote+turn+asksNotes+turn+"text: done", "")
			run, results := k.works(agent)
			want := `{"success":true,"rows_affected":2,"message":"update completed.","rows":[{"id":1},{"id":2}]}`
			if run.Status != hob.Completed || len(results) != 2 || results[0] != want || results[1] != `[{"n":2}]` {
				t.Errorf("%s, %q", run.Status, results)
			}
			if ledger := actions(t, k.c, hob.UsageFilter{Run: run.RunID}); ledger[hob.ActionToolCall] != 2 {
				t.Errorf("on the books are %v, want 2 tool calls", ledger)
			}

			agent = k.hire(writesAll+turn+asksNotes+turn+"text: done", `,"max_rows_affected":6`)
			if _, results := k.works(agent); len(results) != 2 || !strings.Contains(results[0], `{"success":false,"message":"The change would affect more than 6 rows`) || results[1] != `[{"n":2}]` {
				t.Errorf("over the cap: %q", results)
			}

			agent = k.hire(strings.Replace(writesNote, "update", "delete", 1)+turn+"text: done", `,"operations":["insert","update"]`)
			if _, results := k.works(agent); len(results) != 1 || !strings.HasPrefix(results[0], `{"success":false,"message":"Table '`+k.shown+`.orders' does not allow delete`) {
				t.Errorf("a verb that is not granted: %q", results)
			}

			config := json.RawMessage(`{"schemas":{"` + k.shown + `":["orders"]}}`)
			dry, err := k.c.TestTool(t.Context(), "database_write", client.ToolTest{
				DryRun: true, ConfigOverride: config,
				Arguments: json.RawMessage(`{"table":"orders","operation":"update","data":{"note":"dry"},"where":{"id":3}}`),
			})
			var preview struct {
				Rows    int                                              `json:"rows_affected"`
				Changes []struct{ Before, After struct{ Note *string } } `json:"rows"`
			}
			if err != nil || json.Unmarshal(dry.Preview, &preview) != nil || preview.Rows != 1 || len(preview.Changes) != 1 ||
				preview.Changes[0].After.Note == nil || *preview.Changes[0].After.Note != "dry" {
				t.Errorf("dry run: %s, %+v, %v", dry.Preview, dry, err)
			}
			tried, err := k.c.TestTool(t.Context(), "database_query", client.ToolTest{
				ConfigOverride: config, Arguments: json.RawMessage(`{"query":"SELECT count(*) AS n FROM orders WHERE note = 'dry'"}`),
			})
			if err != nil || tried.Result != `[{"n":0}]` {
				t.Errorf("behind the dry run: %+v, %v", tried, err)
			}
			if out := in.run("doctor"); out.code != 0 || name == "postgres" && !strings.Contains(out.stdout, "markers in schema hob_agent_calls") {
				t.Errorf("hob doctor: exit code %d\n%s", out.code, out.stdout)
			}
		})
	}
}

// A superuser's URL leaves the database tools off, unless it is allowed where everybody sees it.
func TestDatabaseTools_AreOffForASuperuser(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // there is no Postgres
	}
	in := install(t, map[string]string{"HOB_DATABASE_URL": pgtest.URL(t)})
	s := in.serve()
	k := clerk{t: t, c: s.client(), shown: "hob_demo"}
	mustContain(t, "the log", s.logs(), "the database tools are off", "is a superuser", "give --project-database a user with CREATEROLE", "--allow-powerful-role")
	agent := k.hire(writesNote+turn+asksNotes+turn+"text: done", "")
	assigned, err := k.c.Assignments(t.Context(), agent)
	if err != nil || len(assigned) != 2 {
		t.Fatalf("%+v, %v", assigned, err)
	}
	for _, a := range assigned {
		if a.Status != "unavailable" || !strings.Contains(a.Reason, "--allow-powerful-role") {
			t.Errorf("%s: %s, because %q", a.ToolName, a.Status, a.Reason)
		}
	}
	run, results := k.works(agent)
	if len(results) != 2 || !strings.HasPrefix(results[0], `{"success":false,"message":"database tools are off: the user of the project database is a superuser`) ||
		!strings.HasPrefix(results[1], `{"error":"database tools are off`) {
		t.Errorf("results %q", results)
	}
	if ledger := actions(t, k.c, hob.UsageFilter{Run: run.RunID}); ledger[hob.ActionToolCall] != 0 {
		t.Errorf("on the books are %v", ledger)
	}
	out := in.run("doctor")
	if out.code != 1 {
		t.Errorf("hob doctor: exit code %d\n%s", out.code, out.stdout)
	}
	mustContain(t, "the doctor", out.stdout, "is a superuser", "--allow-powerful-role")
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	in.env["HOB_ALLOW_POWERFUL_ROLE"] = "on"
	s = in.serve()
	k.c = s.client()
	mustContain(t, "the log", s.logs(), "agents' database tools are on although", "is a superuser")
	if _, results := k.works(agent); len(results) != 2 || results[1] != `[{"n":2}]` {
		t.Errorf("allowed: %q", results)
	}
	if out := in.run("doctor"); out.code != 1 || !strings.Contains(out.stdout, "is a superuser") {
		t.Errorf("hob doctor, allowed: exit code %d\n%s", out.code, out.stdout)
	}
}
