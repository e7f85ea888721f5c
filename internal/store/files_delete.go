package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hob"
)

// DeleteFiles deletes the objects of these names, in one transaction.
func (s *DB) DeleteFiles(ctx context.Context, by hob.Principal, bucket string, names ...string) (deleted []hob.File, freed []string, err error) {
	err = s.write(ctx, "delete objects", func(ctx context.Context, t *tx) error {
		deleted, freed = nil, nil
		b, err := t.bucket(ctx, by, hob.ScopeConfigure, bucket)
		if err != nil {
			return err
		}
		cond, own := ownFiles(by, b)
		for left := names; len(left) > 0; {
			n := min(len(left), fileChunk)
			in, args := inList(left[:n])
			gone, err := t.deleteObjects(ctx, cond+` AND name IN `+in, append(slices.Clone(own), args...))
			if err != nil {
				return err
			}
			deleted, left = append(deleted, gone...), left[n:]
		}
		for _, f := range deleted {
			t.filed(by, "file.delete", f)
		}
		freed, err = unnamed(ctx, t, blobsOf(deleted)...)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return deleted, freed, nil
}

func (t *tx) deleteObjects(ctx context.Context, where string, args []any) ([]hob.File, error) {
	gone, err := many(ctx, t, scanFile, `DELETE FROM objects WHERE `+where+` RETURNING `+objectColumns, args...)
	t.wrote = t.wrote || len(gone) > 0
	return gone, hob.Wrap("delete objects", err)
}

func blobsOf(files []hob.File) []string {
	blobs := make([]string, len(files))
	for i, f := range files {
		blobs[i] = f.Blob
	}
	return blobs
}

// deleteOutputs deletes what runs left in OutputBucket. Their bytes are deleted when it is found that nothing names them.
func deleteOutputs(ctx context.Context, t *tx, ws hob.WorkspaceID, runs []hob.RunID) error {
	for len(runs) > 0 {
		n := min(len(runs), deleteChunk)
		var cond []string
		args := []any{string(ws), hob.OutputBucket}
		for _, r := range runs[:n] {
			prefix := hob.OutputPrefix(r)
			cond, args = append(cond, "(name >= ? AND name < ?)"), append(args, prefix, behind(prefix))
		}
		if _, err := t.exec(ctx, `DELETE FROM objects WHERE workspace_id = ? AND bucket_id = ? AND (`+strings.Join(cond, " OR ")+`)`, args...); err != nil {
			return fmt.Errorf("delete what runs left: %w", err)
		}
		runs = runs[n:]
	}
	return nil
}

// EmptyBucket deletes what the bucket holds, in transactions of few objects each, so that no writer waits long.
func (s *DB) EmptyBucket(ctx context.Context, by hob.Principal, bucket string) (freed []string, err error) {
	for n := fileChunk; n == fileChunk; {
		var free []string
		err := s.write(ctx, "empty a bucket", func(ctx context.Context, t *tx) error {
			b, err := t.bucket(ctx, by, hob.ScopeConfigure, bucket)
			if err != nil {
				return err
			}
			cond, args := ownFiles(by, b)
			gone, err := t.deleteObjects(ctx, `id IN (SELECT id FROM objects WHERE `+cond+` ORDER BY name LIMIT ?)`, append(args, int64(fileChunk)))
			if err != nil {
				return err
			}
			if n = len(gone); n > 0 {
				t.did(by, "bucket.empty", "bucket", b.ID, nil, nil).Detail = details("objects", strconv.Itoa(n))
			}
			free, err = unnamed(ctx, t, blobsOf(gone)...)
			return err
		})
		if err != nil {
			return freed, err // what was deleted before is gone, and so are its blobs to be
		}
		freed = append(freed, free...)
	}
	return freed, nil
}
