package store

import (
	"context"
	"fmt"

	"hob"
)

const bucketColumns = `id, workspace_id, name, owner, public, owned, max_size, types, created_at, updated_at`

func scanBucket(r row) (b hob.Bucket, err error) {
	var public, owned, maxSize, created, updated int64
	var types string
	if err = r.Scan(&b.ID, &b.Workspace, &b.Name, &b.Owner, &public, &owned, &maxSize, &types, &created, &updated); err != nil {
		return b, err
	}
	b.Public, b.Owned = public != 0, owned != 0
	if maxSize != noMaxSize {
		b.MaxSize = &maxSize
	}
	b.CreatedAt, b.UpdatedAt = hob.FromMicros(created), hob.FromMicros(updated)
	if b.Types, err = readTypes(types); err != nil {
		return b, fmt.Errorf("read the content types of bucket %s: %w", b.ID, err)
	}
	return b, nil
}

func bucketObject(ws hob.WorkspaceID, owner string) hob.Object {
	return hob.Object{Kind: hob.BucketObject, Workspace: ws, Owner: owner}
}

// bucket reads a bucket that the principal may use with the scope; "" asks for sight alone.
func (t *tx) bucket(ctx context.Context, by hob.Principal, scope hob.Scope, id string) (hob.Bucket, error) {
	b, err := one(ctx, t, scanBucket, `SELECT `+bucketColumns+` FROM buckets WHERE workspace_id = ? AND id = ?`, string(by.Workspace), id)
	if err != nil {
		return hob.Bucket{}, found(err, hob.BucketObject, "read a bucket")
	}
	if scope == "" {
		err = see(by, bucketObject(b.Workspace, b.Owner))
	} else {
		err = hob.Can(by, scope, bucketObject(b.Workspace, b.Owner))
	}
	if err != nil {
		return hob.Bucket{}, err
	}
	return b, nil
}

// CreateBucket keeps a new bucket of the principal's workspace and owner; its times are given here.
func (s *DB) CreateBucket(ctx context.Context, by hob.Principal, b hob.Bucket) (hob.Bucket, error) {
	b.Workspace, b.Owner = by.Workspace, by.Owner()
	if b.Name == "" {
		b.Name = b.ID
	}
	b.CreatedAt = hob.FromMicros(s.now())
	b.UpdatedAt = b.CreatedAt
	if err := hob.Can(by, hob.ScopeConfigure, bucketObject(b.Workspace, b.Owner)); err != nil {
		return hob.Bucket{}, err
	}
	if err := hob.CheckBucketID(b.ID); err != nil {
		return hob.Bucket{}, err
	}
	if b.Owned {
		if err := wholeBucket(by, b); err != nil {
			return hob.Bucket{}, err
		}
		if b.Public {
			return hob.Bucket{}, neverPublic(b)
		}
	}
	types, err := typesText(b.Types)
	if err != nil {
		return hob.Bucket{}, fmt.Errorf("encode content types: %w", err)
	}
	err = s.write(ctx, "create a bucket", func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO buckets (`+bucketColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			b.ID, string(b.Workspace), b.Name, b.Owner, flag(b.Public), flag(b.Owned), maxSize(b), types, b.CreatedAt.Micros(), b.UpdatedAt.Micros())
		if err != nil && s.d.conflict(err) {
			return hob.Errorf(hob.Conflict, "The resource already exists: bucket %s", b.ID).WithCode("bucket_exists")
		}
		t.did(by, "bucket.create", "bucket", b.ID, nil, bucketConfig(b))
		return err
	})
	if err != nil {
		return hob.Bucket{}, err
	}
	return b, nil
}

func maxSize(b hob.Bucket) int64 {
	if b.MaxSize == nil {
		return noMaxSize
	}
	return *b.MaxSize
}

// Bucket reads one bucket.
func (s *DB) Bucket(ctx context.Context, by hob.Principal, id string) (hob.Bucket, error) {
	ctx, t := s.lookUp(ctx)
	return t.bucket(ctx, by, "", id)
}

// Buckets lists the workspace's buckets by id.
func (s *DB) Buckets(ctx context.Context, by hob.Principal) ([]hob.Bucket, error) {
	if err := see(by, bucketObject(by.Workspace, "")); err != nil {
		if hob.KindOf(err) == hob.NotFound {
			return nil, nil // there may be buckets, and none is the principal's to see
		}
		return nil, err
	}
	list, err := many(ctx, s.read(), scanBucket, `SELECT `+bucketColumns+` FROM buckets WHERE workspace_id = ? ORDER BY id`, string(by.Workspace))
	return list, hob.Wrap("list buckets", err)
}

// wholeBucket is about what concerns all objects of an owned bucket: it needs the sight of all of them.
func wholeBucket(by hob.Principal, b hob.Bucket) error {
	if !b.Owned || by.SeesAll() {
		return nil
	}
	return hob.Errorf(hob.Forbidden, "the bucket %s keeps files of many owners; to change it as a whole needs the scope %q", b.ID, hob.ScopeAdmin).
		WithCode("scope_missing")
}

func neverPublic(b hob.Bucket) error {
	return hob.Errorf(hob.Invalid, "the bucket %s keeps files that are their owners' alone and cannot be public; link single files with POST /storage/v1/object/sign", b.ID).
		With("field", "public")
}

// ownFiles is the condition for objects of a bucket that the principal may see.
func ownFiles(by hob.Principal, b hob.Bucket) (cond string, args []any) {
	cond, args = "workspace_id = ? AND bucket_id = ?", []any{string(b.Workspace), b.ID}
	if b.Owned && !by.SeesAll() {
		return cond + " AND owner = ? AND owner <> ''", append(args, by.Owner())
	}
	return cond, args
}

// OwnBucket makes a bucket an owned one.
func (s *DB) OwnBucket(ctx context.Context, by hob.Principal, id string) error {
	return s.write(ctx, "make a bucket an owned one", func(ctx context.Context, t *tx) error {
		b, err := t.bucket(ctx, by, hob.ScopeAdmin, id)
		if err != nil || b.Owned {
			return err
		}
		after := b
		after.Owned, after.Public = true, false
		t.did(by, "bucket.own", "bucket", b.ID, bucketConfig(b), bucketConfig(after))
		_, err = t.exec(ctx, `UPDATE buckets SET owned = 1, public = 0, updated_at = ? WHERE workspace_id = ? AND id = ?`,
			max(s.now(), b.UpdatedAt.Micros()), string(b.Workspace), b.ID)
		return err
	})
}

// UpdateBucket changes what the patch sets. Objects that are there already stay, whatever the bucket takes from now on.
func (s *DB) UpdateBucket(ctx context.Context, by hob.Principal, id string, p hob.BucketPatch) (hob.Bucket, error) {
	var b hob.Bucket
	err := s.write(ctx, "update a bucket", func(ctx context.Context, t *tx) (err error) {
		_, err = one(ctx, t, scanText, `SELECT id FROM buckets WHERE workspace_id = ? AND id = ?`+held(true), string(by.Workspace), id)
		if err != nil && !none(err) {
			return fmt.Errorf("hold a bucket: %w", err)
		}
		if b, err = t.bucket(ctx, by, hob.ScopeConfigure, id); err != nil {
			return err
		}
		if err := wholeBucket(by, b); err != nil {
			return err
		}
		before := b
		if p.Public != nil {
			b.Public = *p.Public
		}
		if b.Owned && b.Public {
			return neverPublic(b)
		}
		if p.MaxSize != nil {
			b.MaxSize = *p.MaxSize
		}
		if p.Types != nil {
			b.Types = *p.Types
		}
		types, err := typesText(b.Types)
		if err != nil {
			return fmt.Errorf("encode content types: %w", err)
		}
		b.UpdatedAt = hob.FromMicros(max(s.now(), b.UpdatedAt.Micros()))
		t.did(by, "bucket.update", "bucket", b.ID, bucketConfig(before), bucketConfig(b))
		_, err = t.exec(ctx, `UPDATE buckets SET public = ?, max_size = ?, types = ?, updated_at = ? WHERE workspace_id = ? AND id = ?`,
			flag(b.Public), maxSize(b), types, b.UpdatedAt.Micros(), string(b.Workspace), b.ID)
		return err
	})
	if err != nil {
		return hob.Bucket{}, err
	}
	return b, nil
}

// DeleteBucket deletes an empty bucket. One into which something is being put at that moment is not empty: the lock waits
// for nobody, and the transaction is done over.
func (s *DB) DeleteBucket(ctx context.Context, by hob.Principal, id string) error {
	return s.write(ctx, "delete a bucket", func(ctx context.Context, t *tx) error {
		b, err := t.bucket(ctx, by, hob.ScopeConfigure, id)
		if err != nil {
			return err
		}
		if err := wholeBucket(by, b); err != nil {
			return err
		}
		_, locked := one(ctx, t, scanText, `SELECT id FROM buckets WHERE workspace_id = ? AND id = ? {skip}`, string(b.Workspace), b.ID)
		if locked != nil && !none(locked) {
			return fmt.Errorf("lock a bucket: %w", locked)
		}
		full, err := one(ctx, t, scanText, `SELECT name FROM objects WHERE workspace_id = ? AND bucket_id = ? ORDER BY name LIMIT 1`,
			string(b.Workspace), b.ID)
		switch {
		case err == nil:
			return hob.Errorf(hob.Conflict, "The bucket you tried to delete is not empty: it holds %s; empty it first", full).WithCode("bucket_not_empty")
		case !none(err):
			return fmt.Errorf("look into a bucket: %w", err)
		case locked != nil:
			return errAgain
		}
		t.did(by, "bucket.delete", "bucket", b.ID, bucketConfig(b), nil)
		_, err = t.exec(ctx, `DELETE FROM buckets WHERE workspace_id = ? AND id = ?`, string(b.Workspace), b.ID)
		return err
	})
}
