package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
)

// customRow is a custom tool with three properties, one required.
func customRow(endpoint, method string) hob.Tool {
	return hob.Tool{
		ID: "t1", Workspace: hob.DefaultWorkspace, Name: "weather", Description: "Tells the weather.", Type: hob.HTTPTool, IsActive: true,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"units":{"enum":["c","f"]},"days":{"type":"integer","maximum":7}},"required":["city","units"],"additionalProperties":false}`),
		Config:      hob.ToolConfig{Endpoint: endpoint + "/weather", Method: method},
	}
}

func named(name string) hob.Tool {
	row := customRow("https://example.com", "GET")
	row.Name, row.ID = name, hob.ToolID("id-"+name)
	return row
}

func TestTools_OrderIsBuiltinsThenCustomByName(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for range 3 {
		tools, _ := load(t, s, assignCustom(named("zeta"), ""), assign("http_request", ""), assignCustom(named("alpha"), ""), assign("current_time", ""))
		var names []string
		for _, r := range tools {
			names = append(names, r.Spec().Name)
		}
		if diff := cmp.Diff([]string{"current_time", "http_request", "alpha", "zeta"}, names); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTools_WhatCannotBeUsedIsNamedInAWarning(t *testing.T) {
	t.Parallel()
	change := func(f func(*hob.Tool)) hob.AssignedTool {
		row := named("weather")
		f(&row)
		return assignCustom(row, "")
	}
	gone := assignCustom(named("weather"), "")
	gone.Tool = nil
	tests := map[string]struct {
		assigned []hob.AssignedTool
		want     string
	}{
		"unknown builtin":     {[]hob.AssignedTool{assign("no_such_tool", "")}, `"no_such_tool" is not loaded: this server has no builtin tool`},
		"deleted row":         {[]hob.AssignedTool{gone}, `"weather" is not loaded: it no longer exists`},
		"inactive row":        {[]hob.AssignedTool{change(func(r *hob.Tool) { r.IsActive = false })}, "switched off"},
		"other type":          {[]hob.AssignedTool{change(func(r *hob.Tool) { r.Type = hob.MCPTool })}, `type "mcp"`},
		"reserved name":       {[]hob.AssignedTool{change(func(r *hob.Tool) { r.Name = "mcp__x__y" })}, "reserved"},
		"builtin's name":      {[]hob.AssignedTool{change(func(r *hob.Tool) { r.Name = "http_request" })}, "name is that of a builtin"},
		"local_tx":            {[]hob.AssignedTool{change(func(r *hob.Tool) { r.Config.Recovery = hob.RecoverLocal })}, "config.recovery must be"},
		"schema of a text":    {[]hob.AssignedTool{change(func(r *hob.Tool) { r.InputSchema = json.RawMessage(`{"type":"string"}`) })}, `must have "type": "object"`},
		"pin no longer fits":  {[]hob.AssignedTool{assignCustom(named("weather"), `{"days":8}`)}, "config_override.days does not fit"},
		"broken hosts":        {[]hob.AssignedTool{assign("http_request", `{"allowed_hosts":["http://x"]}`)}, "allowed_hosts"},
		"no hosts":            {[]hob.AssignedTool{assign("http_request", `{"allowed_hosts":[]}`)}, "at least one host"},
		"override is no JSON": {[]hob.AssignedTool{assign("current_time", `{`)}, "config_override"},
		"override is a list":  {[]hob.AssignedTool{assign("current_time", `[]`)}, "must be an object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools, warnings := load(t, newSet(t, builtin.Deps{}), tt.assigned...)
			if len(tools) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], tt.want) {
				t.Errorf("%d tools, warnings %q; want one about %q", len(tools), warnings, tt.want)
			}
		})
	}
}

func TestTools_TheLaterOfTwoEqualNamesIsLeftOut(t *testing.T) {
	t.Parallel()
	first, second := named("weather"), named("weather")
	first.ID, second.ID = "first", "second"
	tools, warnings := load(t, newSet(t, builtin.Deps{}), assignCustom(first, ""), assignCustom(second, ""), assign("current_time", ""), assign("current_time", ""))
	if len(tools) != 2 || tools[1].Spec().Ref != "first" {
		t.Fatalf("got %d tools", len(tools))
	}
	if len(warnings) != 2 || !strings.Contains(warnings[1], `"weather" is not loaded: another tool of this agent has the same name`) {
		t.Errorf("warnings %q", warnings)
	}
}

func TestTools_AnUnusableToolDoesNotTakeItsName(t *testing.T) {
	t.Parallel()
	off := named("weather")
	off.IsActive = false
	tools, _ := load(t, newSet(t, builtin.Deps{}), assignCustom(off, ""), assignCustom(named("weather"), ""))
	if len(tools) != 1 {
		t.Errorf("got %d tools, want the active one", len(tools))
	}
}

func TestTools_ACancelledStartIsAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := newSet(t, builtin.Deps{}).Tools(ctx, grant()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A row that was changed is served as it is now, whatever its updated_at says.
func TestTools_AChangedRowIsNeverServedOld(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	row := named("weather")
	_ = one(t, s, assignCustom(row, `{"units":"c"}`))
	row.InputSchema = json.RawMessage(`{"type":"object","properties":{"units":{"type":"string"},"place":{"type":"string"}}}`)
	if got := string(one(t, s, assignCustom(row, `{"units":"c"}`)).Spec().Schema); !strings.Contains(got, "place") {
		t.Errorf("schema %s", got)
	}
	if got := one(t, s, assignCustom(row, `{"units":"f"}`)).Spec().Pinned; string(got["units"]) != `"f"` {
		t.Errorf("pinned %s", got["units"])
	}
}

func TestPinned_ArgumentsLeaveTheModelsSchemaOnly(t *testing.T) {
	t.Parallel()
	row := named("weather")
	spec := one(t, newSet(t, builtin.Deps{}), assignCustom(row, `{"units":"c","rules":[],"nothing":1}`)).Spec()
	want := `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","maximum":7}},"required":["city"],"additionalProperties":false}`
	if diff := cmp.Diff(want, string(spec.Schema)); diff != "" {
		t.Error(diff)
	}
	if string(spec.FullSchema) != string(row.InputSchema) {
		t.Errorf("full schema %s", spec.FullSchema)
	}
	if diff := cmp.Diff(hob.PinnedArgs{"units": json.RawMessage(`"c"`)}, spec.Pinned); diff != "" {
		t.Error(diff)
	}
}

func TestPinned_BuiltinArgumentsToo(t *testing.T) {
	t.Parallel()
	spec := one(t, newSet(t, builtin.Deps{}), assign("http_request", `{"url":"https://example.com/","method":"GET"}`)).Spec()
	if strings.Contains(string(spec.Schema), `"url"`) || strings.Contains(string(spec.Schema), `"method"`) || strings.Contains(string(spec.Schema), "required") {
		t.Errorf("schema still names pinned arguments: %s", spec.Schema)
	}
	if len(spec.Pinned) != 2 || !strings.Contains(string(spec.FullSchema), `"required":["url"]`) {
		t.Errorf("pinned %v, full %s", spec.Pinned, spec.FullSchema)
	}
}

func TestPinned_NothingPinnedHasOneSchema(t *testing.T) {
	t.Parallel()
	spec := one(t, newSet(t, builtin.Deps{}), assign("current_time", `{"rules":[{"condition":"timezone CONTAINS x"}]}`)).Spec()
	if spec.FullSchema != nil || spec.Pinned != nil {
		t.Errorf("full %s pinned %v", spec.FullSchema, spec.Pinned)
	}
}
