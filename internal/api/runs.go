package api

import (
	"net/http"
	"slices"

	"hob"
)

// orNull is text that is null on the wire where there is none.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func runSync(c *call) error {
	ctx, lease, err := c.s.streams.hold(c.Context(), c, false)
	if err != nil {
		return err
	}
	defer lease.release()
	started, warnings, err := c.startRun(true)
	if err != nil {
		return err
	}
	r, err := c.s.Engine.Wait(ctx, c.follower(), started.Run.ID)
	if err != nil {
		return c.left(ctx, reading{run: started.Run.ID, own: true}, err)
	}
	if !r.Status.Final() {
		return ending(r.ID)
	}
	return c.reply(http.StatusOK, hob.RunResult{
		RunID: r.ID, SessionID: r.Session, Content: r.Content, Error: orNull(r.Error), Code: orNull(r.Code), Usage: r.Usage,
		Status: r.Status, Steps: r.Steps, IsNewSession: r.NewSession, Warnings: warnings,
	})
}

func runStream(c *call) error {
	ctx, lease, err := c.s.streams.hold(c.Context(), c, true)
	if err != nil {
		return err
	}
	defer lease.release()
	started, _, err := c.startRun(false)
	if err != nil {
		return err
	}
	return c.follow(ctx, reading{run: started.Run.ID, own: true})
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
	run, err := c.run(id)
	if err != nil {
		return err
	}
	after, err := c.position()
	if err != nil {
		return err
	}
	if after > run.LastSeq {
		return badPosition()
	}
	ctx, lease, err := c.s.streams.hold(c.Context(), c, true)
	if err != nil {
		return err
	}
	defer lease.release()
	return c.follow(ctx, reading{
		run: id, after: after, numbered: true, over: run.Status.Final() && after == run.LastSeq,
		own: whoIs(run.Principal) == whoIs(c.by),
	})
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

func badPosition() error {
	return hob.Errorf(hob.Invalid, "Last-Event-ID and after must be the number of an event of this run, or 0").
		WithCode("invalid_event_id")
}

// position reads where a reader goes on. The header wins, since browsers send it together with the first address.
func (c *call) position() (int64, error) {
	text := c.Header.Get("Last-Event-ID")
	if text == "" {
		if !c.URL.Query().Has("after") {
			return 0, nil
		}
		text = c.queryValue("after")
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
