package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
)

func toolCases() map[string]func(*world) {
	return map[string]func(*world){
		"ToolIsKeptAsGiven":                 toolKept,
		"ToolNamesAreUnique":                toolNames,
		"ToolPatchChangesWhatIsSet":         toolPatch,
		"ToolMaskKeepsTheStoredValue":       toolMask,
		"ToolSecretsDoNotFollowAnEndpoint":  toolMoved,
		"ToolDeletionTakesItsAssignments":   toolDeletion,
		"ToolRenamingRenamesItsAssignments": toolRenamed,
		"ToolVersionsAreKeptMasked":         toolVersions,
		"ToolVersionIsRestoredWhole":        toolRestored,
		"ToolVersionsAreBounded":            toolVersionsBounded,
		"BuiltinChangesAreTheWorkspaces":    builtinChanges,
		"ToolUsesNameTheirAgents":           toolUses,
	}
}

func (w *world) newTool(name string, headers map[string]hob.Secret) hob.Tool {
	w.t.Helper()
	tool, err := w.s.CreateTool(w.ctx, w.service, hob.Tool{
		Name: name, Description: "does " + name, Type: hob.HTTPTool, InputSchema: json.RawMessage(`{"type":"object"}`), IsActive: true,
		Config: hob.ToolConfig{Endpoint: "https://a.example/x", Method: "PUT", Headers: headers, TimeoutSeconds: 2.5, Recovery: hob.RecoverKeyed},
	})
	w.must(err)
	return tool
}

// deleteTool deletes a tool, whoever had it.
func (w *world) deleteTool(ctx context.Context, by hob.Principal, id hob.ToolID) error {
	_, err := w.s.DeleteTool(ctx, by, id)
	return err
}

func toolKept(w *world) {
	made := w.newTool("weather", map[string]hob.Secret{"Authorization": "Bearer s3cret", "X-Plain": ""})
	got, err := w.s.Tool(w.ctx, w.alice, made.ID)
	w.must(err)
	if d := cmp.Diff(made, got); d != "" {
		w.t.Fatalf("-created +read:\n%s", d)
	}
	same(w, "header", string(got.Config.Headers["Authorization"]), "Bearer s3cret")
	shown, err := json.Marshal(got)
	w.must(err)
	if strings.Contains(string(shown)+fmt.Sprintf("%v %+v", got, got), "s3cret") {
		w.t.Fatal("a tool that was read shows its secret")
	}
	w.newTool("alpha", nil)
	list, err := w.s.Tools(w.ctx, w.alice)
	w.must(err)
	if len(list) != 2 || list[0].Name != "alpha" || list[1].Config.Headers["Authorization"] != "Bearer s3cret" {
		w.t.Fatalf("list by name: %v", list)
	}
}

func toolNames(w *world) {
	made := w.newTool("one", nil)
	w.newTool("two", nil)
	_, err := w.s.CreateTool(w.ctx, w.service, hob.Tool{Name: "one", Type: hob.HTTPTool})
	w.want(hob.Conflict, err)
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Name: point("two")})
	w.want(hob.Conflict, err)
	got, err := w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	same(w, "name after the conflict", got.Name, "one")
}

func toolPatch(w *world) {
	made := w.newTool("weather", map[string]hob.Secret{"A": "1"})
	_, err := w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Description: point("new"), IsActive: point(false)})
	w.must(err)
	got, err := w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	want := made
	want.Description, want.IsActive, want.Version, want.UpdatedAt = "new", false, 2, got.UpdatedAt
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatalf("a patch without a configuration changed more than it set (-want +got):\n%s", d)
	}
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{InputSchema: json.RawMessage(`{"type":"object","x":1}`), Name: point("w2")})
	w.must(err)
	got, err = w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	same(w, "schema", string(got.InputSchema), `{"type":"object","x":1}`)
	same(w, "name", got.Name, "w2")
}

func toolMask(w *world) {
	made := w.newTool("t", map[string]hob.Secret{"A": "one", "B": "two", "C": "three"})
	config := made.Config
	config.Headers = map[string]hob.Secret{"A": hob.Mask, "B": "changed", "D": "new", "E": ""}
	config.Method = "POST"
	_, err := w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Config: &config})
	w.must(err)
	got, err := w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	w.headers(got, map[string]hob.Secret{"A": "one", "B": "changed", "D": "new", "E": ""})
	same(w, "method", got.Config.Method, "POST")

	config.Headers = map[string]hob.Secret{"Unknown": hob.Mask}
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Config: &config})
	w.want(hob.Invalid, err)
	config.Headers = map[string]hob.Secret{"A": hob.Mask + "last"} // as it is shown with its last characters
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Config: &config})
	w.must(err)
	got, err = w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	w.headers(got, map[string]hob.Secret{"A": "one"})
	_, err = w.s.CreateTool(w.ctx, w.service, hob.Tool{Name: "u", Config: hob.ToolConfig{Headers: map[string]hob.Secret{"A": hob.Mask}}})
	w.want(hob.Invalid, err)
}

func toolMoved(w *world) {
	made := w.newTool("t", map[string]hob.Secret{"A": "one", "B": "two"})
	config := made.Config
	config.Endpoint = "https://evil.example/x"
	config.Headers = map[string]hob.Secret{"A": hob.Mask, "B": "again"}
	got, err := w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Config: &config})
	w.must(err)
	w.headers(got, map[string]hob.Secret{"B": "again"})
	// Coming back does not bring the value back: it is gone.
	config.Endpoint = made.Config.Endpoint
	config.Headers = map[string]hob.Secret{"A": hob.Mask}
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Config: &config})
	w.want(hob.Invalid, err)
	got, err = w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	same(w, "endpoint", got.Config.Endpoint, "https://evil.example/x")
	w.headers(got, map[string]hob.Secret{"B": "again"})
}

func (w *world) headers(t hob.Tool, want map[string]hob.Secret) {
	w.t.Helper()
	same(w, "number of headers", len(t.Config.Headers), len(want))
	for name, v := range want {
		if got, ok := t.Config.Headers[name]; !ok || string(got) != string(v) {
			w.t.Fatalf("header %s is %q, want %q", name, string(got), string(v))
		}
	}
}

func toolDeletion(w *world) {
	made, kept := w.newTool("gone", nil), w.newTool("kept", nil)
	for _, tool := range []hob.Tool{made, kept} {
		_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "custom", ToolName: tool.Name, ToolID: &tool.ID})
		w.must(err)
	}
	names := &[]string{"current_time", string(made.ID)}
	_, err := w.s.UpdateAgent(w.ctx, w.service, w.other.ID, hob.AgentPatch{ToolIDs: &names})
	w.must(err)
	had, err := w.s.DeleteTool(w.ctx, w.service, made.ID)
	w.must(err)
	want := []hob.AgentRef{{ID: w.agent.ID, Name: w.agent.Name}, {ID: w.other.ID, Name: w.other.Name}}
	if d := cmp.Diff(want, had, cmpopts.SortSlices(func(a, b hob.AgentRef) bool { return a.ID < b.ID })); d != "" {
		w.t.Fatalf("the agents that had it (-want +got):\n%s", d)
	}
	w.want(hob.NotFound, w.deleteTool(w.ctx, w.service, made.ID))
	list, err := w.s.Assignments(w.ctx, w.service, w.agent.ID)
	w.must(err)
	if len(list) != 1 || list[0].ToolName != "kept" {
		w.t.Fatalf("assignments after the deletion: %v", list)
	}
}

func toolRenamed(w *world) {
	made, rival := w.newTool("before", nil), w.newTool("rival", nil)
	for _, tool := range []hob.Tool{made, rival} {
		_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "custom", ToolName: tool.Name, ToolID: &tool.ID})
		w.must(err)
	}
	_, err := w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "builtin", ToolName: "current_time"})
	w.must(err)
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Name: point("after")})
	w.must(err)
	list, err := w.s.Assignments(w.ctx, w.service, w.agent.ID)
	w.must(err)
	same(w, "name of the assignment", list[0].ToolName, "after")
	// A name that the agent already uses for something else is refused, and nothing of the patch is kept.
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Name: point("current_time"), Description: point("lost")})
	w.want(hob.Conflict, err)
	got, err := w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	same(w, "name and description", got.Name+" "+got.Description, "after does before")
}

func toolVersions(w *world) {
	made := w.newTool("weather", map[string]hob.Secret{"K": "first"})
	same(w, "version of a new tool", made.Version, 1)
	config := made.Config
	config.Endpoint, config.Headers = "https://b.example/y", map[string]hob.Secret{"K": "second", "L": "more"}
	_, err := w.s.UpdateTool(w.ctx, w.key, made.ID, hob.ToolPatch{Name: point("forecast"), Config: &config})
	w.must(err)
	_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{IsActive: point(false)})
	w.must(err)
	list, err := w.s.ToolVersions(w.ctx, w.alice, made.ID)
	w.must(err)
	same(w, "number of versions", len(list), 3)
	old, changed := map[string]hob.Secret{"K": hob.Mask}, map[string]hob.Secret{"K": hob.Mask, "L": hob.Mask}
	for i, want := range []struct {
		version  int64
		name, by string
		active   bool
		headers  map[string]hob.Secret
	}{{3, "forecast", "service:", false, changed}, {2, "forecast", w.key.Owner(), true, changed}, {1, "weather", "service:", true, old}} {
		v := list[i]
		if v.Version != want.version || v.Name != want.name || v.By != want.by || v.IsActive != want.active || v.ID != made.ID || v.UpdatedAt.IsZero() {
			w.t.Errorf("version %d: %+v", want.version, v)
		}
		w.headers(v.Tool, want.headers)
	}
	_, err = w.s.ToolVersions(w.ctx, w.stranger, made.ID)
	w.want(hob.NotFound, err)
}

func toolRestored(w *world) {
	made := w.newTool("weather", map[string]hob.Secret{"K": "first"})
	w.assign(w.agent.ID, "weather", &made.ID)
	config := made.Config
	config.Endpoint, config.Headers = "https://b.example/y", map[string]hob.Secret{"K": "second"}
	_, err := w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Name: point("forecast"), Config: &config, IsActive: point(false)})
	w.must(err)

	_, err = w.s.RestoreTool(w.ctx, w.alice, made.ID, 1)
	w.want(hob.Forbidden, err)
	for _, version := range []int64{0, 3, -1} {
		_, err = w.s.RestoreTool(w.ctx, w.service, made.ID, version)
		w.want(hob.NotFound, err)
	}
	_, err = w.s.RestoreTool(w.ctx, w.service, made.ID, 1)
	w.must(err)
	got, err := w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	want := made // but switched off, as it was before the restore
	want.IsActive, want.Version, want.UpdatedAt = false, 3, got.UpdatedAt
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatalf("-want +restored:\n%s", d)
	}
	w.headers(got, map[string]hob.Secret{"K": "first"})
	list, err := w.s.Assignments(w.ctx, w.service, w.agent.ID)
	w.must(err)
	same(w, "name of the assignment", list[0].ToolName, "weather")

	// A name that somebody else took meanwhile is refused, and nothing is restored.
	w.newTool("forecast", nil)
	_, err = w.s.RestoreTool(w.ctx, w.service, made.ID, 2)
	w.want(hob.Conflict, err)
	got, err = w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	same(w, "version after a refused restore", got.Version, 3)
}

func toolVersionsBounded(w *world) {
	made := w.newTool("weather", nil)
	const more = 3
	for range hob.MaxToolVersions + more - 1 {
		_, err := w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Description: point("again")})
		w.must(err)
	}
	list, err := w.s.ToolVersions(w.ctx, w.service, made.ID)
	w.must(err)
	if n := len(list); n != hob.MaxToolVersions || list[0].Version != hob.MaxToolVersions+more || list[n-1].Version != more+1 {
		w.t.Fatalf("%d versions, from %d to %d", n, list[0].Version, list[n-1].Version)
	}
	_, err = w.s.RestoreTool(w.ctx, w.service, made.ID, more)
	w.want(hob.NotFound, err)
	w.must(w.deleteTool(w.ctx, w.service, made.ID))
	_, err = w.s.ToolVersions(w.ctx, w.service, made.ID)
	w.want(hob.NotFound, err)
}

func builtinChanges(w *world) {
	w.assign(w.agent.ID, "clock", nil)
	changes, err := w.s.Builtins(w.ctx, w.alice)
	w.must(err)
	same(w, "changes before the first", len(changes), 0)
	off := hob.BuiltinChange{Suffix: "Only for money.", Config: json.RawMessage(`{"zone":"UTC"}`), Version: 1}
	w.want(hob.Forbidden, w.s.ChangeBuiltin(w.ctx, w.alice, "clock", off))
	w.want(hob.Forbidden, w.s.ChangeBuiltin(w.ctx, w.boundTo(w.agent.ID), "clock", off))
	w.must(w.s.ChangeBuiltin(w.ctx, w.service, "clock", off))
	w.want(hob.Conflict, w.s.ChangeBuiltin(w.ctx, w.service, "clock", off)) // made from a version that is not the newest
	off.Version = 2
	changes, err = w.s.Builtins(w.ctx, w.alice)
	w.must(err)
	if d := cmp.Diff(map[string]hob.BuiltinChange{"clock": off}, changes); d != "" {
		w.t.Fatalf("-changed +read:\n%s", d)
	}
	elsewhere, err := w.s.Builtins(w.ctx, w.stranger)
	w.must(err)
	same(w, "changes of another workspace", len(elsewhere), 0)
	for _, list := range []func() ([]hob.AssignedTool, error){
		func() ([]hob.AssignedTool, error) { return w.s.Assignments(w.ctx, w.alice, w.agent.ID) },
		func() ([]hob.AssignedTool, error) { return w.s.Scope(w.ctx, w.alice, w.agent.ID) },
	} {
		got, err := list()
		w.must(err)
		if len(got) != 1 || !got[0].Off() || got[0].Builtin == nil || got[0].Builtin.Suffix != off.Suffix {
			w.t.Fatalf("assigned: %+v", got)
		}
	}
	w.must(w.s.ChangeBuiltin(w.ctx, w.service, "clock", hob.BuiltinChange{IsActive: true, Version: 2}))
	got, err := w.s.Scope(w.ctx, w.alice, w.agent.ID)
	w.must(err)
	same(w, "off after it was switched on", got[0].Off(), false)
}
