package engine_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hob"
)

var update = flag.Bool("update", false, "rewrite the expectations of the scenario files")

// TestScenarios plays every file of testdata: a scripted model, messages to the agent, the log and the history that must
// come out.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			playScenario(t, file)
		})
	}
}

type scenario struct {
	Settings map[string]any `json:"settings"`
	Tools    []string       `json:"tools"`
	Options  hob.RunOptions `json:"options"`
}

func playScenario(t *testing.T, file string) {
	t.Helper()
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var sc scenario
	if err := json.Unmarshal(section(ar, "agent.json"), &sc); err != nil {
		t.Fatalf("agent.json: %v", err)
	}
	if sc.Settings == nil {
		sc.Settings = map[string]any{}
	}
	sc.Settings["script"] = string(section(ar, "model"))
	w := newWorld(t, sc.Settings, sc.Tools...)
	w.begin(nil)
	var session hob.SessionID
	var events, history bytes.Buffer
	for _, say := range strings.Split(strings.TrimSpace(string(section(ar, "say"))), "\n") {
		run := w.wait(w.startIn(session, say, sc.Options).ID)
		session = run.Session
		writeEvents(&events, w.log(run.ID))
		for _, m := range w.valid(run) {
			writeMessage(&history, m)
		}
	}
	compareSection(t, file, ar, "events", events.String())
	compareSection(t, file, ar, "history", history.String())
}

func section(ar *txtar.Archive, name string) []byte {
	for _, f := range ar.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func compareSection(t *testing.T, file string, ar *txtar.Archive, name, got string) {
	t.Helper()
	if *update {
		for i := range ar.Files {
			if ar.Files[i].Name == name {
				ar.Files[i].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		ar.Files = append(ar.Files, txtar.File{Name: name, Data: []byte(got)})
		if err := os.WriteFile(file, txtar.Format(ar), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(section(ar, name)), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// writeEvents writes one line an event: its type and the fields that are the same in every run. Pieces of streamed text
// that follow each other are joined, since how they are cut depends on time.
func writeEvents(b *bytes.Buffer, log []hob.Event) {
	var text strings.Builder
	for i, ev := range log {
		var m map[string]any
		_ = json.Unmarshal(ev.Data, &m)
		piece, streamed := m["delta"].(string)
		if ev.Type == hob.EventChunk {
			piece, streamed = m["content"].(string)
		}
		if streamed {
			text.WriteString(piece)
			if i+1 < len(log) && log[i+1].Type == ev.Type {
				continue
			}
			fmt.Fprintf(b, "%s %q\n", ev.Type, text.String())
			text.Reset()
			continue
		}
		fmt.Fprintf(b, "%s", ev.Type)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			switch k {
			case "event", "type", "seq", "run_id", "ts", "session_id", "agent_id", "duration_ms", "result_preview",
				"context_handler_id", "retrieved_items", "model", "void_from", "usage":
				continue
			}
			v, _ := json.Marshal(m[k])
			if len(v) > 160 {
				v = append(v[:160], "…"...)
			}
			if k == "tool_calls" {
				v = fmt.Appendf(nil, "%d", len(m[k].([]any)))
			}
			fmt.Fprintf(b, " %s=%s", k, v)
		}
		b.WriteByte('\n')
	}
}

func writeMessage(b *bytes.Buffer, m hob.Message) {
	fmt.Fprintf(b, "%s", m.Role)
	if m.CallID != "" {
		fmt.Fprintf(b, " %s", m.CallID)
	}
	content := m.Content
	if len(content) > 160 {
		content = content[:160] + "…"
	}
	fmt.Fprintf(b, " %q", content)
	for _, c := range m.Calls {
		fmt.Fprintf(b, " %s=%s%s", c.ID, c.Name, c.Arguments)
	}
	if m.Reasoning != nil {
		fmt.Fprintf(b, " reasoning=%q", m.Reasoning.Text)
	}
	b.WriteByte('\n')
}
