package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"time"

	"hob"
)

// heldPrefix begins the names of folders that hold a second name of every blob while they are copied.
const heldPrefix = ".held-"

// heldTime is how old such a folder is that an interrupted copy left.
const heldTime = 24 * time.Hour

// Hold is a second name of every blob that a folder had, so that none is gone before it was read.
type Hold struct {
	local *Local
	dir   string
}

// Hold takes hold of all blobs. It costs no room: on file systems that know no second names it is refused.
func (l *Local) Hold(ctx context.Context) (*Hold, error) {
	l.forgetHolds()
	h := &Hold{local: l, dir: heldPrefix + hob.RandomHex(8)}
	if err := l.root.Mkdir(h.dir, 0o700); err != nil {
		return nil, fmt.Errorf("hold the files: %w", err)
	}
	if err := h.More(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// forgetHolds removes what interrupted copies left. What fails is tried again by the next.
func (l *Local) forgetHolds() {
	entries, err := fs.ReadDir(l.root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), heldPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(hob.SystemClock().Add(-heldTime)) {
			_ = l.root.RemoveAll(e.Name())
		}
	}
}

// More takes hold of the blobs that have come since.
func (h *Hold) More(ctx context.Context) error {
	return h.local.List(ctx, func(e Entry) error {
		if strings.HasSuffix(e.Blob, partial) {
			return nil
		}
		_, path, err := place(e.Blob)
		if err != nil {
			return err
		}
		err = h.local.root.Link(path, h.dir+"/"+e.Blob)
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) { // held already, or deleted meanwhile
			return fmt.Errorf("hold a file: %w", err)
		}
		return nil
	})
}

// Held is a blob that is held.
type Held struct {
	Blob string
	Size int64
	Body io.Reader
}

// All gives the blobs in the order of their names, each to be read before the next.
func (h *Hold) All() iter.Seq2[Held, error] {
	return func(yield func(Held, error) bool) {
		entries, err := fs.ReadDir(h.local.root.FS(), h.dir)
		for _, e := range entries {
			if err != nil {
				break
			}
			var more bool
			if more, err = h.one(e.Name(), yield); !more && err == nil {
				return
			}
		}
		if err != nil {
			yield(Held{}, fmt.Errorf("read the files: %w", err))
		}
	}
}

func (h *Hold) one(blob string, yield func(Held, error) bool) (more bool, err error) {
	f, err := h.local.root.Open(h.dir + "/" + blob)
	if err != nil {
		return false, err
	}
	info, err := f.Stat()
	if err == nil {
		more = yield(Held{Blob: blob, Size: info.Size(), Body: f}, nil)
	}
	return more, errors.Join(err, f.Close())
}

// Close lets go of the blobs.
func (h *Hold) Close() error {
	return hob.Wrap("let go of the files", h.local.root.RemoveAll(h.dir))
}

// Owned says whether some store's name is on the blobs.
func Owned(ctx context.Context, b Backend) (bool, error) {
	body, err := b.Open(ctx, ownerMark)
	if hob.KindOf(err) == hob.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, body.Close()
}

// Disown takes the store's name off the blobs: the next store that uses them puts its own there.
func Disown(ctx context.Context, b Backend) error { return b.Delete(ctx, ownerMark) }
