package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"hob"
	"hob/internal/engine"
)

const cityFormat = `{"type":"json_schema","json_schema":{"name":"city","strict":true,"schema":{"type":"object",` +
	`"properties":{"name":{"type":"string"},"people":{"type":"integer"}},"required":["name","people"],"additionalProperties":false}}}`

func TestFormat_AnAnswerInTheWrongFormIsAskedForOnceMore(t *testing.T) {
	t.Parallel()
	const right = `{"name":"Bonn","people":330000}`
	for _, c := range []struct {
		name, format, script string
		status               hob.Status
		content              string
		repairs, calls       int
	}{
		{"right at once", cityFormat, "text: " + right + "\n", hob.Completed, right, 0, 1},
		{"in a fence", cityFormat, "text: ```json\ntext: " + right + "\ntext: ```\n", hob.Completed, right, 0, 1},
		{"wrong, then right", cityFormat, "text: {\"name\":\"Bonn\"}\n---\ntext: " + right + "\n", hob.Completed, right, 1, 2},
		{"prose, then right", cityFormat, "text: It is Bonn.\n---\ntext: " + right + "\n", hob.Completed, right, 1, 2},
		{"wrong twice", cityFormat, "text: It is Bonn.\n---\ntext: {\"people\":\"many\"}\n", hob.Failed, `{"people":"many"}`, 1, 2},
		{"any object", `{"type":"json_object"}`, "text: [1]\n---\ntext: {\"a\":1}\n", hob.Completed, `{"a":1}`, 1, 2},
		{"text", `{"type":"text"}`, "text: It is Bonn.\n", hob.Completed, "It is Bonn.", 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]any{"script": c.script})
			asked := w.watchModel()
			w.begin(nil)
			run := w.wait(w.start("Which city?", hob.RunOptions{Tuning: hob.Tuning{ResponseFormat: json.RawMessage(c.format)}}).ID)
			if run.Status != c.status || run.Content != c.content || run.Steps != 1 || len(asked()) != c.calls {
				t.Fatalf("%s (%s) %q after %d steps and %d calls: %s", run.Status, run.Code, run.Content, run.Steps, len(asked()), run.Error)
			}
			if c.status == hob.Failed && (run.Code != hob.CodeResponseFormat || !strings.Contains(run.Error, "name")) {
				t.Fatalf("it failed with %s: %s", run.Code, run.Error)
			}
			repairs := 0
			for _, name := range w.names(run.ID) {
				if name == string(hob.EventResponseRepair) {
					repairs++
				}
			}
			if repairs != c.repairs {
				t.Fatalf("%d repairs in %v", repairs, w.names(run.ID))
			}
			if msgs := w.valid(run); len(msgs) != 2 || msgs[1].Content != c.content {
				t.Fatalf("the history holds %+v", msgs)
			}
		})
	}
}

func TestFormat_ToolsMayBeUsedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{
		"response_format": json.RawMessage(cityFormat),
		"script":          "text: I look it up.\ncall: read {\"n\":1}\n---\ntext: {\"name\":\"Bonn\",\"people\":1}\n",
	}, "read")
	w.begin(nil)
	run := w.wait(w.start("Which city?", hob.RunOptions{}).ID)
	if run.Status != hob.Completed || run.Steps != 2 || strings.Contains(strings.Join(w.names(run.ID), " "), "repair") {
		t.Fatalf("%s %s, %v", run.Status, run.Error, w.names(run.ID))
	}
}

func TestFormat_OneThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]any{"script": "text: hi\n"})
	w.begin(nil)
	for _, format := range []string{
		`{}`, `{"type":"xml"}`, `{"type":"json_schema"}`, `{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}`,
		`{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}`,
		`{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"nothing"}}}`,
		`{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"file:///etc/passwd"}}}`,
		`{"type":"json_schema","json_schema":{"name":"a","schema":"text"}}`, `{"type":7}`,
	} {
		_, err := w.engine.Start(t.Context(), w.by, engine.StartInput{
			Agent: w.agent.ID, Message: hob.Message{Role: hob.RoleUser, Content: "go"},
			Options: hob.RunOptions{Tuning: hob.Tuning{ResponseFormat: json.RawMessage(format)}},
		})
		if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "response_format") {
			t.Errorf("%s was taken, or refused with: %v", format, err)
		}
	}
}

func TestEffort_ThatCannotBePassedOnIsSaid(t *testing.T) {
	t.Parallel()
	for _, knows := range []bool{true, false} {
		w := newWorld(t, map[string]any{"script": "text: hi\n", "reasoning_effort": "high"})
		inner := w.models
		w.models = func(ctx context.Context, ws hob.WorkspaceID, name string) (hob.Model, error) {
			m, err := inner(ctx, ws, name)
			m.Effort = knows
			return m, err
		}
		w.begin(nil)
		run := w.wait(w.start("go", hob.RunOptions{}).ID)
		if said := strings.Contains(strings.Join(w.names(run.ID), " "), "warning"); said == knows {
			t.Errorf("with a model that takes an effort (%v): warned %v", knows, said)
		}
	}
}
