package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"hob"
)

// Bounds of the audit log's list.
const (
	defaultAudit = 100
	maxAudit     = 1000
)

// auditList is a part of the audit log.
type auditList struct {
	Entries []hob.AuditEntry `json:"entries"`
	Limit   int              `json:"limit"`
}

func auditRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/api/audit", handle: listAudit, scope: hob.ScopeAdmin, tag: tagAudit,
		summary: "List the audit log: who did what to what, in the order of its chain", out: auditList{}, status: 200, query: auditQuery(),
	}}
}

func auditQuery() []param {
	return append(limitQuery("100 where absent, at most 1000"),
		param{"after", "integer", "the place in the chain (n) behind which to begin"},
		param{"before", "integer", "the place before which to end"},
		param{"order", "string", "asc (default): the oldest first; desc: the newest"},
		param{"action", "string", "of one action, or of all that begin with what is before a final *, as in key.*"},
		param{"actor", "string", "of whom, as in user:ID or key:ID"},
		param{"kind", "string", "of which kind of object"},
		param{"object", "string", "of which object, by its object_id"},
		param{"run_id", "string", "of one run"},
		param{"since", "string", "a day or a time (RFC 3339): entries from then on"},
		param{"until", "string", "a day, included, or a time: entries before it"})
}

// listAudit answers a part of the workspace's audit log.
func listAudit(c *call) error {
	f, err := c.auditFilter()
	if err != nil {
		return err
	}
	list, err := c.s.Store.Audit(c.Context(), c.by, f)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, auditList{filled(list), f.Limit})
}

func (c *call) auditFilter() (f hob.AuditFilter, err error) {
	if err := c.knownQuery(auditQuery()); err != nil {
		return f, err
	}
	bad := func(field, must string) error {
		return hob.Errorf(hob.Invalid, "%s %s", field, must).With("field", field)
	}
	f.Limit = defaultAudit
	limit := int64(defaultAudit)
	for _, n := range []struct {
		name        string
		into        *int64
		least, most int64
	}{{"limit", &limit, 1, maxAudit}, {"after", &f.After, 0, 1 << 62}, {"before", &f.Before, 1, 1 << 62}} {
		v, err := c.count(n.name)
		switch {
		case err != nil:
			return f, err
		case v == nil:
		case *v < n.least || *v > n.most:
			if n.name == "limit" {
				return f, bad(n.name, "must be 1 to 1000")
			}
			return f, bad(n.name, "must be a place in the chain")
		default:
			*n.into = *v
		}
	}
	f.Limit = int(limit)
	switch c.queryValue("order") {
	case "", "asc":
	case "desc":
		f.Newest = true
	default:
		return f, bad("order", "must be asc or desc")
	}
	for _, t := range []struct {
		name string
		into *string
	}{{"action", &f.Action}, {"actor", &f.Actor}, {"kind", &f.Kind}, {"object", &f.Object}, {"run_id", (*string)(&f.Run)}} {
		if *t.into = c.queryValue(t.name); *t.into != "" && !plainText(*t.into, maxAuditValue) {
			return f, bad(t.name, "must be text of at most 1024 bytes")
		}
	}
	if f.Since, err = c.moment("since", false); err != nil {
		return f, err
	}
	if f.Until, err = c.until(); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until.Time) {
		return f, bad("until", "must be later than since")
	}
	return f, nil
}

// maxAuditValue is above the length of what any column of the log holds.
const maxAuditValue = 1024

// Context is the request's. Of one that may change something it tells where it came from, for the audit log.
func (c *call) Context() context.Context {
	if c.ctx != nil {
		return c.ctx
	}
	return c.Request.Context()
}

// changes says whether requests of a method may change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// Bounds of what is noted of refused requests.
const (
	refusedPause = time.Second // after an entry, before the next of the same caller and route; those between are counted
	maxRefused   = 10_000      // callers and routes that are remembered
	// maxRefusedPath is how much of a refused request's path is noted, in bytes.
	maxRefusedPath = 256
)

// refused decides which refused requests are noted: a caller that is refused all the time must not fill the log.
type refused struct {
	mu   sync.Mutex
	seen map[refusedBy]refusedCount
}

type refusedBy struct{ caller, route string }

type refusedCount struct {
	noted time.Time
	more  int // since then
}

// take says whether a refusal is to be noted, and how many before it were not.
func (r *refused) take(by refusedBy, now time.Time) (more int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, there := r.seen[by]
	if there && now.Sub(last.noted) < refusedPause {
		last.more++
		r.seen[by] = last
		return 0, false
	}
	if r.seen == nil || !there && len(r.seen) >= maxRefused {
		r.seen = map[refusedBy]refusedCount{} // a flood of new ones: begin anew
	}
	r.seen[by] = refusedCount{noted: now}
	return last.more, true
}

// noteRefusal writes a refused request into the audit log, where it might have changed something and its caller is known. The
// request stays refused whether that works or not.
func (s *server) noteRefusal(c *call, refusal error) {
	var e *hob.Error
	if !changes(c.Method) || c.by.Kind == "" || !errors.As(refusal, &e) || e.Kind != hob.Forbidden && e.Kind != hob.Unauthorized {
		return
	}
	more, ok := s.refused.take(refusedBy{c.by.Name(), c.route}, s.Clock())
	if !ok {
		return
	}
	code := e.Code
	if code == "" {
		code = string(e.Kind)
	}
	detail, err := json.Marshal(struct {
		Path string `json:"path"`
		More int    `json:"more,omitempty"`
	}{strings.ToValidUTF8(c.URL.Path[:min(len(c.URL.Path), maxRefusedPath)], "\uFFFD"), more})
	if err == nil {
		err = s.Store.NoteAudit(context.WithoutCancel(c.Context()), c.by, hob.AuditEntry{
			Action: hob.ActRefused, Kind: "request", Object: c.route, Decision: hob.AuditRefused, Rule: code, Detail: detail,
		})
	}
	if err != nil {
		s.Log.LogAttrs(context.Background(), slog.LevelError, "a refused request could not be noted in the audit log",
			slog.String("request_id", c.id), slog.String("error", err.Error()))
	}
}
