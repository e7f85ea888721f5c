package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"hob"
)

// Of a tool's result the terminal shows this much.
const (
	resultLines = 8
	resultChars = 600
)

// printer shows a run's events to a person: steps, calls with their arguments, shortened results, and the answer as it
// comes.
type printer struct {
	out    io.Writer
	answer io.Writer // set: the answer goes there, once and whole, and everything else to out
	colour bool

	midLine  bool            // the last thing written does not end a line
	thinking bool            // reasoning is being written
	steps    bool            // the run may have several steps, so each is announced
	streamed bool            // the answer's text came in deltas, so the whole that follows is not shown again
	said     strings.Builder // of the step, where the answer goes elsewhere: shown once it is known not to be the answer
	err      error           // of the first write that failed
}

// raw is every field of an event that is shown.
type raw struct {
	Run            hob.RunID       `json:"run_id"`
	Session        hob.SessionID   `json:"session_id"`
	Model          string          `json:"model"`
	Tools          []string        `json:"tools"`
	Step           int             `json:"step"`
	Delta          string          `json:"delta"`
	Content        string          `json:"content"`
	ToolName       string          `json:"tool_name"`
	Arguments      json.RawMessage `json:"arguments"`
	BadArguments   string          `json:"bad_arguments"`
	Result         string          `json:"result"`
	IsError        bool            `json:"is_error"`
	OutcomeUnknown bool            `json:"outcome_unknown"`
	DurationMS     int64           `json:"duration_ms"`
	Reason         string          `json:"reason"`
	From           string          `json:"from"`
	To             string          `json:"to"`
	Message        string          `json:"message"`
	Status         hob.Status      `json:"status"`
	Succeeded      bool            `json:"succeeded"`
	Method         string          `json:"method"`
	Code           *string         `json:"code"`
	Error          *string         `json:"error"`
	Usage          hob.Usage       `json:"usage"`
}

// completion is a complete event's steps, which is a number there and nowhere else.
type completion struct {
	Steps int `json:"steps"`
}

// event shows one event. Types it does not know are passed over: a newer server may send more.
func (p *printer) event(e hob.Event) error {
	var f raw
	if err := json.Unmarshal(e.Data, &f); err != nil {
		return fmt.Errorf("read event %d (%s): %w", e.Seq, e.Type, err)
	}
	switch e.Type {
	case hob.EventStart:
		p.start(f)
	case hob.EventStepStarted:
		p.streamed = false
		p.said.Reset()
		if p.steps {
			p.line(dim, "step "+strconv.Itoa(f.Step))
		}
	case hob.EventContentDelta:
		p.endThinking()
		p.streamed = p.streamed || f.Delta != ""
		if p.answer != nil {
			p.said.WriteString(f.Delta)
			break
		}
		p.text("", f.Delta)
	case hob.EventReasoningDelta:
		if !p.thinking {
			p.endLine()
			p.thinking = true
		}
		p.text(dim, f.Delta)
	case hob.EventChunk:
		p.endThinking()
		if !p.streamed && p.answer == nil {
			p.text("", f.Content)
		}
	case hob.EventToolCall:
		p.text("", p.said.String())
		p.said.Reset()
		p.line(cyan, "→ "+f.ToolName)
		text := arguments(f.Arguments)
		if f.BadArguments != "" {
			text = "no JSON object: " + shorten(f.BadArguments, resultLines, resultChars)
		}
		p.line("", indent(text, "    "))
	case hob.EventToolResult:
		p.result(f)
	case hob.EventWebSearch:
		p.search(e)
	case hob.EventHookResult, hob.EventApprovalResolved:
		p.people(e)
	case hob.EventComplete:
		return p.complete(e, f)
	default:
		p.notice(e.Type, f)
	}
	return p.err
}

// notice shows the events that tell of something out of the ordinary.
func (p *printer) notice(t hob.EventType, f raw) {
	switch t {
	case hob.EventWarning:
		p.line(yellow, "warning: "+f.Message)
	case hob.EventAttempt:
		p.line(yellow, "the server was restarted; the run goes on")
		p.streamed = false
	case hob.EventStepReset:
		if f.Reason != "output_recovery" {
			p.said.Reset()
			p.line(yellow, "step "+strconv.Itoa(f.Step)+" starts over ("+f.Reason+"); its text so far is void")
			p.streamed = false
		}
	case hob.EventModelFallback:
		p.line(yellow, "going on with "+f.To+" instead of "+f.From)
	case hob.EventProactiveCompact:
		if f.Succeeded {
			p.line(dim, "the conversation was made shorter to fit the model's window ("+f.Method+")")
		}
	case hob.EventCompaction:
		p.line(dim, "the conversation is summarised to fit the model's window")
	case hob.EventError:
		p.line(red, "error: "+f.Message)
	default:
	}
}

func (p *printer) start(f raw) {
	p.steps = len(f.Tools) > 0
	about := []string{string(f.Run), "session " + string(f.Session), f.Model}
	if len(f.Tools) > 0 {
		about = append(about, "tools: "+strings.Join(f.Tools, ", "))
	}
	p.line(dim, strings.Join(about, " · "))
}

func (p *printer) result(f raw) {
	s, mark := green, "← "
	switch {
	case f.OutcomeUnknown:
		s, mark = yellow, "← outcome unknown: "
	case f.IsError:
		s, mark = red, "← error: "
	}
	text := shorten(plain(f.Result), resultLines, resultChars)
	if text == "" {
		text = "(nothing)"
	}
	p.line(s, strings.TrimPrefix(indent(mark+text, "  "), "  "))
	p.line(dim, fmt.Sprintf("  %d ms", f.DurationMS))
}

// search shows what the model's provider searched for by itself. Its result has other members than that of a tool.
func (p *printer) search(e hob.Event) {
	var s hob.WebSearchEvent
	if err := json.Unmarshal(e.Data, &s); err != nil {
		p.err = fmt.Errorf("read event %d (%s): %w", e.Seq, e.Type, err)
		return
	}
	line := "→ " + s.ToolName + " by the provider"
	if s.Query != "" {
		line += ": " + strings.Join(strings.Fields(s.Query), " ")
	}
	p.line(cyan, line)
	if s.Error != "" {
		p.line(red, "← error: "+s.Error)
		return
	}
	found := make([]string, 0, len(s.Results))
	for _, r := range s.Results {
		found = append(found, r.URL)
	}
	if len(found) == 0 {
		found = []string{"(no pages named)"}
	}
	p.line(green, strings.TrimPrefix(indent("← "+shorten(strings.Join(found, "\n"), resultLines, resultChars), "  "), "  "))
}

func (p *printer) complete(e hob.Event, f raw) error {
	var c completion
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return fmt.Errorf("read event %d (%s): %w", e.Seq, e.Type, err)
	}
	about := []string{string(f.Status)}
	if f.Code != nil && *f.Code != string(f.Status) {
		about[0] += " (" + *f.Code + ")"
	}
	about = append(about, count(c.Steps, "step"))
	if f.Usage.TotalTokens > 0 {
		about = append(about, strconv.FormatInt(f.Usage.TotalTokens, 10)+" tokens")
	}
	if f.Usage.Cost != 0 {
		about = append(about, "$"+f.Usage.Cost.String())
	}
	s := dim
	if f.Status != hob.Completed {
		s = red
	}
	p.line(s, strings.Join(about, " · "))
	if p.answer != nil && f.Content != "" && p.err == nil {
		_, p.err = fmt.Fprintln(p.answer, strings.TrimSuffix(plain(f.Content), "\n"))
	}
	return p.err
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// line writes whole lines of their own.
func (p *printer) line(s style, text string) {
	p.endThinking()
	p.endLine()
	p.write(s, plain(text))
	p.write("", "\n")
}

// text writes a piece of a running text.
func (p *printer) text(s style, piece string) {
	piece = plain(piece)
	if piece == "" {
		return
	}
	p.write(s, piece)
	p.midLine = !strings.HasSuffix(piece, "\n")
}

func (p *printer) endThinking() {
	if p.thinking {
		p.thinking = false
		p.endLine()
	}
}

func (p *printer) endLine() {
	if p.midLine {
		p.midLine = false
		p.write("", "\n")
	}
}

func (p *printer) write(s style, text string) {
	if p.err != nil {
		return
	}
	if p.colour && s != "" {
		text = string(s) + text + reset
	}
	_, p.err = io.WriteString(p.out, text)
}
