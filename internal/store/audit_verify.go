package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"hob"
)

// auditSchema is the version of the schema since which there is an audit log.
const auditSchema = 5

// AuditLog reads the audit log beside any store, as it was at one moment. A server may write to it meanwhile.
type AuditLog struct{ link *link }

// OpenAudit takes the moment. Nothing is made, migrated or locked; no seal key is needed. Errors as those of OpenDump.
func OpenAudit(ctx context.Context, c Config) (*AuditLog, error) {
	l, err := c.link(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := l.define(ctx, l.d.snapshot); err != nil {
		return nil, errors.Join(fmt.Errorf("look into the database: %w", err), l.close())
	}
	version, err := l.version(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("look into the database: %w", err)
	case version == 0:
		err = hob.Errorf(hob.NotFound, "the database holds nothing of Hob's yet")
	case version < auditSchema:
		err = hob.Errorf(hob.NotFound, "the database has schema version %d, which has no audit log yet: hob migrate up", version)
	default:
		return &AuditLog{l}, nil
	}
	l.rollback()
	return nil, errors.Join(err, l.close())
}

// Close ends the moment.
func (a *AuditLog) Close() error {
	a.link.rollback()
	return a.link.close()
}

// entries goes through what a query selects, without holding it.
func (a *AuditLog) entries(ctx context.Context, query string, args ...any) iter.Seq2[hob.AuditEntry, error] {
	return func(yield func(hob.AuditEntry, error) bool) {
		rows, err := a.link.query(ctx, `SELECT `+auditColumns+` FROM audit`+query, args...)
		if err != nil {
			yield(hob.AuditEntry{}, fmt.Errorf("read the audit log: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			e, err := scanAudit(rows)
			if err != nil {
				err = fmt.Errorf("read the audit log: %w", err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(hob.AuditEntry{}, fmt.Errorf("read the audit log: %w", err))
		}
	}
}

// Entries gives the entries of a workspace, or of all where it is "", in the order of their chains, what is not linked yet
// behind. Of the filter only the times count.
func (a *AuditLog) Entries(ctx context.Context, ws hob.WorkspaceID, f hob.AuditFilter) iter.Seq2[hob.AuditEntry, error] {
	return func(yield func(hob.AuditEntry, error) bool) {
		chains, err := a.chains(ctx)
		if err != nil {
			yield(hob.AuditEntry{}, err)
			return
		}
		for _, c := range chains {
			if ws != "" && c.Workspace != ws {
				continue
			}
			for _, part := range []string{" AND place > 0 ORDER BY place", " AND place <= 0 ORDER BY n"} {
				q := filter{}
				q.where("workspace_id = ?", string(c.Workspace))
				if !f.Since.IsZero() {
					q.where("at >= ?", f.Since.Micros())
				}
				if !f.Until.IsZero() {
					q.where("at < ?", f.Until.Micros())
				}
				for e, err := range a.entries(ctx, q.String()+part, q.args...) {
					if !yield(e, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// AuditChain is what was found of a workspace's chain.
type AuditChain struct {
	Workspace hob.WorkspaceID `json:"workspace_id"`
	Entries   int64           `json:"entries"`
	Linked    int64           `json:"linked"`
	Loose     int64           `json:"not_linked"`
	Head      string          `json:"head"`               // hash of the last entry up to which the chain holds
	Place     int64           `json:"place"`              // its place
	Expected  int64           `json:"expected,omitempty"` // place of the entry with the hash that was asked for
	Broken    *AuditBreak     `json:"broken,omitempty"`   // nil: the chain holds
}

// AuditBreak is the first place where a chain does not hold.
type AuditBreak struct {
	Place int64  `json:"place"`
	What  string `json:"what"`
}

// chains counts the entries of every workspace. What has a place that is none breaks its chain, and so does what is not
// linked where entries are linked as they are written.
func (a *AuditLog) chains(ctx context.Context) ([]AuditChain, error) {
	list, err := many(ctx, &a.link.tx, func(r row) (c AuditChain, err error) {
		var none int64
		if err = r.Scan(&c.Workspace, &c.Entries, &c.Linked, &none); err == nil && none > 0 {
			c.Broken = &AuditBreak{What: fmt.Sprintf("there are entries whose place is no place: %d", none)}
		}
		c.Loose = c.Entries - c.Linked - none
		if c.Loose > 0 && a.link.d.alone == "" && c.Broken == nil {
			c.Broken = &AuditBreak{What: fmt.Sprintf("there are entries that were not written by Hob, which links what it writes here at once: %d", c.Loose)}
		}
		return c, err
	}, `SELECT workspace_id, count(*), count(CASE WHEN place > 0 THEN 1 END), count(CASE WHEN place < 0 THEN 1 END)
		FROM audit GROUP BY workspace_id ORDER BY workspace_id`)
	return list, hob.Wrap("read the audit log", err)
}

// Verify follows every workspace's chain from its beginning. A hash that was noted earlier is looked for among the entries up
// to which a chain holds; where it is in none, entries at the end are gone or were all written anew.
func (a *AuditLog) Verify(ctx context.Context, expect string) ([]AuditChain, error) {
	list, err := a.chains(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		c := &list[i]
		stray := c.Broken
		c.Broken = nil // how far it holds is told all the same
		for e, err := range a.entries(ctx, ` WHERE workspace_id = ? AND place > 0 ORDER BY place, n`, string(c.Workspace)) {
			if err != nil {
				return nil, err
			}
			if c.follow(&e, expect); c.Broken != nil {
				break
			}
		}
		if stray != nil {
			c.Broken = stray
		}
	}
	return list, nil
}

// follow looks at the next entry.
func (c *AuditChain) follow(e *hob.AuditEntry, expect string) {
	if what := c.fault(e); what != "" {
		c.Broken = &AuditBreak{Place: e.N, What: what}
		return
	}
	c.Place, c.Head = e.N, e.Hash
	if expect == e.Hash {
		c.Expected = e.N
	}
}

// fault says why an entry does not follow the one before it.
func (c *AuditChain) fault(e *hob.AuditEntry) string {
	switch next := c.Place + 1; {
	case e.N > next+1:
		return fmt.Sprintf("the entries %d to %d are missing", next, e.N-1)
	case e.N > next:
		return fmt.Sprintf("the entry %d is missing", next)
	case e.N < next:
		return "another entry has its place"
	case e.Hash != chainHash(e):
		return "it does not have the hash of its content: it was changed"
	case e.Prev != c.Head:
		return "it does not follow the entry before it: one of both was put here"
	}
	return ""
}

// NoteAudit writes an entry into the audit log of a database that no store is open on, or is in another process: what a
// command does to it as a whole. Nothing is noted where there is no audit log yet.
func NoteAudit(ctx context.Context, c Config, e hob.AuditEntry) (err error) {
	read, err := OpenAudit(ctx, c)
	switch {
	case hob.KindOf(err) == hob.NotFound:
		return nil
	case err != nil:
		return err
	}
	if err := read.Close(); err != nil {
		return err
	}
	l, err := c.link(ctx, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s := &DB{d: l.d, clock: hob.SystemClock, texts: newTexts()}
	t := &tx{q: l.q}
	if l.d.alone == "" {
		t.chain = &chain{}
	}
	if err := l.define(ctx, l.d.begin); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	s.fill(t, &e)
	if err := s.insertNotes(ctx, t, []hob.AuditEntry{e}); err != nil {
		l.rollback()
		return err
	}
	return hob.Wrap("write the audit log", l.define(ctx, "COMMIT"))
}
