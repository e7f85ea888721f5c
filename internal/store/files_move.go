package store

import (
	"context"

	"hob"
)

// MoveFile renames an object. Another bucket must take it; its own has.
func (s *DB) MoveFile(ctx context.Context, by hob.Principal, m hob.FileMove) (hob.File, error) {
	var f hob.File
	err := s.write(ctx, "move an object", func(ctx context.Context, t *tx) error {
		from, to, err := s.source(ctx, t, by, m)
		if err == nil && to.ID != from.Bucket {
			err = to.Check(from.Size, from.Type)
		}
		if err != nil {
			return err
		}
		f = from
		t.filed(by, "file.move", f).Detail = details("to", to.ID+"/"+m.ToName)
		f.Bucket, f.Name = to.ID, m.ToName
		f.UpdatedAt = hob.FromMicros(max(s.now(), f.UpdatedAt.Micros()))
		_, err = t.exec(ctx, `UPDATE objects SET bucket_id = ?, name = ?, updated_at = ? WHERE id = ?`, f.Bucket, f.Name, f.UpdatedAt.Micros(), f.ID)
		if err != nil && s.d.conflict(err) {
			err = hob.Errorf(hob.Conflict, "The resource already exists: %s/%s; delete it first", f.Bucket, f.Name).WithCode("object_exists")
		}
		return err
	})
	if err != nil {
		return hob.File{}, err
	}
	return f, nil
}

// source holds the object that is moved or copied, until the transaction ends, and finds the bucket that it comes into. The
// object's blob cannot be freed meanwhile: who deletes the object waits, and sees the copy then.
func (s *DB) source(ctx context.Context, t *tx, by hob.Principal, m hob.FileMove) (f hob.File, to hob.Bucket, err error) {
	from, err := t.bucket(ctx, by, hob.ScopeConfigure, m.Bucket)
	if err != nil {
		return f, to, err
	}
	if to, err = t.bucket(ctx, by, hob.ScopeConfigure, m.ToBucket); err != nil {
		return f, to, err
	}
	cond, args := ownFiles(by, from)
	f, err = returning(ctx, t, scanFile, `UPDATE objects SET accessed_at = ? WHERE `+cond+` AND name = ? RETURNING `+objectColumns,
		append(append([]any{s.now()}, args...), m.Name)...)
	if none(err) {
		return f, to, absentFile()
	}
	return f, to, hob.Wrap("read an object", err)
}

// CopyFile makes a second object of the same bytes, owned by who copies.
func (s *DB) CopyFile(ctx context.Context, by hob.Principal, m hob.FileMove) (hob.KeptFile, error) {
	var kept hob.KeptFile
	err := s.write(ctx, "copy an object", func(ctx context.Context, t *tx) error {
		f, to, err := s.source(ctx, t, by, m)
		if err == nil {
			err = to.Check(f.Size, f.Type)
		}
		if err != nil {
			return err
		}
		source := f.Bucket + "/" + f.Name
		f.Bucket, f.Name, f.Owner = to.ID, m.ToName, m.Owner
		t.filed(by, "file.copy", f).Detail = details("of", source)
		kept, err = s.putObject(ctx, t, by, to, hob.FilePut{File: f, Overwrite: m.Overwrite})
		return err
	})
	if err != nil {
		return hob.KeptFile{}, err
	}
	return kept, nil
}
