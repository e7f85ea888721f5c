package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

// Bounds of what is kept of files.
const (
	// keepWrites is how long a write is found again under its key: longer than any run is taken up again.
	keepWrites = 7 * 24 * time.Hour
	// fileChunk is how many objects one statement looks up or deletes.
	fileChunk = 500
	// noMaxSize is max_size of a bucket that bounds no file; 0 is a bound.
	noMaxSize = -1
)

const objectColumns = `id, workspace_id, bucket_id, name, owner, blob, size, type, digest, created_at, updated_at, accessed_at`

func scanFile(r row) (f hob.File, err error) {
	var created, updated, accessed int64
	err = r.Scan(&f.ID, &f.Workspace, &f.Bucket, &f.Name, &f.Owner, &f.Blob, &f.Size, &f.Type, &f.Digest, &created, &updated, &accessed)
	f.CreatedAt, f.UpdatedAt, f.AccessedAt = hob.FromMicros(created), hob.FromMicros(updated), hob.FromMicros(accessed)
	return f, err
}

func absentFile() error {
	return hob.Errorf(hob.NotFound, "Object not found").WithCode("object_not_found")
}

func fileTaken(bucket, name string) error {
	return hob.Errorf(hob.Conflict, "The resource already exists: %s/%s; to replace it send x-upsert: true", bucket, name).
		WithCode("object_exists")
}

// object reads an object of a bucket that was found to be the principal's to see.
func (t *tx) object(ctx context.Context, by hob.Principal, b hob.Bucket, name string) (hob.File, error) {
	cond, args := ownFiles(by, b)
	f, err := one(ctx, t, scanFile, `SELECT `+objectColumns+` FROM objects WHERE `+cond+` AND name = ?`, append(args, name)...)
	if none(err) {
		return f, absentFile()
	}
	return f, hob.Wrap("read an object", err)
}

// File reads what is known of one object.
func (s *DB) File(ctx context.Context, by hob.Principal, bucket, name string) (hob.File, error) {
	ctx, t := s.lookUp(ctx)
	b, err := t.bucket(ctx, by, "", bucket)
	if err != nil {
		return hob.File{}, err
	}
	return t.object(ctx, by, b, name)
}

// fileSorts are the columns a list of objects can be sorted by. Only the name has an index; it is the default.
var fileSorts = map[string]string{
	"": "name", "name": "name", "created_at": "created_at", "updated_at": "updated_at", "last_accessed_at": "accessed_at",
}

// Files lists a bucket's objects. The search finds part of a name; case is ignored as in the lists of sessions.
func (s *DB) Files(ctx context.Context, by hob.Principal, q hob.FileQuery) (hob.Page[hob.File], error) {
	var page hob.Page[hob.File]
	column, ok := fileSorts[q.SortBy]
	if !ok {
		return page, hob.Errorf(hob.Invalid, "objects are sorted by created_at, last_accessed_at, name or updated_at, not by %q", q.SortBy).
			With("field", "sortBy.column")
	}
	t := s.read()
	b, err := t.bucket(ctx, by, "", q.Bucket)
	if err != nil {
		return page, err
	}
	var f filter
	cond, args := ownFiles(by, b)
	f.where(cond, args...)
	if q.Prefix != "" {
		f.where("name >= ?", q.Prefix)
		if end := behind(q.Prefix); end != "" {
			f.where("name < ?", end)
		}
	}
	if q.Search != "" {
		f.where(`name {like} ? ESCAPE '\'`, like(q.Search))
	}
	if page.Total, err = one(ctx, t, scanInt, `SELECT count(*) FROM objects`+f.String(), f.args...); err != nil {
		return page, hob.Wrap("count objects", err)
	}
	dir := " ASC"
	if q.Descending {
		dir = " DESC"
	}
	order := "name" + dir
	if column != "name" {
		order = column + dir + ", name ASC"
	}
	limit, offset := window(q.Limit, q.Offset)
	page.Items, err = many(ctx, t, scanFile, `SELECT `+objectColumns+` FROM objects`+f.String()+` ORDER BY `+order+` LIMIT ? OFFSET ?`,
		append(f.args, limit, offset)...)
	return page, hob.Wrap("list objects", err)
}

// behind is the first text behind all that begin with the prefix, "" where there is none. Both databases compare bytes,
// and UTF-8 keeps the order of runes.
func behind(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == 0xD7FF: // the next ones are no characters
			return prefix + "\uE000"
		case last < utf8.MaxRune:
			return prefix + string(last+1)
		}
	}
	return ""
}

// writtenFile is an object as it is kept under the key of its write.
type writtenFile struct {
	hob.File
	Blob   string `json:"blob"`
	Size   int64  `json:"size"`
	Type   string `json:"type"`
	Digest string `json:"digest"`
}

// PutFile keeps an object, under a key once: whoever comes again with it gets the object as it was then. Its workspace is
// the principal's; id and times are given here, and those of an object that is overwritten stay but for the change.
func (s *DB) PutFile(ctx context.Context, by hob.Principal, p hob.FilePut) (hob.KeptFile, error) {
	p.File.Workspace = by.Workspace
	var kept hob.KeptFile
	err := s.write(ctx, "keep an object", func(ctx context.Context, t *tx) (err error) {
		kept = hob.KeptFile{}
		b, err := t.bucket(ctx, by, hob.ScopeConfigure, p.File.Bucket)
		if err != nil {
			return err
		}
		if p.Key != "" {
			if kept.File, kept.Replayed, err = s.written(ctx, t, by.Workspace, p.Key); err != nil {
				return err
			}
		}
		if kept.Replayed {
			kept.Freed, err = unnamed(ctx, t, p.File.Blob)
			return err
		}
		if err = stillThere(ctx, t, by.Workspace, p.Run); err != nil {
			return err
		}
		if err = b.Check(p.File.Size, p.File.Type); err != nil {
			return err
		}
		if kept, err = s.putObject(ctx, t, by, b, p); err != nil {
			return err
		}
		e := t.filed(by, "file.put", kept.File)
		e.Run = p.Run
		if p.Key == "" {
			return nil
		}
		return s.keepWritten(ctx, t, p.Key, kept.File)
	})
	if err != nil {
		return hob.KeptFile{}, err
	}
	return kept, nil
}

// filed notes what was done to an object.
func (t *tx) filed(by hob.Principal, action string, f hob.File) *hob.AuditEntry {
	e := t.did(by, action, "file", f.Bucket+"/"+f.Name, nil, nil)
	e.Digest = f.Digest
	return e
}

// stillThere keeps a run from being deleted until the transaction ends: what is written for it is gone with it then, or
// not written at all.
func stillThere(ctx context.Context, t *tx, ws hob.WorkspaceID, id hob.RunID) error {
	if id == "" {
		return nil
	}
	_, err := one(ctx, t, scanInt, `SELECT n FROM runs WHERE id = ? AND workspace_id = ? {keep}`, string(id), string(ws))
	if none(err) {
		return absentRun()
	}
	return hob.Wrap("look for the run of an object", err)
}

// written looks for what was written under a key, alone with it until the transaction ends.
func (s *DB) written(ctx context.Context, t *tx, ws hob.WorkspaceID, key string) (hob.File, bool, error) {
	if err := s.aloneWith(ctx, t, hob.Idempotency{Scope: "object_writes/" + string(ws), Key: key}); err != nil {
		return hob.File{}, false, err
	}
	text, err := one(ctx, t, scanText, `SELECT object FROM object_writes WHERE workspace_id = ? AND key = ? AND expires_at > ?`,
		string(ws), key, s.now())
	if none(err) {
		return hob.File{}, false, nil
	}
	if err != nil {
		return hob.File{}, false, fmt.Errorf("look for an earlier write: %w", err)
	}
	var w writtenFile
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return hob.File{}, false, fmt.Errorf("read an earlier write: %w", err)
	}
	f := w.File
	f.Workspace, f.Blob, f.Size, f.Type, f.Digest = ws, w.Blob, w.Size, w.Type, w.Digest
	return f, true, nil
}

func (s *DB) keepWritten(ctx context.Context, t *tx, key string, f hob.File) error {
	text, err := json.Marshal(writtenFile{File: f, Blob: f.Blob, Size: f.Size, Type: f.Type, Digest: f.Digest})
	if err != nil {
		return fmt.Errorf("encode a write: %w", err)
	}
	_, err = t.exec(ctx, `INSERT INTO object_writes (workspace_id, key, object, expires_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (workspace_id, key) DO UPDATE SET object = excluded.object, expires_at = excluded.expires_at`,
		string(f.Workspace), key, string(text), s.now()+keepWrites.Microseconds())
	return hob.Wrap("keep the key of a write", err)
}

// putObject inserts an object or puts it into the place of the one of its name. Those who write one name do so one after
// the other.
func (s *DB) putObject(ctx context.Context, t *tx, by hob.Principal, b hob.Bucket, p hob.FilePut) (hob.KeptFile, error) {
	f, now := p.File, s.now()
	if b.Owned && !by.SeesAll() {
		f.Owner = by.Owner()
	}
	if err := s.aloneWith(ctx, t, hob.Idempotency{Scope: "objects/" + string(f.Workspace) + "/" + f.Bucket, Key: f.Name}); err != nil {
		return hob.KeptFile{}, err
	}
	old, err := t.object(ctx, hob.System(f.Workspace), b, f.Name) // whoever's it is, the name is taken
	there := err == nil
	switch {
	case err != nil && hob.KindOf(err) != hob.NotFound:
		return hob.KeptFile{}, err
	case there && b.Owned && !by.SeesAll() && old.Owner != by.Owner():
		return hob.KeptFile{}, hob.Errorf(hob.Conflict, "The resource already exists: %s/%s; choose another name", f.Bucket, f.Name).
			WithCode("object_exists")
	case there && !p.Overwrite:
		return hob.KeptFile{}, fileTaken(f.Bucket, f.Name)
	case there:
		f.ID, f.CreatedAt = old.ID, old.CreatedAt
		now = max(now, old.UpdatedAt.Micros())
	default:
		f.ID, f.CreatedAt = hob.NewUUID(), hob.FromMicros(now)
	}
	f.UpdatedAt, f.AccessedAt = hob.FromMicros(now), hob.FromMicros(now)
	if !there {
		_, err = t.exec(ctx, `INSERT INTO objects (`+objectColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			f.ID, string(f.Workspace), f.Bucket, f.Name, f.Owner, f.Blob, f.Size, f.Type, f.Digest,
			f.CreatedAt.Micros(), now, now)
		if err != nil && s.d.conflict(err) { // another one was moved there at the same time
			err = errAgain
		}
		return hob.KeptFile{File: f}, err
	}
	n, err := t.exec(ctx, `UPDATE objects SET owner = ?, blob = ?, size = ?, type = ?, digest = ?, updated_at = ?, accessed_at = ?
		WHERE id = ? AND blob = ?`, f.Owner, f.Blob, f.Size, f.Type, f.Digest, now, now, f.ID, old.Blob)
	if err == nil && n == 0 {
		err = errAgain // another one changed it at the same time
	}
	if err != nil {
		return hob.KeptFile{}, err
	}
	freed, err := unnamed(ctx, t, old.Blob)
	return hob.KeptFile{File: f, Freed: freed}, err
}

// unnamed gives those of some blobs that no object names. It runs in the transaction that took the names away. Of two
// that take the last two names of a blob at the same time neither may see it free: such a blob is found by its age.
func unnamed(ctx context.Context, t *tx, blobs ...string) ([]string, error) {
	named, err := namedBlobs(ctx, t, blobs)
	if err != nil {
		return nil, err
	}
	var free []string
	for _, b := range blobs {
		if !named[b] {
			named[b] = true // once
			free = append(free, b)
		}
	}
	return free, nil
}

func namedBlobs(ctx context.Context, t *tx, blobs []string) (map[string]bool, error) {
	named := map[string]bool{}
	for len(blobs) > 0 {
		n := min(len(blobs), fileChunk)
		in, args := inList(blobs[:n])
		found, err := many(ctx, t, scanText, `SELECT blob FROM objects WHERE blob IN `+in, args...)
		if err != nil {
			return nil, fmt.Errorf("look for what names blobs: %w", err)
		}
		for _, b := range found {
			named[b] = true
		}
		blobs = blobs[n:]
	}
	return named, nil
}

// Blobs says which of the given blobs an object of any workspace names.
func (s *DB) Blobs(ctx context.Context, blobs []string) (map[string]bool, error) {
	return namedBlobs(ctx, s.read(), blobs)
}

// SweepWrites forgets the keys of writes that are past their time.
func (s *DB) SweepWrites(ctx context.Context) (total int64, err error) {
	for n := int64(sweepChunk); n == sweepChunk; {
		err = s.write(ctx, "sweep the keys of writes", func(ctx context.Context, t *tx) (err error) {
			n, err = t.exec(ctx, `DELETE FROM object_writes WHERE (workspace_id, key) IN
				(SELECT workspace_id, key FROM object_writes WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, s.now(), int64(sweepChunk))
			return err
		})
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// StorageID is a random text that is made when it is first asked for. It is no part of a dump, so what is loaded from one
// is another store.
func (s *DB) StorageID(ctx context.Context) (string, error) {
	read := func(ctx context.Context, t *tx) (string, error) {
		return one(ctx, t, scanText, `SELECT value FROM meta WHERE name = '`+metaStorage+`'`)
	}
	id, err := read(ctx, s.read())
	if none(err) {
		err = s.write(ctx, "name the storage", func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, `INSERT INTO meta (name, value) VALUES ('`+metaStorage+`', ?) ON CONFLICT (name) DO NOTHING`, hob.RandomHex(16))
			if err == nil {
				id, err = read(ctx, t)
			}
			return err
		})
	}
	return id, hob.Wrap("read the name of the storage", err)
}

// typesText is how a bucket's content types are kept: ” where any is taken.
func typesText(types []string) (string, error) {
	if types == nil {
		return "", nil
	}
	text, err := json.Marshal(types)
	return string(text), err
}

func readTypes(text string) (types []string, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &types)
	return types, err
}
