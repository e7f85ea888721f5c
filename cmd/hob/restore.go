package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hob"
	"hob/client"
	"hob/internal/backup"
	"hob/internal/config"
	"hob/internal/seal"
	"hob/internal/store"
)

const restoreHelp = `  hob restore FILE              puts a backup into an empty data folder, or an empty Postgres database (--database)
      --max-size GIB            how large the archive may be unpacked; 64 where left out
  hob restore --held            lists the runs that wait since the restore
  hob restore --release [RUN…]  lets these go on, or all of them
      --json                    prints what the server answered

The archive is checked whole before anything is written, and every row is read back; an interrupted restore leaves the
store empty. The seal key that the backup was made under has to be in place: put seal.key into the data folder, mode 0600,
or set HOB_SEAL_KEY. No server may run on it.

Runs that were under way when the backup was made are held: what they did after it, in the world, is not known here. Look
at them and let them go on with --release, or cancel them. --held and --release ask the running server, found at HOB_ADDR;
the key is HOB_KEY, else the one in the data folder.

Options:
`

func restore(ctx context.Context, w world) error {
	flags := flag.NewFlagSet("restore", flag.ContinueOnError)
	held := flags.Bool("held", false, "list the runs that wait since the restore")
	release := flags.Bool("release", false, "let them go on")
	asJSON := flags.Bool("json", false, "as JSON")
	most := flags.Int64("max-size", backup.DefaultMaxSize>>30, "how large the archive may be unpacked, in GiB")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	switch {
	case *held && *release:
		return usageError("--held lists and --release lets go: one of them")
	case *held && len(words) > 0:
		return usageError(fmt.Sprintf("unexpected word %q", words[0]))
	case *held:
		return listHeld(ctx, w, c, *asJSON)
	case *release:
		return releaseHeld(ctx, w, c, words, *asJSON)
	case len(words) == 0:
		return usageError("which file? hob backup makes them")
	case len(words) > 1:
		return usageError(fmt.Sprintf("unexpected word %q", words[1]))
	case *most < 1 || *most > 1<<20:
		return usageError("--max-size is a number of GiB from 1 on")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return restoreFile(ctx, w, c, words[0], *most<<30)
}

func restoreFile(ctx context.Context, w world, c config.Config, path string, most int64) error {
	began := hob.SystemClock()
	f, err := os.Open(path)
	if err != nil {
		return hob.Errorf(hob.NotFound, "%s cannot be read: %s", path, reason(err))
	}
	defer f.Close()
	a, err := backup.Verify(f, most)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m := a.Manifest
	fmt.Fprintf(w.stdout, "%s is whole: made %s by hob %s, %s, schema %d: %s\n", path, m.CreatedAt.Format(time.RFC3339), plain(m.Hob),
		plain(m.Store.Dialect), m.Store.Schema, contents(m))
	if err := makeFolder(c.Data); err != nil {
		return err
	}
	if c.Database == "" {
		unlock, err := lockFolder(c.Data)
		if err != nil {
			return err
		}
		defer unlock()
	}
	box, err := sealForRestore(c, m.Store.Seal)
	if err != nil {
		return err
	}
	p := &projectRestore{archive: a, dir: c.Data}
	ready := func() error { return restoreFiles(ctx, c, a) }
	if ownProject(c) != "" && m.Project != nil {
		if !exists(filepath.Join(c.Data, store.FileName)) { // else what is in there is the better reason to refuse
			if err := p.free(); err != nil {
				return notEmpty(c, err)
			}
		}
		ready = func() error {
			if err := restoreFiles(ctx, c, a); err != nil {
				return err
			}
			return p.place()
		}
	}
	done, err := store.Load(ctx, store.Config{DSN: c.Database, Dir: c.Data, Box: box}, store.Loading{
		Shape: m.Store, Chunks: a.Chunks(), Hold: true, Ready: ready,
	})
	if err != nil {
		p.undo()
		return notEmpty(c, err)
	}
	if c.Database == "" {
		if err := syncFolder(c.Data); err != nil {
			return err
		}
	}
	if err := noteWhole(ctx, store.Config{DSN: c.Database, Dir: c.Data}, hob.ActRestored, "backup", path); err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "restored into %s in %s: every row was read back and its digest is the archive's\n",
		plain(store.Config{DSN: c.Database, Dir: c.Data}.Address()), hob.SystemClock().Sub(began).Round(time.Millisecond))
	if _, err := fmt.Fprint(w.stdout, filesRestored(c, m)); err != nil {
		return err
	}
	return tellRestored(w, c, path, m.Project != nil, done.Unfinished)
}

// tellRestored says what is left to do.
func tellRestored(w world, c config.Config, path string, project bool, unfinished int64) error {
	var b strings.Builder
	if project && ownProject(c) == "" {
		fmt.Fprintf(&b, "the agents' %s in the archive was left there: this installation's agents query another database. To look at it: tar xzf %s %s\n",
			projectFile, quoted(path), projectFile)
	}
	if unfinished > 0 {
		fmt.Fprintf(&b, "held: %[1]s, under way when the backup was made; what they did since is not known here. Start hob serve, then\n"+
			"  %[2]s restore --held%[3]s       lists them\n  %[2]s restore --release%[3]s    lets all of them go on, or those whose ids follow\n",
			count(int(unfinished), "run"), w.program, whereabouts(c))
	}
	_, err := fmt.Fprint(w.stdout, b.String())
	return err
}

// sealForRestore opens the seal key and makes none: a new one could not open what is restored.
func sealForRestore(c config.Config, fingerprint string) (*seal.Box, error) {
	path := filepath.Join(c.Data, sealKeyFile)
	if c.SealKey == "" && !exists(path) {
		return nil, hob.Errorf(hob.Invalid, "the seal key that the backup was made under (fingerprint %s) is missing: "+
			"put it into %s, mode 0600, or set %s", fingerprint, path, seal.EnvKey)
	}
	box, err := seal.Open(path, string(c.SealKey))
	if err != nil {
		return nil, fmt.Errorf("open the seal key: %w", err)
	}
	return box, nil
}

// notEmpty says what to do where a store holds something already.
func notEmpty(c config.Config, err error) error {
	if hob.KindOf(err) != hob.Conflict {
		return err
	}
	if c.Database != "" {
		return fmt.Errorf("%w; choose an empty database with --database", err)
	}
	return fmt.Errorf("%w; choose another data folder with --data, or move the files in %s away", err, c.Data)
}

// projectRestore puts the agents' file into place, when only the commit of the store is left.
type projectRestore struct {
	archive *backup.Archive
	dir     string
	placed  bool // it got its name from us
}

func (p *projectRestore) path() string { return filepath.Join(p.dir, projectFile) }

// free refuses where another file has the name. One with the backup's content, as a restore that was killed leaves it, is
// the same file.
func (p *projectRestore) free() error {
	if !exists(p.path()) {
		return nil
	}
	same, err := p.same()
	if err == nil && !same {
		err = hob.Errorf(hob.Conflict, "%s is there and is not the backup's", p.path())
	}
	return err
}

func (p *projectRestore) same() (bool, error) {
	f, err := os.Open(p.path())
	if err != nil {
		return false, fmt.Errorf("look at the project database: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, fmt.Errorf("look at the project database: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)) == p.archive.Manifest.Project.SHA256, nil
}

// place writes the file under another name and then gives it its own.
func (p *projectRestore) place() (err error) {
	if err := p.free(); err != nil || exists(p.path()) {
		return err
	}
	f, err := os.CreateTemp(p.dir, "."+projectFile+"-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("restore the project database: %w", err)
	}
	defer func() { err = errors.Join(err, gone(os.Remove(f.Name()))) }()
	err = p.archive.Project(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("restore the project database: %w", err)
	}
	if err := os.Rename(f.Name(), p.path()); err != nil {
		return fmt.Errorf("restore the project database: %w", err)
	}
	p.placed = true
	return syncFolder(p.dir)
}

// undo takes the file away again; one that stays is found to be the same by the next restore.
func (p *projectRestore) undo() {
	if p.placed {
		_ = os.Remove(p.path())
	}
}

func listHeld(ctx context.Context, w world, c config.Config, asJSON bool) error {
	r, err := connect(c)
	if err != nil {
		return err
	}
	defer r.Close()
	list, err := r.HeldRuns(ctx)
	if err != nil {
		return r.explain(err)
	}
	if asJSON {
		return writeJSON(w, map[string]any{"runs": list})
	}
	if len(list) == 0 {
		fmt.Fprintln(w.stdout, "no run is held")
		return nil
	}
	for _, x := range list {
		fmt.Fprintln(w.stdout, heldLine(x))
	}
	fmt.Fprintf(w.stdout, "let them go on with: %s restore --release%s, or the ids of some behind it\n", w.program, whereabouts(c))
	return nil
}

// heldLine tells of one run what a person judges by.
func heldLine(x client.HeldRun) string {
	agent := string(x.Agent)
	if x.AgentName != "" {
		agent = fmt.Sprintf("%s (%s)", x.AgentName, x.Agent)
	}
	cancelling := ""
	if x.CancelRequested {
		cancelling = "cancelling, "
	}
	text := fmt.Sprintf("%s  %sagent %s, session %s, turn %d, since %s; ", x.ID, cancelling, agent, x.Session, x.Turn, x.CreatedAt.Format(time.RFC3339))
	switch call := x.LastCall; {
	case call == nil:
		text += "it called no tool"
	case call.OutcomeUnknown:
		text += "its last call: " + call.Tool + ", whose outcome is unknown"
	case call.Status == hob.CallIntent:
		text += "its last call: " + call.Tool + ", under way: it may have been made"
	case call.Status == hob.CallDone && call.IsError:
		text += "its last call: " + call.Tool + ", which failed"
	case call.Status == hob.CallDone:
		text += "its last call: " + call.Tool + ", which succeeded"
	default:
		text += "its last call: " + call.Tool + ", not made yet"
	}
	if x.LastEvent != nil {
		text += "; last seen " + x.LastEvent.At.Format(time.RFC3339)
	}
	return plain(text)
}

func releaseHeld(ctx context.Context, w world, c config.Config, words []string, asJSON bool) error {
	ids := make([]hob.RunID, len(words))
	for i, word := range words {
		ids[i] = hob.RunID(strings.TrimSpace(word))
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	r, err := connect(c)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := r.ReleaseHeld(ctx, ids...)
	var fault *hob.Error
	if errors.As(err, &fault) && fault.Kind == hob.NotFound && fault.Details["run_id"] != nil {
		return hob.Errorf(hob.NotFound, "%v not found; none was released. Those that wait: %s restore --held%s", fault.Details["run_id"], w.program, whereabouts(c))
	}
	if err != nil {
		return r.explain(err)
	}
	if asJSON {
		return writeJSON(w, map[string]any{"released": n})
	}
	text := "released " + count(int(n), "run")
	switch left := len(ids) - int(n); {
	case len(ids) == 0 && n == 0:
		text += " (none is held)"
	case left == 1:
		text += " (1 was not held any more)"
	case left > 1:
		text += fmt.Sprintf(" (%d were not held any more)", left)
	}
	_, err = fmt.Fprintln(w.stdout, text)
	return err
}
