package provider

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// columns are the dialects of the table in docs/providers.md.
var columns = []string{"openai", "anthropic", "gemini"}

const oslo = `{"city":"Oslo"}`

// The answers that most of the recorded quirks are a way to say.
var (
	rains       = outcome{Text: "It rains.", Finish: hob.FinishStop}
	rainsLong   = outcome{Text: "It rains.", Finish: hob.FinishLength}
	oneCall     = outcome{Calls: []hob.ModelCall{{Name: "weather", Arguments: oslo}}, Finish: hob.FinishToolCalls}
	twoCalls    = outcome{Calls: []hob.ModelCall{{Name: "weather", Arguments: oslo}, {Name: "clock", Arguments: "{}"}}, Finish: hob.FinishToolCalls}
	thoughtful  = outcome{Reasoning: "Let me think.", Text: "It rains.", Finish: hob.FinishStop}
	filtered    = outcome{Text: "It ", Finish: hob.FinishContentFilter}
	brokenOff   = outcome{Text: "It ", Class: hob.ClassCut}
	failed      = outcome{Class: hob.ClassModelError}
	emptyCall   = outcome{Calls: []hob.ModelCall{{Name: "clock", Arguments: "{}"}}, Finish: hob.FinishToolCalls}
	invalidCall = outcome{Calls: []hob.ModelCall{{Name: "weather", Arguments: `{"city":`}}, Finish: hob.FinishToolCalls}
)

// decodeQuirks are odd ways in which answers come. Each has a recorded stream per dialect that knows it; the others are
// named in none with the reason. What each becomes is checked against want and told in the table.
var decodeQuirks = []struct {
	name, file string
	want       outcome
	except     map[string]outcome // where a dialect must do something else
	none       map[string]string
	show       func(outcome) string // "" = the whole outcome
}{
	{name: "a call whole in one event", file: "call_whole", want: oneCall},
	{name: "a call split at odd places", file: "call_split", want: oneCall, none: map[string]string{"gemini": "calls come whole"}},
	{name: "a call without an id", file: "ids_missing", want: oneCall},
	{name: "two calls with the same id", file: "ids_duplicate", want: twoCalls},
	{name: "no index", file: "index_missing", want: twoCalls, none: map[string]string{"gemini": "has no index"}},
	{name: "parallel calls", file: "parallel", want: twoCalls},
	{name: "a call without arguments", file: "args_empty", want: emptyCall},
	{name: "arguments as an object", file: "args_object", want: oneCall},
	{name: "arguments as text", file: "args_text", want: oneCall},
	{name: "arguments that are no JSON", file: "args_invalid", want: invalidCall, except: map[string]outcome{"gemini": failed}},
	{name: "usage missing", file: "usage_missing", want: rains, show: tellUsage},
	{name: "usage in the last event only", file: "usage_last", want: rains, show: tellUsage},
	{name: "usage in every event", file: "usage_every", want: rains, show: tellUsage},
	{name: "usage that cannot be true", file: "usage_absurd", want: rains, show: tellUsage},
	{
		name: "thoughts counted beside the answer", file: "usage_thoughts_apart", want: rains, show: tellUsage,
		none: map[string]string{"anthropic": "counts them in the answer"},
	},
	{name: "finish reason missing", file: "finish_missing", want: rains, except: map[string]outcome{"gemini": {Text: "It rains.", Class: hob.ClassCut}}},
	{name: "finish reason of a text behind calls", file: "finish_stop_with_calls", want: oneCall},
	{name: "unknown finish reason", file: "finish_unknown", want: rains},
	{name: "answer too long", file: "finish_length", want: rainsLong},
	{name: "turn paused by the vendor's search", file: "finish_pause", want: rainsLong, none: map[string]string{"openai": "does not pause", "gemini": "does not pause"}},
	{name: "reasoning", file: "reasoning", want: thoughtful},
	{
		name: "reasoning in the member `reasoning`", file: "reasoning_other_name", want: thoughtful,
		none: map[string]string{"anthropic": "has one name", "gemini": "has one name"},
	},
	{
		name: "reasoning as parts of the content", file: "reasoning_parts", want: thoughtful,
		none: map[string]string{"anthropic": "is how it comes", "gemini": "is how it comes"},
	},
	{name: "reasoning without a signature", file: "reasoning_unsigned", want: thoughtful, none: map[string]string{"openai": "has no signatures"}},
	{
		name: "sealed reasoning before a call", file: "reasoning_sealed", want: oneCall,
		except: map[string]outcome{"openai": {Reasoning: "Let me think.", Calls: oneCall.Calls, Finish: hob.FinishToolCalls}},
	},
	{
		name: "a signature on a call", file: "reasoning_on_call", want: twoCalls,
		none: map[string]string{"anthropic": "signs thoughts", "gemini": "as above"},
	},
	{name: "empty pieces of text", file: "text_empty", want: rains},
	{name: "null for content", file: "content_null", want: rains},
	{name: "comments and other keep-alives", file: "keep_alive", want: rains},
	{name: "the end mark is missing", file: "done_missing", want: rains},
	{name: "an end mark of another vendor", file: "done_extra", want: rains},
	{name: "CRLF line ends", file: "crlf", want: rains},
	{name: "sources of a web search", file: "citations", want: rains},
	{name: "one JSON document, no stream", file: "no_stream", want: rains},
	{name: "answer held back by a filter", file: "filter", want: filtered},
	{
		name: "refusal, or a blocked prompt", file: "refusal", want: outcome{Text: "I cannot say.", Finish: hob.FinishContentFilter},
		none: map[string]string{"anthropic": "is a stop reason, as above"},
	},
	{name: "an error instead of an answer", file: "error_first", want: failed},
	{name: "an error inside the stream", file: "error_inside", want: brokenOff},
	{name: "an event that is no JSON", file: "malformed", want: brokenOff},
	{name: "bytes that are no UTF-8", file: "not_utf8", want: outcome{Text: "It \uFFFD\uFFFD rains.", Finish: hob.FinishStop}},
	{name: "the connection ends too early", file: "cut", want: brokenOff},
	{name: "an empty body", file: "nothing", want: failed},
}

// recorded is the stream of a quirk, "" where the dialect has none.
func recorded(t *testing.T, dialect, file string) ([]byte, bool) {
	t.Helper()
	if file == "refusal" && dialect == "gemini" {
		file = "prompt_blocked"
	}
	for _, ending := range []string{".sse", ".json"} {
		body, err := os.ReadFile(filepath.Join("testdata", "quirks", dialect, file+ending))
		if err == nil {
			return body, true
		}
	}
	return nil, false
}

// essence is an outcome without what quirks are free to differ in: ids, counts, artefacts, the model, and the words of
// an error. Arguments are as the engine will read them.
func essence(o outcome) outcome {
	out := outcome{Text: o.Text, Reasoning: o.Reasoning, Finish: o.Finish, Class: o.Class}
	for _, c := range o.Calls {
		if args, err := hob.ParseArguments(c.Arguments); err == nil {
			c.Arguments = string(args)
		}
		out.Calls = append(out.Calls, hob.ModelCall{Name: c.Name, Arguments: c.Arguments})
	}
	return out
}

// tell says an outcome in words.
func tell(o outcome) string {
	var parts []string
	if o.Reasoning != "" {
		parts = append(parts, "thought “"+o.Reasoning+"”")
	}
	if o.Artefact != nil {
		parts = append(parts, "kept to be sent back: "+code(string(o.Artefact)))
	}
	for _, s := range o.Searches {
		told := "searched the web"
		if s.Query != "" {
			told += " for “" + s.Query + "”"
		}
		for _, r := range s.Results {
			told += ", found " + r.URL
		}
		parts = append(parts, told)
	}
	if o.Text != "" {
		parts = append(parts, "text “"+o.Text+"”")
	}
	for _, c := range o.Calls {
		id := "no id"
		if c.ID != "" {
			id = "id " + c.ID
		}
		args := c.Arguments
		if args == "" {
			args = "nothing"
		}
		parts = append(parts, fmt.Sprintf("call %s (%s) with %s", c.Name, id, code(args)))
	}
	if o.Error != "" {
		return strings.Join(append(parts, fmt.Sprintf("error %s: %s", o.Class, strings.NewReplacer("test: ", "", "test answered", "the provider answered").Replace(o.Error))), "; ")
	}
	return strings.Join(append(parts, "finish "+code(o.Finish)), "; ")
}

func tellUsage(o outcome) string {
	u := o.Usage
	if u == nil {
		return "none is told; the engine estimates"
	}
	return fmt.Sprintf("%d + %d tokens, %d of them thoughts, %d cached", u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens)
}

// code is text fit for a cell of a table.
func code(s string) string {
	return "`" + strings.NewReplacer("|", `\|`, "`", "'", "\n", " ").Replace(s) + "`"
}

type quirkRow struct {
	name  string
	cells []string
}

func decodeRows(t *testing.T) []quirkRow {
	t.Helper()
	rows := make([]quirkRow, 0, len(decodeQuirks))
	for _, q := range decodeQuirks {
		row := quirkRow{name: q.name}
		for _, dialect := range columns {
			body, ok := recorded(t, dialect, q.file)
			if reason, not := q.none[dialect]; not == ok {
				t.Fatalf("%s, %s: it has a recorded stream (%t) and a reason to have none (%q)", q.name, dialect, ok, reason)
			} else if not {
				row.cells = append(row.cells, "– ("+reason+")")
				continue
			}
			got := replay(t, dialects[dialect], bytes.NewReader(body))
			want := q.want
			if other, ok := q.except[dialect]; ok {
				want = other
			}
			if q.file == "refusal" && dialect == "gemini" {
				want.Text = ""
			}
			if diff := cmp.Diff(essence(want), essence(got)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", q.name, dialect, diff)
			}
			show := q.show
			if show == nil {
				show = tell
			}
			row.cells = append(row.cells, show(got))
		}
		rows = append(rows, row)
	}
	return rows
}

// TestQuirks_EveryRecordIsUsed keeps recorded streams from being forgotten.
func TestQuirks_EveryRecordIsUsed(t *testing.T) {
	t.Parallel()
	known := []string{"prompt_blocked"}
	for _, q := range decodeQuirks {
		known = append(known, q.file)
	}
	files, err := filepath.Glob("testdata/quirks/*/*")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f))
		if !slices.Contains(known, name) {
			t.Errorf("nothing reads %s", f)
		}
	}
}

// Marks of the generated part of docs/providers.md.
const (
	tableBegin = "<!-- generated by internal/provider from what its tests see: make golden -->\n"
	tableEnd   = "<!-- end -->\n"
)

// TestQuirks_Table checks every quirk in every dialect, and that docs/providers.md tells what came of it.
func TestQuirks_Table(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	section := func(title string, rows []quirkRow) {
		fmt.Fprintf(&b, "\n| %s | OpenAI's API | Anthropic's API | Gemini's API |\n|---|---|---|---|\n", title)
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", r.name, strings.Join(r.cells, " | "))
		}
	}
	section("how an answer comes", decodeRows(t))
	section("what a request becomes", renderRows(t))
	b.WriteString("\n")

	file := filepath.Join("..", "..", "docs", "providers.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), tableBegin)
	table, tail, end := strings.Cut(rest, tableEnd)
	if !ok || !end {
		t.Fatalf("%s lacks the marks of the generated part", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+tableBegin+b.String()+tableEnd+tail), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table, b.String()); diff != "" {
		t.Errorf("%s is not what the tests see; run make golden (-want +got):\n%s", file, diff)
	}
}
