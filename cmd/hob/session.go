package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"hob"
	"hob/internal/config"
	"hob/internal/store"
)

// sessionCheck is what hob doctor --session was asked.
type sessionCheck struct {
	id           hob.SessionID
	mend, asJSON bool
}

// doctorSession tells what a session's stored history holds and what is wrong with it, and mends it where asked to.
func doctorSession(ctx context.Context, w world, c config.Config, q sessionCheck) error {
	s, done, err := openForCheck(ctx, c, q.mend)
	if err != nil {
		return err
	}
	defer done()
	look := s.CheckSession
	if q.mend {
		look = s.RepairSession
	}
	found, err := look(ctx, hob.System(hob.DefaultWorkspace), q.id)
	if err != nil {
		return locked(c, err)
	}
	if q.asJSON {
		e := json.NewEncoder(w.stdout)
		e.SetIndent("", "  ")
		err = e.Encode(map[string]any{"session": found, "repaired": q.mend})
	} else {
		_, err = fmt.Fprint(w.stdout, plain(sessionText(found, q.mend)))
	}
	if err == nil && len(found.Faults) > 0 && !q.mend {
		return exit(exitFault)
	}
	return err
}

// openForCheck opens the store as it is: nothing is made or migrated. To change something the data folder must be nobody
// else's, since on SQLite a server remembers what it has read.
func openForCheck(ctx context.Context, c config.Config, change bool) (_ *store.DB, done func(), err error) {
	facts, err := store.Inspect(ctx, store.Config{DSN: c.Database, Dir: c.Data})
	if err != nil {
		return nil, nil, locked(c, err)
	}
	if facts.Schema < facts.Known {
		return nil, nil, hob.Errorf(hob.Conflict, "the store has schema %d; start hob serve once, which brings it to %d", facts.Schema, facts.Known)
	}
	r := &report{config: c}
	box := r.checkSeal()
	if box == nil {
		return nil, nil, hob.Errorf(hob.NotFound, "the store cannot be opened: %s", r.findings[len(r.findings)-1].Text)
	}
	unlock := func() {}
	if change && c.Database == "" {
		if unlock, err = lockFolder(c.Data); err != nil {
			return nil, nil, err
		}
	}
	s, err := store.Open(ctx, store.Config{DSN: c.Database, Dir: c.Data, Box: box})
	if err != nil {
		unlock()
		return nil, nil, locked(c, err)
	}
	return s, func() { _ = s.Close(); unlock() }, nil // what it wrote is durable already
}

// locked says what to do about a SQLite file that another program has locked.
func locked(c config.Config, err error) error {
	if store.Locked(err) {
		return hob.Errorf(hob.Unavailable, "another program has locked the database in %s; stop hob serve and whatever else has it open", c.Data)
	}
	return err
}

// charsPerToken is how many characters a token has, roughly.
const charsPerToken = 4

// sessionText writes a checkup for people.
func sessionText(c store.Checkup, mended bool) string {
	var b strings.Builder
	messages, chars := 0, 0
	for _, r := range c.Runs {
		messages, chars = messages+r.Messages, chars+r.Chars
	}
	fmt.Fprintf(&b, "session %s: %s, %s, %s\n\n", c.Session, count(len(c.Runs), "turn"), count(messages, "message"), roughly(chars))
	for _, r := range c.Runs {
		fmt.Fprintf(&b, "turn %-4d %-17s %s: %s, %s\n", r.Turn, r.Status, r.ID, count(r.Messages, "message"), roughly(r.Chars))
	}
	for i, s := range c.Summaries {
		replaced := ", replaced by a later one"
		if i == len(c.Summaries)-1 {
			replaced = ""
		}
		fmt.Fprintf(&b, "summary   of everything before message %d of turn %d%s: %s\n", s.Index, s.Turn, replaced,
			shorten(strings.Join(strings.Fields(s.Text), " "), 1, summaryChars))
	}
	b.WriteString("\n")
	if len(c.Faults) == 0 {
		b.WriteString("No faults.\n")
		return b.String()
	}
	word, doing := "fail", "repairing"
	if mended {
		word, doing = "mended", "done"
	}
	for _, f := range c.Faults {
		fmt.Fprintf(&b, "%s  turn %d, message %d (%s): %s; %s: %s\n", word, f.Turn, f.Index, f.Run, f.What, doing, f.Repair)
	}
	if !mended {
		fmt.Fprintf(&b, "\n%s. Stop the server, make a backup, and add --repair to mend.\n", count(len(c.Faults), "fault"))
	}
	return b.String()
}

// summaryChars is how much of a summary is shown.
const summaryChars = 200

func roughly(chars int) string {
	return "about " + count((chars+charsPerToken-1)/charsPerToken, "token")
}
