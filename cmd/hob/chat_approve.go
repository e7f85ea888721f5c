package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"hob"
	"hob/client"
)

// decider asks the person at the terminal about what the run waits for, one after the other. It is used from one goroutine.
type decider struct {
	p      *printer // nil: nothing is shown, and nobody asked
	person bool     // somebody can be asked: standard input is a terminal
	// decide says what the person said; its error is for people.
	decide func(context.Context, hob.RunID, client.Decision) error

	asks  []hob.ApprovalRequestedEvent // that are open, the first is asked about
	stage askStage
}

// askStage is what the next line is taken for.
type askStage int

const (
	askNothing askStage = iota
	askChoice
	askInput  // arguments in the place of those that are asked about
	askReason // of a refusal
)

// event follows what the run waits for.
func (d *decider) event(e hob.Event) error {
	switch e.Type {
	case hob.EventApprovalRequested:
		var a hob.ApprovalRequestedEvent
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return fmt.Errorf("read event %d (%s): %w", e.Seq, e.Type, err)
		}
		d.asks = append(d.asks, a)
		if len(d.asks) == 1 {
			d.ask()
		}
	case hob.EventApprovalResolved:
		var a hob.ApprovalResolvedEvent
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return fmt.Errorf("read event %d (%s): %w", e.Seq, e.Type, err)
		}
		d.settled(a.ApprovalID)
	case hob.EventComplete:
		d.asks, d.stage = nil, askNothing
	default:
	}
	return nil
}

// settled forgets an approval, whoever decided it, and goes on with the next.
func (d *decider) settled(id string) {
	for i, a := range d.asks {
		if a.ApprovalID != id {
			continue
		}
		d.asks = append(d.asks[:i:i], d.asks[i+1:]...)
		if i == 0 {
			d.stage = askNothing
			if len(d.asks) > 0 {
				d.ask()
			}
		}
		return
	}
}

// ask shows the first of what is open, and begins to ask about it.
func (d *decider) ask() {
	if d.p == nil {
		return
	}
	a, p := d.asks[0], d.p
	about := string(a.HookEvent)
	if a.ToolName != "" {
		about = a.ToolName
	}
	p.line(yellow, "? "+about+": "+a.Message)
	if text := arguments(a.ToolInput); text != "{}" {
		p.line("", indent(text, "    "))
	}
	if len(a.Preview) > 0 {
		p.line(dim, indent("would do: "+shorten(string(a.Preview), resultLines, resultChars), "    "))
	}
	if !a.ExpiresAt.IsZero() {
		p.line(dim, "    until "+a.ExpiresAt.Local().Format("15:04:05"))
	}
	if !d.person {
		d.hint()
		return
	}
	d.choose()
}

// choose begins to wait for a choice.
func (d *decider) choose() {
	d.stage = askChoice
	d.p.text(bold, "approve? y/N, e to edit the arguments: ")
}

// hint tells how what is open can be decided elsewhere.
func (d *decider) hint() {
	d.stage = askNothing
	if len(d.asks) > 0 {
		id := d.asks[0].ApprovalID
		d.p.line(dim, "the run waits: hob approvals approve "+id+"   or: hob approvals deny "+id)
	}
}

// wants says whether the next line is for the decider.
func (d *decider) wants() bool { return d.stage != askNothing }

// gone tells that nobody will type any more.
func (d *decider) gone() {
	d.person = false
	if d.wants() {
		d.hint()
	}
}

// line takes what the person typed.
func (d *decider) line(ctx context.Context, typed string) {
	typed = strings.TrimSpace(typed)
	d.p.midLine = false // the terminal has shown the line with its end
	switch d.stage {
	case askNothing:
	case askChoice:
		word, reason, _ := strings.Cut(typed, " ")
		d.choice(ctx, strings.ToLower(word), strings.TrimSpace(reason))
	case askReason:
		d.say(ctx, client.Decision{Reason: typed})
	case askInput:
		if typed == "" {
			d.again("")
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(typed), &object); err != nil || object == nil {
			d.again("that is no JSON object")
			return
		}
		d.say(ctx, client.Decision{Approved: true, ModifiedInput: json.RawMessage(typed)})
	}
}

// choice takes the first word of an answer, and what stands behind it as the reason.
func (d *decider) choice(ctx context.Context, word, reason string) {
	switch word {
	case "y", "yes":
		d.say(ctx, client.Decision{Approved: true, Reason: reason})
	case "n", "no", "":
		if reason != "" {
			d.say(ctx, client.Decision{Reason: reason})
			return
		}
		d.stage = askReason
		d.p.text(bold, "why not? (the model reads it; may be empty): ")
	case "e", "edit":
		if d.asks[0].HookEvent != hob.PreToolUse {
			d.again("only the arguments of a tool call can be edited")
			return
		}
		d.stage = askInput
		d.p.text(bold, "the arguments, as a JSON object in one line: ")
	default:
		d.again("please answer y, n or e")
	}
}

// again tells what was wrong and asks about the same once more.
func (d *decider) again(wrong string) {
	if wrong != "" {
		d.p.line(red, wrong)
	}
	d.choose()
}

// say sends a decision about what was shown. The run tells what became of it; where it cannot be sent, the person may try
// again, or it is left to others.
func (d *decider) say(ctx context.Context, decision client.Decision) {
	a := d.asks[0]
	decision.ApprovalID, decision.Digest = a.ApprovalID, a.Digest
	d.stage = askNothing
	err := d.decide(ctx, a.Run, decision)
	switch kind := hob.KindOf(err); {
	case err == nil, kind == hob.Conflict: // decided meanwhile: the event tells by whom
	case kind == hob.Invalid:
		d.again(explain(err))
	default:
		d.p.line(red, explain(err))
		d.hint()
	}
}
