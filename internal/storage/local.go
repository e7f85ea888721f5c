package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"hob"
)

// partial ends the name of a file that is not whole yet: a blob's, a dot and 8 digits of its own come before.
const partial = ".part"

// Local keeps blobs as files of mode 0600, in a folder per first two digits of their names. It reaches nothing outside its
// folder, whatever links lie in it.
type Local struct {
	root *os.Root
}

var _ Backend = (*Local)(nil)

// OpenLocal opens a folder, and makes it (0700) where it is not there.
func OpenLocal(dir string) (*Local, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the folder of files: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder needs the x bit
		return nil, fmt.Errorf("make the folder of files private: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of files: %w", err)
	}
	return &Local{root: root}, nil
}

// Close lets go of the folder.
func (l *Local) Close() error { return l.root.Close() }

// place gives where a blob lies.
func place(blob string) (folder, path string, err error) {
	if blob == ownerMark {
		return ".", ownerMark, nil
	}
	if !blobName.MatchString(blob) {
		return "", "", fmt.Errorf("%.40q is no blob's name", blob)
	}
	return blob[:2], blob[:2] + "/" + blob, nil
}

// Put writes beside the blob's name and gives it the name once all is on the disk.
func (l *Local) Put(ctx context.Context, blob string, size int64, body io.Reader) (err error) {
	folder, path, err := place(blob)
	if err != nil {
		return err
	}
	if err := l.folder(folder); err != nil {
		return err
	}
	part := path + "." + hob.RandomHex(4) + partial
	f, err := l.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = l.root.Remove(part) // what is left is found by its age
		}
	}()
	if size >= 0 {
		body = exactly(body, size)
	}
	_, err = io.Copy(f, reading{ctx, body})
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	if err := l.root.Rename(part, path); err != nil {
		return fmt.Errorf("name a file: %w", err)
	}
	return l.sync(folder)
}

// folder makes a folder that outlasts a power cut.
func (l *Local) folder(name string) error {
	if name == "." {
		return nil
	}
	err := l.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	return l.sync(".")
}

func (l *Local) sync(folder string) error {
	d, err := l.root.Open(folder)
	if err != nil {
		return fmt.Errorf("sync a folder: %w", err)
	}
	return hob.Wrap("sync a folder", errors.Join(d.Sync(), d.Close()))
}

// reading ends with its context.
type reading struct {
	ctx  context.Context //nolint:containedctx // lives for one copy
	from io.Reader
}

// Read gives the next bytes.
func (r reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// Open opens a blob's file.
func (l *Local) Open(_ context.Context, blob string) (io.ReadSeekCloser, error) {
	_, path, err := place(blob)
	if err != nil {
		return nil, err
	}
	f, err := l.root.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absentBlob()
	}
	if err != nil {
		return nil, fmt.Errorf("open a file: %w", err)
	}
	return f, nil
}

// Delete removes blobs' files.
func (l *Local) Delete(_ context.Context, blobs ...string) error {
	var errs []error
	for _, b := range blobs {
		_, path, err := place(b)
		if err == nil {
			err = l.root.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("delete a file: %w", err))
		}
	}
	return errors.Join(errs...)
}

// List walks through the folders; what is no blob is passed over.
func (l *Local) List(ctx context.Context, each func(Entry) error) error {
	err := fs.WalkDir(l.root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if d.IsDir() {
			if path != "." && (len(path) != len("ab") || strings.HasPrefix(path, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !blobName.MatchString(d.Name()) || path != d.Name()[:2]+"/"+d.Name() || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return each(Entry{Blob: d.Name(), Size: info.Size(), Written: info.ModTime()})
	})
	return hob.Wrap("list the files", err)
}

// Check says whether the folder is the owner's alone and can be written.
func (l *Local) Check(ctx context.Context) error {
	info, err := l.root.Stat(".")
	if err != nil {
		return fmt.Errorf("look at the folder of files: %w", err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		return fmt.Errorf("the folder of files has the mode %04o; others may read it: chmod 700 %s", mode, l.root.Name())
	}
	return probe(ctx, l)
}

// probe writes, reads and deletes a small blob.
func probe(ctx context.Context, b Backend) error {
	const text = "hob"
	blob := NewBlob()
	if err := b.Put(ctx, blob, int64(len(text)), strings.NewReader(text)); err != nil {
		return err
	}
	body, err := b.Open(ctx, blob)
	if err == nil {
		var got []byte
		got, err = io.ReadAll(body)
		err = errors.Join(err, body.Close())
		if err == nil && string(got) != text {
			err = errors.New("a file reads back as another than was written")
		}
	}
	return errors.Join(err, b.Delete(ctx, blob))
}
