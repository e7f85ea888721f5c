package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"hob"
)

// Bounds of an entry's texts. What is longer is cut: a line of the log tells of an act, it is no copy of it.
const (
	maxAuditText   = 1024 // bytes of any text
	maxAuditDetail = 4096 // bytes of the detail; of a longer one the size is kept alone
)

// auditColumns are the columns of an entry, but for the number of its row.
const auditColumns = auditBare + `, action, kind, digest, decision, detail, before, after, rule, request_id, address`

// auditBare are those that every entry gives.
const auditBare = `workspace_id, place, at, actor, object, run_id, call_id, prev, hash`

// auditTexts are the statements that insert entries. Of those that runs have by the dozen only what they tell is given: it is
// the number of values that costs.
type auditTexts struct{ full, intents, results *bulk }

func newAuditTexts() auditTexts {
	const call = `INSERT INTO audit (` + auditBare
	return auditTexts{
		full:    newBulk(`INSERT INTO audit (`+auditColumns+`)`, 19, ""),
		intents: newBulkWith(call+`, digest, detail, action, kind, decision)`, 11, ", '"+intentAction+"', 'tool_call', ''", ""),
		results: newBulkWith(call+`, decision, action, kind, digest, detail)`, 10, ", '"+resultAction+"', 'tool_call', '', ''", ""),
	}
}

// note adds entries about what the write does, which are stored at its end, in the same transaction: where they cannot
// be, nothing was done. An entry needs a workspace, an actor and an action; the rest is filled in.
func (t *tx) note(entries ...hob.AuditEntry) { t.notes = append(t.notes, entries...) }

// did notes that a principal did something to a configuration, which before and after tell, nil where there is none. Their
// digests take secrets as masked: they tell whether there is one, not which. More may be added to the entry that it gives,
// until the next is noted.
func (t *tx) did(by hob.Principal, action, kind, id string, before, after any) *hob.AuditEntry {
	t.note(hob.AuditEntry{
		Workspace: by.Workspace, Actor: by.Name(), Action: action, Kind: kind, Object: id,
		Before: t.configDigest(before), After: t.configDigest(after),
	})
	return &t.notes[len(t.notes)-1]
}

// configDigest is the SHA-256 of a configuration's JSON with sorted keys, in hex.
func (t *tx) configDigest(config any) string {
	if config == nil {
		return ""
	}
	text, err := json.Marshal(config)
	if err == nil {
		text, err = sortedJSON(text)
	}
	if err != nil {
		t.unnoted = errors.Join(t.unnoted, fmt.Errorf("digest a configuration: %w", err))
		return ""
	}
	return digest(text)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// noting makes a write store what it noted: at its end, or with what other writes of the same transaction noted, where
// there are several.
func (s *DB) noting(ctx context.Context, fn func(context.Context, *tx) error, noted *bool) func(context.Context, *tx) error {
	origin := hob.OriginOf(ctx)
	return func(ctx context.Context, t *tx) error {
		if origin != (hob.Origin{}) { // a write within another one comes from where that does
			t.origin = origin
		}
		begun := len(t.notes)
		err := fn(ctx, t)
		if err == nil {
			err = hob.Wrap("write the audit log", t.unnoted)
		}
		if err != nil {
			t.notes, t.unnoted = t.notes[:begun], nil
			return err
		}
		for i := begun; i < len(t.notes); i++ {
			s.fill(t, &t.notes[i])
		}
		if t.chain != nil || len(t.notes) == 0 { // the batcher stores them
			return nil
		}
		*noted = true
		notes := t.notes
		t.notes = nil
		return s.insertNotes(ctx, t, notes)
	}
}

// insertNotes stores entries. Where one process alone writes, they are linked to their chains at once; elsewhere, where a
// statement is a journey to a server, they are stored by one.
func (s *DB) insertNotes(ctx context.Context, t *tx, notes []hob.AuditEntry) error {
	var full, intents, results []any
	for i := range notes {
		e := &notes[i]
		into := &full
		if t.chain != nil {
			if err := t.chain.append(ctx, t, e); err != nil {
				return err
			}
			switch brief := e.Before+e.After+e.Rule+e.Request+e.Address == ""; {
			case brief && e.Action == intentAction && e.Decision == "":
				into = &intents
			case brief && e.Action == resultAction && e.Digest == "" && e.Detail == nil:
				into = &results
			}
		}
		*into = append(*into, string(e.Workspace), e.N, e.At.Micros(), e.Actor, e.Object, string(e.Run), string(e.Call), e.Prev, e.Hash)
		switch into {
		case &intents:
			intents = append(intents, e.Digest, string(e.Detail))
		case &results:
			results = append(results, e.Decision)
		default:
			full = append(full, e.Action, e.Kind, e.Digest, e.Decision, string(e.Detail), e.Before, e.After, e.Rule, e.Request, e.Address)
		}
	}
	err := s.texts.audit.full.insert(ctx, t, full)
	if err == nil {
		err = s.texts.audit.intents.insert(ctx, t, intents)
	}
	if err == nil {
		err = s.texts.audit.results.insert(ctx, t, results)
	}
	if err != nil && s.d.conflict(err) {
		err = fmt.Errorf("%w: %w", errStale, err)
	}
	return hob.Wrap("write the audit log", err)
}

// errStale says that another process has gone on with a chain. What is remembered of its end is dropped with the
// transaction, which has to be done over.
var errStale = errors.New("the audit log has another end than is remembered")

// fill completes an entry, and brings its texts into the form in which they are stored.
func (s *DB) fill(t *tx, e *hob.AuditEntry) {
	if e.At.IsZero() {
		e.At = hob.FromMicros(s.now())
	}
	e.N, e.Prev, e.Hash = 0, "", ""
	e.Request, e.Address = t.origin.Request, t.origin.Address
	for _, text := range []*string{
		&e.Actor, &e.Action, &e.Kind, &e.Object, &e.Digest, &e.Before, &e.After, &e.Decision, &e.Rule, &e.Request, &e.Address,
		(*string)(&e.Run), (*string)(&e.Call),
	} {
		if len(*text) > maxAuditText {
			*text = (*text)[:maxAuditText]
		}
		if !plain(*text) {
			*text = storable(*text)
		}
	}
	e.Detail = detail(e.Detail)
}

// plain says whether a text is stored as it is.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] == 0 || s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// detail is a detail in the form of json.Marshal, so that it reads the same wherever it is written anew.
func detail(d json.RawMessage) json.RawMessage {
	if len(d) == 0 {
		return nil
	}
	if len(d) <= maxAuditDetail && !bytes.ContainsFunc(d, changedByJSON) && json.Valid(d) {
		return d
	}
	text, err := json.Marshal(d)
	if err != nil || len(text) > maxAuditDetail {
		return json.RawMessage(`{"bytes":` + strconv.Itoa(len(d)) + `}`)
	}
	return text
}

// NoteAudit writes an entry about something that changes nothing in the store. It is the principal's.
func (s *DB) NoteAudit(ctx context.Context, by hob.Principal, a hob.AuditEntry) error {
	a.Workspace, a.Actor = by.Workspace, by.Name()
	return s.write(ctx, "write the audit log", func(_ context.Context, t *tx) error {
		t.note(a)
		return nil
	})
}

// changedByJSON says whether json.Marshal may write a character in another way.
func changedByJSON(r rune) bool { return r <= ' ' || r == '<' || r == '>' || r == '&' || r >= 0x7f }

// sortedJSON is the same value with the keys of objects sorted and no spaces; numbers keep their digits.
func sortedJSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
