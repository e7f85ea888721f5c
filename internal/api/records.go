package api

import (
	"encoding/json"
	"net/http"
	"slices"

	"hob"
)

func getRun(c *call) error {
	if err := c.mayFollow(); err != nil {
		return err
	}
	id, err := c.runID()
	if err != nil {
		return err
	}
	d, err := c.s.Store.RunDetail(c.Context(), c.follower(), id)
	if hob.KindOf(err) == hob.NotFound {
		return absentRun()
	}
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, asRecord(d))
}

// asRecord tells a run's story.
func asRecord(d hob.RunDetail) hob.RunRecord {
	r := d.Run
	rec := hob.RunRecord{
		ID: r.ID, RunID: r.ID, SessionID: r.Session, AgentID: r.Agent, Model: r.Model, Status: r.Status,
		Code: orNull(r.Code), Error: orNull(r.Error), Content: r.Content, Usage: r.Usage, Actions: d.Actions, Steps: r.Steps,
		Attempt: r.Attempt, Held: r.Held && !r.Status.Final(), LastSeq: r.LastSeq, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, CompletedAt: r.CompletedAt,
		InputMessages: []hob.Message{}, OutputMessages: []hob.Message{}, RetrievedContext: []json.RawMessage{},
		Warnings: []string{}, Events: make([]json.RawMessage, 0, len(d.Events)), ToolCalls: make([]hob.CallRecord, 0, len(d.Calls)),
	}
	for i, m := range d.Messages {
		if undecided(r, m) {
			continue
		}
		if m.Reasoning != nil { // the signed artefact is between the server and the provider
			m.Reasoning = &hob.Reasoning{Provider: m.Reasoning.Provider, Text: m.Reasoning.Text}
		}
		if i == 0 && m.Role == hob.RoleUser {
			rec.InputMessages = append(rec.InputMessages, m)
		} else {
			rec.OutputMessages = append(rec.OutputMessages, m)
		}
	}
	for _, e := range d.Events {
		if !e.Type.Delta() {
			rec.Events = append(rec.Events, e.Data)
		}
		var warning hob.WarningEvent
		if e.Type == hob.EventWarning && json.Unmarshal(e.Data, &warning) == nil {
			rec.Warnings = append(rec.Warnings, warning.Message)
		}
	}
	for _, call := range d.Calls {
		rec.ToolCalls = append(rec.ToolCalls, call.Record())
	}
	rec.ReasoningSteps = reasoning(d)
	return rec
}

// undecided says whether a message is an answer that is none yet: hooks may still change it or hold it back.
func undecided(r hob.Run, m hob.Message) bool {
	return !r.Status.Final() && m.Role == hob.RoleAssistant && len(m.Calls) == 0
}

// reasoning gathers the steps that thought or called something, in order. What was thought for an answer that is none yet is
// no step yet, as the answer is no message.
func reasoning(d hob.RunDetail) []hob.ReasoningStep {
	by := map[int]*hob.ReasoningStep{}
	at := func(n int) *hob.ReasoningStep {
		if by[n] == nil {
			by[n] = &hob.ReasoningStep{Step: n}
		}
		return by[n]
	}
	for _, e := range d.Events {
		if e.Type == hob.EventReasoning {
			var r hob.ReasoningEvent
			if json.Unmarshal(e.Data, &r) == nil {
				at(r.Step).Content += r.Content
			}
		}
	}
	for _, call := range d.Calls {
		s := at(call.Step)
		s.ToolCalls = append(s.ToolCalls, call.Name)
	}
	steps := make([]hob.ReasoningStep, 0, len(by))
	for _, s := range by {
		if d.Run.Status.Final() || len(s.ToolCalls) > 0 {
			steps = append(steps, *s)
		}
	}
	slices.SortFunc(steps, func(a, b hob.ReasoningStep) int { return a.Step - b.Step })
	return steps
}

// runList is a part of a session's runs, from the oldest on.
type runList struct {
	SessionID hob.SessionID   `json:"session_id"`
	Runs      []hob.RunRecord `json:"runs"`
	Limit     int             `json:"limit"`
	Offset    int             `json:"offset"`
}

func listRuns(c *call) error {
	id, err := c.sessionID()
	if err != nil {
		return err
	}
	limit := c.number("limit", maxRunsLimit, 1, maxRunsLimit)
	offset := c.number("offset", 0, 0, maxListedOffset)
	runs, err := c.s.Store.SessionRuns(c.Context(), c.by, id, limit, offset)
	if err != nil {
		return err
	}
	answer := runList{SessionID: id, Runs: make([]hob.RunRecord, 0, len(runs)), Limit: limit, Offset: offset}
	for _, d := range runs {
		answer.Runs = append(answer.Runs, asRecord(d))
	}
	return c.reply(http.StatusOK, answer)
}

// messageRow is one turn of a conversation.
type messageRow struct {
	Role               hob.Role  `json:"role"`
	Content            string    `json:"content"`
	RunID              hob.RunID `json:"run_id"`
	Timestamp          hob.Time  `json:"timestamp"`
	ReasoningRequested *bool     `json:"reasoning_requested,omitempty"`
	Reasoning          string    `json:"reasoning,omitempty"`
}

type messageList struct {
	SessionID hob.SessionID `json:"session_id"`
	Messages  []messageRow  `json:"messages"`
}

// listMessages gives two messages per completed run. limit counts runs.
func listMessages(c *call) error {
	id, err := c.sessionID()
	if err != nil {
		return err
	}
	limit := c.number("limit", 0, 1, maxLimit)
	answer := messageList{SessionID: id, Messages: []messageRow{}}
	for offset, n := 0, 0; ; offset += maxRunsLimit {
		runs, err := c.s.Store.SessionRuns(c.Context(), c.by, id, maxRunsLimit, offset)
		if err != nil {
			return err
		}
		for _, d := range runs {
			if d.Run.Status != hob.Completed {
				continue
			}
			if n++; limit > 0 && n > limit {
				return c.reply(http.StatusOK, answer)
			}
			answer.Messages = append(answer.Messages, turn(d)...)
		}
		if len(runs) < maxRunsLimit {
			return c.reply(http.StatusOK, answer)
		}
	}
}

func turn(d hob.RunDetail) []messageRow {
	user := messageRow{Role: hob.RoleUser, RunID: d.Run.ID, Timestamp: d.Run.CreatedAt}
	if len(d.Messages) > 0 {
		user.Content = d.Messages[0].Text()
	}
	answer := messageRow{
		Role: hob.RoleAssistant, Content: d.Run.Content, RunID: d.Run.ID, Timestamp: d.Run.CreatedAt,
		ReasoningRequested: d.Run.Options.ReasoningRequested,
	}
	for _, s := range reasoning(d) {
		if s.Content != "" && answer.Reasoning != "" {
			answer.Reasoning += "\n\n"
		}
		answer.Reasoning += s.Content
	}
	return []messageRow{user, answer}
}

type retrievedAnswer struct {
	SessionID        hob.SessionID     `json:"session_id"`
	RunID            hob.RunID         `json:"run_id"`
	RetrievedContext []json.RawMessage `json:"retrieved_context" jsonschema:"not available yet: always empty"`
}

// retrievedContext answers for a run of the session. Nothing retrieves yet, so the list is empty.
func retrievedContext(c *call) error {
	session, err := c.sessionID()
	if err != nil {
		return err
	}
	if _, err := c.s.Store.Session(c.Context(), c.by, session); err != nil {
		return err
	}
	id, err := c.runID()
	if err != nil {
		return err
	}
	r, err := c.run(id)
	if err != nil {
		return err
	}
	if r.Session != session {
		return absentRun()
	}
	return c.reply(http.StatusOK, retrievedAnswer{SessionID: session, RunID: id, RetrievedContext: []json.RawMessage{}})
}
