package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"hob"
)

// chainVersion begins what every entry's hash is made of, so that another form can be told from this one.
const chainVersion = "hob-audit-1"

// chainHash is the hash of an entry: the SHA-256 of everything that its row holds, its place and the hash before it among
// them, each as its length in bytes, a colon and its text. Only the number that the database gives rows is left out, which
// a row does not keep when it moves to another database.
func chainHash(e *hob.AuditEntry) string {
	var room [1024]byte // enough for most
	b := room[:0]
	add := func(s string) {
		b = strconv.AppendInt(b, int64(len(s)), 10)
		b = append(b, ':')
		b = append(b, s...)
	}
	add(chainVersion)
	add(e.Prev)
	add(string(e.Workspace))
	add(strconv.FormatInt(e.N, 10))
	add(strconv.FormatInt(e.At.Micros(), 10))
	for _, s := range []string{
		e.Actor, e.Action, e.Kind, e.Object, string(e.Run), string(e.Call), e.Digest, e.Before, e.After, e.Decision, e.Rule,
		string(e.Detail), e.Request, e.Address,
	} {
		add(s)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// head is the last entry of a workspace's chain, zero where there is none.
type head struct {
	place int64
	hash  string
}

// maxHeads is how many chains' heads are remembered; at the bound it begins anew.
const maxHeads = 4096

// chain remembers the heads of the chains where one process alone writes the database.
type chain struct {
	heads map[hob.WorkspaceID]head
	moved bool // since the transaction began
}

// append links an entry to its workspace's chain.
func (c *chain) append(ctx context.Context, t *tx, e *hob.AuditEntry) error {
	h, ok := c.heads[e.Workspace]
	if !ok {
		var err error
		if h, err = headOf(ctx, t, e.Workspace); err != nil {
			return err
		}
		if c.heads == nil || len(c.heads) >= maxHeads {
			c.heads = map[hob.WorkspaceID]head{}
		}
	}
	c.heads[e.Workspace], c.moved = h.link(e), true
	return nil
}

// link gives an entry its place behind the head, and the new head.
func (h head) link(e *hob.AuditEntry) head {
	e.N, e.Prev = h.place+1, h.hash
	e.Hash = chainHash(e)
	return head{e.N, e.Hash}
}

// begin is called when a transaction begins, undo when one was undone.
func (c *chain) begin() { c.moved = false }

func (c *chain) undo() {
	if c.moved {
		clear(c.heads)
	}
}

func headOf(ctx context.Context, t *tx, ws hob.WorkspaceID) (head, error) {
	h, err := one(ctx, t, func(r row) (h head, err error) { err = r.Scan(&h.place, &h.hash); return h, err },
		`SELECT place, hash FROM audit WHERE workspace_id = ? AND place > 0 ORDER BY place DESC LIMIT 1`, string(ws))
	if err != nil && !none(err) {
		return head{}, fmt.Errorf("find the end of the audit log: %w", err)
	}
	return h, nil
}

// Settings of linking.
const (
	linkGroup  = 256                    // entries that are linked in one transaction
	linkGather = 100 * time.Millisecond // entries within it are linked together
	linkPause  = time.Second            // after which linking that failed is tried again
	auditLock  = "audit"                // the text that those who link are alone with
)

// looseEntry is an entry that is not linked yet, with the number of its row.
type looseEntry struct {
	n int64
	hob.AuditEntry
}

// newLinks is the statement that writes places and hashes. Its arguments are texts, since a list of values says no types.
func newLinks() *bulk {
	return newBulk(`UPDATE audit SET place = CAST(x.column2 AS BIGINT), prev = x.column3, hash = x.column4 FROM (`, 4,
		`) AS x WHERE audit.n = CAST(x.column1 AS BIGINT)`)
}

// linkGroupNow links the oldest entries that are not linked, one process at a time, and says how many.
func (s *DB) linkGroupNow(ctx context.Context) (n int, err error) {
	err = s.write(ctx, "link the audit log", func(ctx context.Context, t *tx) error {
		if _, err := one(ctx, t, scanInt, s.d.alone, auditLock); err != nil {
			return fmt.Errorf("wait for who links: %w", err)
		}
		n, err = linkOldest(ctx, t, s.texts.links, &chain{})
		return err
	})
	return n, err
}

// linkOldest links a group of entries that are not linked, and says how many.
func linkOldest(ctx context.Context, t *tx, links *bulk, c *chain) (int, error) {
	list, err := many(ctx, t, func(r row) (e looseEntry, err error) {
		e.AuditEntry, err = scanAudit(behindFirst{r, &e.n})
		return e, err
	}, `SELECT n, `+auditColumns+` FROM audit WHERE place = 0 AND n > 0 ORDER BY n LIMIT ?`, int64(linkGroup))
	if err != nil {
		return 0, err
	}
	args := make([]any, 0, 4*len(list))
	for i := range list {
		e := &list[i]
		if err := c.append(ctx, t, &e.AuditEntry); err != nil {
			return 0, err
		}
		args = append(args, strconv.FormatInt(e.n, 10), strconv.FormatInt(e.N, 10), e.Prev, e.Hash)
	}
	return len(list), links.insert(ctx, t, args)
}

// linkLoaded links what a load brought from a database where entries are linked later, in the transaction of the load: where
// they are linked as they are written, an entry without a link that is found afterwards was put there by somebody else.
func (l *link) linkLoaded(ctx context.Context) error {
	if l.d.alone != "" {
		return nil
	}
	links, c := newLinks(), &chain{}
	for {
		if n, err := linkOldest(ctx, &l.tx, links, c); err != nil || n == 0 {
			return hob.Wrap("link the audit log", err)
		}
	}
}

// behindFirst scans a row whose first column goes elsewhere.
type behindFirst struct {
	row
	first any
}

func (r behindFirst) Scan(dest ...any) error { return r.row.Scan(append([]any{r.first}, dest...)...) }

// linkLoose links all entries that are not linked yet, where that is done after they are written.
func (s *DB) linkLoose(ctx context.Context) error {
	if s.d.alone == "" {
		return nil
	}
	for {
		ctx, t := s.lookUp(ctx)
		_, err := one(ctx, t, scanInt, `SELECT n FROM audit WHERE place = 0 AND n > 0 LIMIT 1`)
		if none(err) {
			return nil
		}
		if err == nil {
			_, err = s.linkGroupNow(ctx)
		}
		if err != nil {
			return hob.Wrap("link the audit log", err)
		}
	}
}

// linker links entries beside the commits that wrote them, so that those need not wait for one another. nil where entries
// are linked as they are written.
type linker struct {
	link func(context.Context) error
	stop context.Context //nolint:containedctx // ends the waiting, and with it the linker
	end  context.CancelFunc

	mu    sync.Mutex
	due   bool
	busy  bool
	group sync.WaitGroup
}

func newLinker(link func(context.Context) error) *linker {
	l := &linker{link: link}
	l.stop, l.end = context.WithCancel(context.Background())
	return l
}

// wake has what was written linked soon.
func (l *linker) wake() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = true
	if !l.busy && l.stop.Err() == nil {
		l.busy = true
		l.group.Go(l.work)
	}
}

// work links until nothing is due. Once it is to stop it tries a last time, without waiting.
func (l *linker) work() {
	wait := linkGather
	for {
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-l.stop.Done():
			pause.Stop()
		}
		last := l.stop.Err() != nil
		l.take()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.stop), postgresWrite)
		err := l.link(ctx)
		cancel()
		if wait = linkGather; err != nil {
			wait = linkPause
		}
		if last || l.idle(err != nil) {
			return
		}
	}
}

func (l *linker) take() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
}

// idle says whether the work is done, and then lets the next wake begin anew.
func (l *linker) idle(failed bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = l.due || failed
	return !l.busy
}

// close links what is left and ends.
func (l *linker) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.group.Wait()
}
