package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"hob/internal/config"
	"hob/internal/egress"
	"hob/internal/storage"
)

// filesFolder holds the bytes of files in the data folder, where --storage names no other place.
const filesFolder = "files"

// openFiles opens where files lie.
func (p *parts) openFiles(c config.Config, log *slog.Logger) error {
	secret, err := derivedSecret(c, "hob storage links")
	if err != nil {
		return err
	}
	var place storage.Backend
	if c.Storage == "" {
		local, err := storage.OpenLocal(filepath.Join(c.Data, filesFolder))
		if err != nil {
			return err
		}
		place, p.filesPlace = local, local
	} else if place, err = storage.OpenS3(storage.S3Config{
		Address: c.Storage, AccessKey: c.StorageAccessKey, SecretKey: c.StorageSecretKey, Egress: p.guard, TempDir: c.Data,
	}); err != nil {
		return configError{err}
	}
	p.files = storage.New(storage.Config{
		Store: p.store, Backend: place, Secret: secret, BaseURL: func() string { return publicURL(c) }, Log: log,
	})
	return nil
}

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
	var place storage.Backend
	var err error
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
		var local *storage.Local
		if local, err = storage.OpenLocal(where); err == nil {
			place = local
			defer func() { _ = local.Close() }() // it was only asked
		}
	} else {
		guard := egress.New(egress.Config{})
		defer guard.Close()
		where, _, _ = strings.Cut(c.Storage, "?")
		place, err = storage.OpenS3(storage.S3Config{
			Address: c.Storage, AccessKey: c.StorageAccessKey, SecretKey: c.StorageSecretKey, Egress: guard,
		})
	}
	if err == nil {
		err = place.Check(ctx)
	}
	if err != nil {
		r.add(check, bad, fmt.Sprintf("files cannot be stored in %s: %s", where, err), "see --storage in: hob help serve")
		return
	}
	r.add(check, ok, where+" takes files and gives them back", "")
	if c.PublicURL == "" && !c.Loopback() {
		r.add(check, warn, "signed links begin with "+c.URL()+", which others may not reach", "set --public-url")
	}
}
