package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"hob"
)

// chainVersion begins what every entry's hash is made of, so that another form can be told from this one.
const chainVersion = "hob-audit-1"

// chainHash is the hash of an entry: the SHA-256 of everything that its row holds, its place and the hash before it among
// them, each as its length in bytes, a colon and its text. Only the number that the database gives rows is left out, which
// a row does not keep when it moves to another database.
func chainHash(e *hob.AuditEntry) string {
	b := make([]byte, 0, 640)
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
