package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"hob"
)

// orNull is text that is null on the wire where there is none.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// busy refuses a run that would be refused anyway, before anything of it is read: a server with too much to do keeps its
// time for the runs it has accepted.
func (c *call) busy() error {
	err := c.s.Engine.Busy(c.by.Workspace)
	if err != nil {
		c.s.refusals.wait()
	}
	return err
}

func runSync(c *call) error {
	if err := c.busy(); err != nil {
		return err
	}
	l, err := c.s.streams.hold(c.Context(), c, false)
	if err != nil {
		return err
	}
	defer l.release()
	started, warnings, err := c.startRun(true)
	if err != nil {
		return err
	}
	r, actions, err := c.s.Engine.Wait(l.ctx, c.follower(), started.Run.ID)
	if err != nil {
		return c.s.left(l, reading{by: c.by, run: started.Run.ID, own: true}, err)
	}
	var waits []hob.Approval
	switch {
	case r.Status == hob.AwaitingApproval: // people take hours
		if waits, err = c.waitsFor(r.ID); err != nil {
			return err
		}
	case !r.Status.Final():
		return ending(r.ID)
	}
	return c.reply(http.StatusOK, hob.RunResult{
		RunID: r.ID, SessionID: r.Session, Content: r.Content, Error: orNull(r.Error), Code: orNull(r.Code), Usage: r.Usage,
		Actions: actions, Status: r.Status, Steps: r.Steps, IsNewSession: r.NewSession, Approvals: waits, Warnings: warnings,
	})
}

func runStream(c *call) error {
	if err := c.busy(); err != nil {
		return err
	}
	l, err := c.s.streams.hold(context.Background(), c, true)
	if err != nil {
		return err
	}
	started, _, err := c.startRun(false)
	if err != nil {
		l.release()
		return err
	}
	return c.follow(l, reading{by: c.follower(), run: started.Run.ID, own: true})
}

// runEvents is the door for coming back: numbered frames, from any position on.
func runEvents(c *call) error {
	if err := c.mayFollow(); err != nil {
		return err
	}
	id, err := c.runID()
	if err != nil {
		return err
	}
	after, err := c.position()
	if err != nil {
		return err
	}
	l, err := c.s.streams.hold(context.Background(), c, true)
	if err != nil {
		return err
	}
	id = hob.RunID(strings.Clone(string(id))) // of the request's head, which the stream outlives
	return c.follow(l, reading{by: c.follower(), run: id, after: after, numbered: true})
}

// mayFollow lets whoever may run follow what it started, as well as whoever may read.
func (c *call) mayFollow() error {
	if c.by.Has(hob.ScopeRead) || c.by.Has(hob.ScopeRun) {
		return nil
	}
	return hob.Errorf(hob.Forbidden, "this needs the scope %q, which your key or role does not have", hob.ScopeRead).
		WithCode("scope_missing")
}

// follower is the caller as a reader of runs: one that may run reads with that right. What it sees is the same.
func (c *call) follower() hob.Principal {
	by := c.by
	if by.Has(hob.ScopeRun) && !by.Has(hob.ScopeRead) {
		by.Scopes = append(slices.Clone(by.Scopes), hob.ScopeRead)
	}
	return by
}

// codePosition is the code of errors about a reader's position.
const codePosition = "invalid_event_id"

func badPosition() error {
	return hob.Errorf(hob.Invalid, "Last-Event-ID and after must be the number of an event of this run, or 0").
		WithCode(codePosition)
}

// position reads where a reader goes on. The header wins, since browsers send it together with the first address.
func (c *call) position() (int64, error) {
	given := c.Header.Values("Last-Event-ID")
	if len(given) == 0 || len(given) == 1 && given[0] == "" {
		if given = c.URL.Query()["after"]; len(given) == 0 {
			return 0, nil
		}
	}
	text := given[0]
	if len(given) > 1 {
		return 0, badPosition()
	}
	const maxDigits = 18
	if text == "" || len(text) > maxDigits {
		return 0, badPosition()
	}
	var n int64
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, badPosition()
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, nil
}
