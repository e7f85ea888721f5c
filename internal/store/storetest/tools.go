package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

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
	w.must(w.s.DeleteTool(w.ctx, w.service, made.ID))
	w.want(hob.NotFound, w.s.DeleteTool(w.ctx, w.service, made.ID))
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
