package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"hob"
)

// people shows what hooks and people decided. What changed nothing is not shown.
func (p *printer) people(e hob.Event) {
	switch e.Type { //nolint:exhaustive // the others are shown elsewhere
	case hob.EventHookResult:
		var h hob.HookResultEvent
		if p.readInto(e, &h) {
			p.hookResult(h)
		}
	case hob.EventApprovalResolved:
		var a hob.ApprovalResolvedEvent
		if p.readInto(e, &a) {
			p.resolved(a)
		}
	}
}

func (p *printer) readInto(e hob.Event, into any) bool {
	if err := json.Unmarshal(e.Data, into); err != nil {
		p.err = fmt.Errorf("read event %d (%s): %w", e.Seq, e.Type, err)
		return false
	}
	return true
}

func (p *printer) hookResult(h hob.HookResultEvent) {
	if h.HookType == hob.ApprovalHook { // the approval itself is shown
		return
	}
	who := string(h.HookType) + " hook at " + string(h.HookEvent)
	if h.Source == "tool_rule" {
		who = "rule of " + h.ToolName
	}
	var what []string
	s := yellow
	if h.Status == hob.HookFailed || h.Status == hob.HookTimedOut {
		what = append(what, strings.ReplaceAll(string(h.Status), "_", " "))
	}
	if h.Blocked {
		what, s = append(what, "blocked"), red
	}
	if h.Modified {
		what = append(what, "modified")
	}
	if len(what) == 0 {
		return
	}
	text := who + " " + strings.Join(what, ", ")
	if h.Message != "" {
		text += ": " + shorten(h.Message, resultLines, resultChars)
	}
	p.line(s, text)
	if len(h.ModifiedInput) > 0 {
		p.line("", indent(arguments(h.ModifiedInput), "    "))
	}
}

func (p *printer) resolved(a hob.ApprovalResolvedEvent) {
	s, text := yellow, string(a.Status)
	switch a.Status {
	case hob.ApprovalApproved:
		s = green
	case hob.ApprovalDenied:
		s = red
	case hob.ApprovalExpired:
		text = "expired: nobody decided in time"
	case hob.ApprovalPending, hob.ApprovalCancelled:
	}
	if a.By != "" {
		text += " by " + a.By
	}
	if a.Reason != "" {
		text += ": " + shorten(a.Reason, resultLines, resultChars)
	}
	p.line(s, text)
	if len(a.ModifiedInput) > 0 {
		p.line("", indent("with "+arguments(a.ModifiedInput), "    "))
	}
}
