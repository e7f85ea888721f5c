package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"hob"
)

// How the janitor works.
const (
	// OrphanAge is how old a blob must be that nothing names, before it is deleted: no upload lasts as long.
	OrphanAge = 24 * time.Hour
	// sweepEvery is how often it looks.
	sweepEvery = time.Hour
	// sweepBatch is how many blobs it asks the store about at once.
	sweepBatch = 500
)

// ownerMark is the one blob with a name of its own: it names the store whose rows the blobs belong to. Only that store may
// say that nothing names a blob. A copy of the store, as a restored backup is, reads and writes beside it, and deletes
// nothing.
const ownerMark = "owner"

// errNotOwner says that another store's name is on the blobs.
var errNotOwner = errors.New("the files belong to another database, so nothing of them is deleted; where that one is gone, " +
	"delete the file or object \"" + ownerMark + "\" beside them, and restart the server")

// owned says whether this store may delete blobs, and puts its name on them where there is none. Once it may, it may as
// long as the process lives.
func (f *Files) owned(ctx context.Context) error {
	f.owning.Lock()
	defer f.owning.Unlock()
	if f.isOwner {
		return nil
	}
	id, err := f.Store.StorageID(ctx)
	if err != nil {
		return err
	}
	mark, err := f.mark(ctx)
	if hob.KindOf(err) == hob.NotFound {
		if err := f.Backend.Put(ctx, ownerMark, int64(len(id)), strings.NewReader(id)); err != nil {
			return fmt.Errorf("say whose the files are: %w", err)
		}
		mark, err = f.mark(ctx) // another one may have been there at the same time
	}
	if err != nil {
		return fmt.Errorf("read whose the files are: %w", err)
	}
	if mark != id {
		return errNotOwner
	}
	f.isOwner = true
	return nil
}

func (f *Files) mark(ctx context.Context) (string, error) {
	body, err := f.Backend.Open(ctx, ownerMark)
	if err != nil {
		return "", err
	}
	mark, err := io.ReadAll(io.LimitReader(body, maxMark))
	return string(mark), errors.Join(err, body.Close())
}

const maxMark = 100 // bytes

// Serve looks for blobs that nothing names, at once and every hour, until ctx ends: those of uploads that a crash cut
// short, and those whose deletion failed.
func (f *Files) Serve(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		n, err := f.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.Log.Warn("looking for files that nothing names", slog.String("error", err.Error()))
		case n > 0:
			f.Log.Info("deleted the bytes of files that nothing names", slog.Int("blobs", n))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sweep deletes the blobs older than OrphanAge that nothing names, forgets old keys of writes, and says how many blobs
// there were.
func (f *Files) Sweep(ctx context.Context) (deleted int, err error) {
	if _, err := f.Store.SweepWrites(ctx); err != nil {
		return 0, err
	}
	if err := f.owned(ctx); err != nil {
		return 0, err
	}
	old := f.Clock().Add(-OrphanAge)
	var batch []string
	flush := func() error {
		n, err := f.dropUnnamed(ctx, batch)
		deleted += n
		batch = batch[:0]
		return err
	}
	err = f.Backend.List(ctx, func(e Entry) error {
		if !e.Written.Before(old) {
			return nil
		}
		if batch = append(batch, e.Blob); len(batch) < sweepBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return deleted, err
}

func (f *Files) dropUnnamed(ctx context.Context, blobs []string) (int, error) {
	if len(blobs) == 0 {
		return 0, nil
	}
	named, err := f.Store.Blobs(ctx, blobs)
	if err != nil {
		return 0, err
	}
	var orphans []string
	for _, b := range blobs {
		if !named[b] {
			orphans = append(orphans, b)
		}
	}
	if len(orphans) == 0 {
		return 0, nil
	}
	return len(orphans), f.Backend.Delete(ctx, orphans...)
}
