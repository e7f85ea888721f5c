package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hob"
	"hob/internal/backup"
	"hob/internal/config"
	"hob/internal/store"
)

const backupHelp = `Writes everything Hob has stored into one file, as it was at one moment, while hob serve may go on. FILE is a name that is
not there yet, a folder, or - for standard output; where left out, hob-backup-TIME.tar.gz in this folder. With SQLite the
agents' database project.db is in it too, unless HOB_PROJECT_DATABASE_URL names another. The bytes of files are in it where
they lie in the data folder; of those in an S3-compatible place (--storage) only the names are.

Not in it are the seal key, service.key and hob.toml: whoever has the archive and the seal key has every secret. Keep the
seal key (seal.key in the data folder, or HOB_SEAL_KEY) in another place: without it the secrets in the backup cannot be
read, and it cannot be restored.

Options:
`

// storeOptions are what a command needs that works on the store itself.
func storeOptions() []string {
	return []string{"--data", "--database", "--project-database", "--storage", "HOB_SEAL_KEY"}
}

// restoreOptions are those, and what finds a server.
func restoreOptions() []string { return append(storeOptions(), "--addr", "--service-key", "HOB_KEY") }

// backupName is how a backup is called that the user gives no name.
const backupName = "hob-backup-20060102T150405.000Z.tar.gz"

func makeBackup(ctx context.Context, w world) error {
	c, words, err := w.load(flag.NewFlagSet("backup", flag.ContinueOnError))
	if err != nil {
		return err
	}
	if len(words) > 1 {
		return usageError(fmt.Sprintf("unexpected word %q", words[1]))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := hob.SystemClock()
	path := began.UTC().Format(backupName)
	if len(words) == 1 {
		if path = words[0]; path == "-" {
			return writeBackup(ctx, c, backupTo{w: w.stdout, dir: os.TempDir(), name: "the backup", told: w.stderr, began: began})
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, began.UTC().Format(backupName))
		}
	}
	return newFile(path, func(f *os.File) error {
		return writeBackup(ctx, c, backupTo{w: f, dir: filepath.Dir(path), name: path, told: w.stdout, began: began})
	})
}

// newFile makes a file of mode 0600 that has its name once it is whole and on the disk. One that is there is not touched.
func newFile(path string, write func(*os.File) error) (err error) {
	taken := hob.Errorf(hob.Conflict, "%s is there already; choose another name", path)
	if exists(path) {
		return taken
	}
	dir := filepath.Dir(path)
	if !exists(dir) {
		return hob.Errorf(hob.NotFound, "the folder %s is not there", dir)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, gone(os.Remove(f.Name()))) }()
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// Link refuses to replace a file made meanwhile, which Rename would. Not every file system has it.
	if err := os.Link(f.Name(), path); err != nil {
		if exists(path) {
			return taken
		}
		if err := os.Rename(f.Name(), path); err != nil {
			return fmt.Errorf("name %s: %w", path, err)
		}
	}
	return syncFolder(dir)
}

// gone is the error of a removal, where there was something to remove.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncFolder makes new names in a folder outlast a power cut.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return hob.Wrap("sync "+dir, errors.Join(d.Sync(), d.Close()))
}

// backupTo is where a backup goes.
type backupTo struct {
	w     io.Writer
	dir   string // for the copy of the agents' file
	name  string
	told  io.Writer
	began time.Time
}

// counter counts the bytes that go by.
type counter struct {
	io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// noHob says that there is no store in the data folder, where it would be.
func noHob(c config.Config) error {
	if c.Database != "" || exists(filepath.Join(c.Data, store.FileName)) {
		return nil
	}
	return hob.Errorf(hob.NotFound, "there is no Hob in %s; name its data folder with --data, or its database with --database", c.Data)
}

func writeBackup(ctx context.Context, c config.Config, to backupTo) (err error) {
	if err := noHob(c); err != nil {
		return err
	}
	held, letGo, err := holdFiles(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, letGo()) }()
	at := store.Config{DSN: c.Database, Dir: c.Data}
	if err := noteWhole(ctx, at, hob.ActBackup, "backup", to.name); err != nil {
		return locked(c, err)
	}
	d, err := store.OpenDump(ctx, at)
	if err != nil {
		return locked(c, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	moved, err := d.MovedTo(ctx)
	if err != nil {
		return err
	}
	src := backup.Source{Dump: d, Version: buildVersion(), Now: to.began}
	if held != nil {
		if err := held.More(ctx); err != nil { // what came between taking hold and the moment of the rows
			return err
		}
		src.Files = blobsOf(held)
	}
	src.Elsewhere, _, _ = strings.Cut(c.Storage, "?")
	if path := ownProject(c); path != "" && exists(path) {
		dir, err := os.MkdirTemp(to.dir, ".hob-backup-") // made with mode 0700
		if err != nil {
			return fmt.Errorf("copy the project database: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		src.Project = filepath.Join(dir, projectFile)
		if err := store.CopySQLite(ctx, path, src.Project); err != nil {
			return err
		}
	}
	out := &counter{Writer: to.w}
	m, err := backup.Write(ctx, out, src)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "wrote %s: %s in %s\n", to.name, size(out.n), hob.SystemClock().Sub(to.began).Round(time.Millisecond))
	fmt.Fprintf(&b, "  %s, schema %d: %s\n", m.Store.Dialect, m.Store.Schema, contents(m))
	if m.Project != nil {
		fmt.Fprintf(&b, "  the agents' %s: %s\n", projectFile, size(m.Project.Size))
	}
	switch {
	case m.Files.Elsewhere != "":
		fmt.Fprintf(&b, "  files: NOT in it; their bytes lie in %s, which has its own backups\n", m.Files.Elsewhere)
	case m.Files.Count > 0:
		fmt.Fprintf(&b, "  %s: %s\n", count(int(m.Files.Count), "file"), size(m.Files.Size))
	}
	if moved != "" {
		fmt.Fprintf(&b, "  note: this database was moved to %s; the backup is of what was left here\n", moved)
	}
	fmt.Fprintf(&b, "not in it, on purpose: the seal key, %s and %s\n", serviceKeyFile, config.FileName)
	fmt.Fprintf(&b, "keep the seal key (%s) in another place: without it the secrets in the backup cannot be read\n", sealPlace(c))
	_, err = fmt.Fprint(to.told, b.String())
	return err
}

// ownProject is where the agents' SQLite file lies; "" where agents query something else.
func ownProject(c config.Config) string {
	if c.Database != "" || c.ProjectDatabase != "" {
		return ""
	}
	return filepath.Join(c.Data, projectFile)
}

// sealPlace says where the seal key is.
func sealPlace(c config.Config) string {
	if c.SealKey != "" {
		return "HOB_SEAL_KEY"
	}
	return filepath.Join(c.Data, sealKeyFile)
}

// contents tells the counts that people know.
func contents(m backup.Manifest) string {
	shown := map[string]string{"agents": "agent", "sessions": "session", "runs": "run", "run_events": "event"}
	var parts []string
	for _, t := range m.Store.Tables {
		if word := shown[t.Name]; word != "" {
			parts = append(parts, count(int(t.Rows), word))
		}
	}
	return strings.Join(parts, ", ") + "; " + count(int(m.Rows()), "row") + " in all"
}

// size writes a number of bytes for people.
func size(n int64) string {
	units := []string{"KB", "MB", "GB", "TB"}
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	x := float64(n) / 1000
	for x >= 1000 && len(units) > 1 {
		x, units = x/1000, units[1:]
	}
	return fmt.Sprintf("%.1f %s", x, units[0])
}
