package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"hob"
	"hob/internal/backup"
	"hob/internal/config"
	"hob/internal/egress"
	"hob/internal/storage"
)

// filesFolder holds the bytes of files in the data folder, where --storage names no other place.
const filesFolder = "files"

// openPlace opens where the bytes of files lie. What it holds open is closed by the second value.
func openPlace(c config.Config, guard *egress.Guard) (storage.Backend, io.Closer, error) {
	if c.Storage == "" {
		local, err := storage.OpenLocal(filepath.Join(c.Data, filesFolder))
		if err != nil {
			return nil, nil, err
		}
		return local, local, nil
	}
	s3, err := storage.OpenS3(storage.S3Config{
		Address: c.Storage, AccessKey: c.StorageAccessKey, SecretKey: c.StorageSecretKey, Egress: guard, TempDir: c.Data,
	})
	if err != nil {
		return nil, nil, configError{err}
	}
	return s3, nothingOpen{}, nil
}

type nothingOpen struct{}

// Close does nothing.
func (nothingOpen) Close() error { return nil }

// openFiles opens the object storage.
func (p *parts) openFiles(c config.Config, log *slog.Logger) error {
	secret, err := derivedSecret(c, "hob storage links")
	if err != nil {
		return err
	}
	var place storage.Backend
	if place, p.filesPlace, err = openPlace(c, p.guard); err != nil {
		return err
	}
	if apart(c) {
		log.Warn("the bytes of files "+filesApart, slog.String("folder", filepath.Join(c.Data, filesFolder)), slog.String("fix", "set --storage to an S3-compatible bucket"))
	}
	p.files = storage.New(storage.Config{
		Store: p.store, Backend: place, Secret: secret, BaseURL: func() string { return publicURL(c) }, Log: log,
	})
	return nil
}

// apart says whether several servers may work on the database of which each keeps files for itself.
func apart(c config.Config) bool { return c.Database != "" && c.Storage == "" }

// filesApart continues a sentence about the files of such a server.
const filesApart = "lie in the data folder of this server: other servers of the database do not find them there, unless that is a shared file system"

// publicURL is where the server is reached from outside.
func publicURL(c config.Config) string {
	if c.PublicURL != "" {
		return strings.TrimRight(c.PublicURL, "/")
	}
	return c.URL()
}

// checkStorage looks at the place where files lie. Where it is there, a file of few bytes is written, read and deleted.
func (r *report) checkStorage(ctx context.Context) {
	const check = "files"
	c := r.config
	where := filepath.Join(c.Data, filesFolder)
	if c.Storage == "" {
		switch info, missing := os.Stat(where); {
		case errors.Is(missing, fs.ErrNotExist):
			r.add(check, warn, "there is no folder for files yet; hob serve makes "+where, "")
			return
		case missing != nil:
			r.add(check, bad, missing.Error(), "")
			return
		case info.Mode().Perm() != 0o700:
			r.add(check, bad, fmt.Sprintf("the mode of %s is %04o, not 0700", where, info.Mode().Perm()), "chmod 700 "+where)
			return
		}
	} else {
		where, _, _ = strings.Cut(c.Storage, "?")
	}
	guard := egress.New(egress.Config{})
	defer guard.Close()
	place, open, err := openPlace(c, guard)
	if err == nil {
		defer func() { _ = open.Close() }() // it was only asked
		err = place.Check(ctx)
	}
	if err != nil {
		r.add(check, bad, fmt.Sprintf("files cannot be stored in %s: %s", where, err), "see --storage in: hob help serve")
		return
	}
	r.add(check, ok, where+" takes files and gives them back; signed links begin with "+cmp.Or(c.PublicURL, c.URL()), "")
	if apart(c) {
		r.add(check, warn, "files "+filesApart, "set --storage to an S3-compatible bucket before a second server starts")
	}
	if c.PublicURL == "" && !c.Loopback() {
		r.add(check, warn, "signed links begin with "+c.URL()+", which others may not reach", "set --public-url")
	}
}

// holdFiles keeps the bytes of files from being deleted until the second value is called. nil: they do not lie in the data
// folder, or there are none.
func holdFiles(ctx context.Context, c config.Config) (*storage.Hold, func() error, error) {
	dir := filepath.Join(c.Data, filesFolder)
	if c.Storage != "" || !exists(dir) {
		return nil, func() error { return nil }, nil
	}
	local, err := storage.OpenLocal(dir)
	if err != nil {
		return nil, nil, err
	}
	held, err := local.Hold(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, local.Close())
	}
	return held, func() error { return errors.Join(held.Close(), local.Close()) }, nil
}

// blobsOf gives what is held as a backup takes it.
func blobsOf(held *storage.Hold) iter.Seq2[backup.Blob, error] {
	return func(yield func(backup.Blob, error) bool) {
		for h, err := range held.All() {
			if !yield(backup.Blob{Name: h.Blob, Size: h.Size, Body: h.Body}, err) {
				return
			}
		}
	}
}

// restoreFiles puts the bytes of files that a backup has into their place. What is left of them when the rest fails is
// named by nothing, and deleted by its age.
func restoreFiles(ctx context.Context, c config.Config, a *backup.Archive) error {
	if a.Manifest.Files == nil || a.Manifest.Files.Count == 0 {
		return nil
	}
	guard := egress.New(egress.Config{})
	defer guard.Close()
	place, open, err := openPlace(c, guard)
	if err != nil {
		return err
	}
	defer func() { _ = open.Close() }() // each blob was synced by itself
	owned, err := storage.Owned(ctx, place)
	if err != nil {
		return err
	}
	if owned {
		return hob.Errorf(hob.Conflict, "the files of another database lie in the place for files")
	}
	for b, err := range a.Blobs() {
		if err == nil {
			err = place.Put(ctx, b.Name, b.Size, b.Body)
		}
		if err != nil {
			return fmt.Errorf("restore the files: %w", err)
		}
	}
	return nil
}

// filesRestored says what became of the bytes of files.
func filesRestored(c config.Config, m backup.Manifest) string {
	switch {
	case m.Files == nil || m.Files.Count == 0 && m.Files.Elsewhere == "":
		return ""
	case m.Files.Elsewhere == "":
		return fmt.Sprintf("%s put back: %s\n", count(int(m.Files.Count), "file"), size(m.Files.Size))
	case c.Storage == "":
		return fmt.Sprintf("the bytes of files were not in the backup: they lie in %s. Set HOB_STORAGE_URL and its keys before you start hob serve\n",
			plain(m.Files.Elsewhere))
	}
	return fmt.Sprintf("the bytes of files were not in the backup: they lie in %s. Nothing is deleted there until you delete the object owner, "+
		"which names the lost database\n", plain(m.Files.Elsewhere))
}

// disownFiles lets the database that a store was moved to delete the bytes of files, as the one before could.
func disownFiles(ctx context.Context, c config.Config) error {
	if c.Storage == "" && !exists(filepath.Join(c.Data, filesFolder)) {
		return nil
	}
	guard := egress.New(egress.Config{})
	defer guard.Close()
	place, open, err := openPlace(c, guard)
	if err != nil {
		return err
	}
	return errors.Join(storage.Disown(ctx, place), open.Close())
}
