package main_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hob"
	"hob/client"
	"hob/internal/fakeai"
)

// standings are an agent's tools as the API tells them before a run.
func standings(t *testing.T, c *client.Client, id hob.AgentID) string {
	t.Helper()
	list, err := c.EffectiveTools(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s/%s/%s/offered=%t", e.Name, e.Source, e.Status, e.Offered))
	}
	return strings.Join(out, " ")
}

// Tools that only tool_ids name are told of as assigned ones are: which the next run is offered, and what the others lack.
func TestEffective_ToolIDsAreToldBeforeTheRun(t *testing.T) {
	t.Parallel()
	c := install(t, nil).serve().client()
	name, model := "named", "scripted"
	ids := []string{"current_time", "database_query", "web_search", "web_browsing"}
	made, err := c.CreateAgent(t.Context(), client.AgentInput{Name: &name, Model: &model, ToolIDs: &ids})
	if err != nil {
		t.Fatal(err)
	}
	lacking := []string{
		`runs are not offered the tool database_query: nothing grants it tables; config_override.schemas does, in an assignment`,
		`the tool web_search is unavailable: Exa API key not configured`, `runs are not offered the tool web_browsing: the agent's model does not search`,
	}
	mustContain(t, "the new agent", strings.Join(made.Warnings, "\n"), lacking...)
	read, err := c.Agent(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, "the agent", strings.Join(read.Warnings, "\n"), lacking...)
	changed, err := c.UpdateAgent(t.Context(), made.ID, client.AgentInput{ToolIDs: &ids})
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, "the changed agent", strings.Join(changed.Warnings, "\n"), lacking...)

	want := "current_time/tool_ids/available/offered=true database_query/tool_ids/unavailable/offered=false " +
		"web_search/tool_ids/unavailable/offered=true web_browsing/tool_ids/unavailable/offered=false"
	if got := standings(t, c, made.ID); got != want {
		t.Errorf("before the run: %s\nwant %s", got, want)
	}
	run, err := c.Run(t.Context(), made.ID, client.RunRequest{Message: "hello", Tools: true})
	if err != nil {
		t.Fatal(err)
	}
	warned := strings.Join(run.Warnings, "\n")
	mustContain(t, "the run", warned, `"database_query" is not loaded: nothing grants it tables`, `"web_browsing" is not loaded`)
	if strings.Contains(warned, "web_search\"") {
		t.Errorf("the run warns of a tool that it was offered: %s", warned)
	}
	record, err := c.RunRecord(t.Context(), run.RunID)
	if err != nil || !slices.Equal(record.Warnings, run.Warnings) {
		t.Errorf("the record warns %q (%v), the answer of the run %q", record.Warnings, err, run.Warnings)
	}
	if _, err := c.Assign(t.Context(), made.ID, client.AssignmentInput{ToolName: "database_query", ConfigOverride: []byte(`{"schemas":{"main":["customers"]}}`)}); err != nil {
		t.Fatal(err)
	}
	if got := standings(t, c, made.ID); !strings.Contains(got, "database_query/assignment/available/offered=true") {
		t.Errorf("with an assignment: %s", got)
	}
}

// Whether a web tool can search is the matter of the agent's own model: that another provider could does not help it.
func TestEffective_WebToolsGoByTheAgentsModel(t *testing.T) {
	t.Parallel()
	b := browse(t, "anthropic/claude-sonnet-4-5", map[string]string{"ANTHROPIC_API_KEY": "key"}, fakeai.Options{}.Reply, `{}`, client.AssignmentInput{ToolName: "web_browsing"})
	for model, want := range map[string]string{"anthropic/claude-sonnet-4-5": "available", "scripted": "unavailable"} {
		a, err := b.c.UpdateAgent(t.Context(), b.agent, client.AgentInput{Model: &model})
		if err != nil {
			t.Fatal(err)
		}
		assigned, err := b.c.Assignments(t.Context(), b.agent)
		if err != nil || len(assigned) != 1 || assigned[0].Status != want {
			t.Errorf("with %s: %+v, %v; want it %s", model, assigned, err, want)
		}
		if said := strings.Contains(strings.Join(a.Warnings, "\n"), "web_browsing"); said != (want != "available") {
			t.Errorf("with %s the agent warns: %q", model, a.Warnings)
		}
	}
}
