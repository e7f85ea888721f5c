package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"hob"
	"hob/internal/config"
	"hob/internal/seal"
	"hob/internal/store"
)

const migrateHelp = `  hob migrate status       says which schema the store has, which this program knows, and what is in it
  hob migrate up           brings the schema up to date and ends, as hob serve does at its start
  hob migrate --to URL     moves the SQLite store of the data folder into an empty Postgres database
  hob migrate --reopen     lets hob serve use a SQLite store again that was moved

--to needs the server stopped. It copies every table in one transaction, reads every row back and compares counts and
digests; then it marks the SQLite store as moved, so that no server drives the same runs a second time. A password need not
stand in the URL: PGPASSWORD is used too. Runs that were under way go on at the first start on Postgres, under the same
seal key. The agents' own database, project.db, is not moved: load its tables into Postgres yourself, and name that
database with HOB_PROJECT_DATABASE_URL.

Options:
`

func migrate(ctx context.Context, w world) error {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	var moves bool
	to := flags.String("to", "", "URL of an empty Postgres database")
	reopen := flags.Bool("reopen", false, "use a store again that was moved")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	flags.Visit(func(f *flag.Flag) { moves = moves || f.Name == "to" })
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(words) > 1:
		return usageError(fmt.Sprintf("unexpected word %q", words[1]))
	case len(words) == 1 && (moves || *reopen) || moves && *reopen:
		return usageError("one thing at a time: status, up, --to or --reopen")
	case *reopen:
		return reopenStore(ctx, w, c)
	case moves && *to == "":
		return usageError("--to is empty; it is the postgres:// URL of an empty database")
	case moves:
		return migrateTo(ctx, w, c, *to)
	case len(words) == 0:
		return usageError("what to do is missing: status, up, --to URL or --reopen")
	case words[0] == "status":
		return migrateStatus(ctx, w, c)
	case words[0] == "up":
		return migrateUp(ctx, w, c)
	}
	return usageError(fmt.Sprintf("there is no %q; it is status or up", words[0]))
}

func migrateStatus(ctx context.Context, w world, c config.Config) (err error) {
	if err := noHob(c); err != nil {
		return err
	}
	from := store.Config{DSN: c.Database, Dir: c.Data}
	facts, err := store.Inspect(ctx, from)
	if err != nil {
		return locked(c, err)
	}
	fmt.Fprintf(w.stdout, "%s (%s %s)\nschema %d; this program knows the schemas 1 to %d\n",
		plain(from.Address()), facts.Dialect, facts.Server, facts.Schema, facts.Known)
	switch {
	case facts.Schema == 0:
		fmt.Fprintln(w.stdout, "nothing of Hob's is there yet; hob migrate up or hob serve makes it")
		return nil
	case facts.Schema > facts.Known:
		return hob.Errorf(hob.Conflict, "the schema is newer than this program: use the newer hob")
	case facts.Schema < facts.Known:
		fmt.Fprintf(w.stdout, "hob migrate up, or the next hob serve, brings it to %d; make a backup before\n", facts.Known)
	}
	d, err := store.OpenDump(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	moved, err := d.MovedTo(ctx)
	if err != nil {
		return err
	}
	if moved != "" {
		fmt.Fprintf(w.stdout, "moved to %s; back with: hob migrate --reopen\n", plain(moved))
	}
	list, err := d.Counts(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TABLE\tROWS")
	for _, x := range list {
		fmt.Fprintf(t, "%s\t%d\n", x.Name, x.Rows)
	}
	return t.Flush()
}

func migrateUp(ctx context.Context, w world, c config.Config) error {
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
	if err := keyLost(c); err != nil {
		return err
	}
	box, err := seal.Open(filepath.Join(c.Data, sealKeyFile), string(c.SealKey))
	if err != nil {
		return fmt.Errorf("open the seal key: %w", err)
	}
	at := store.Config{DSN: c.Database, Dir: c.Data, Box: box}
	before, err := store.Inspect(ctx, at)
	if err != nil && hob.KindOf(err) != hob.NotFound {
		return err
	}
	s, err := store.Open(ctx, at)
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	after, err := store.Inspect(ctx, at)
	if err != nil {
		return err
	}
	if before.Schema == after.Schema {
		fmt.Fprintf(w.stdout, "schema %d is up to date\n", after.Schema)
		return nil
	}
	fmt.Fprintf(w.stdout, "schema %d → %d\n", before.Schema, after.Schema)
	return nil
}

// lockedSource is the data folder's SQLite store, locked against servers.
func lockedSource(c config.Config) (store.Config, func(), error) {
	from := store.Config{Dir: c.Data}
	if path := filepath.Join(c.Data, store.FileName); !exists(path) {
		return from, nil, hob.Errorf(hob.NotFound, "there is no Hob on SQLite in %s; name its data folder with --data", c.Data)
	}
	unlock, err := lockFolder(c.Data)
	return from, unlock, err
}

func reopenStore(ctx context.Context, w world, c config.Config) error {
	from, unlock, err := lockedSource(c)
	if err != nil {
		return err
	}
	defer unlock()
	was, err := store.SetMoved(ctx, from, "")
	if err != nil {
		return err
	}
	if was == "" {
		return hob.Errorf(hob.Conflict, "%s was not moved", from.Address())
	}
	_, err = fmt.Fprintf(w.stdout, "%s is in use again, as it was when it was moved to %s. Stop the servers there: both would drive the same runs\n",
		from.Address(), plain(was))
	return err
}

func migrateTo(ctx context.Context, w world, c config.Config, url string) (err error) {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return usageError("--to is a postgres:// URL")
	}
	from, unlock, err := lockedSource(c)
	if err != nil {
		return err
	}
	defer unlock()
	if err := keyLost(config.Config{Data: c.Data, SealKey: c.SealKey}); err != nil {
		return err
	}
	box, err := seal.Open(filepath.Join(c.Data, sealKeyFile), string(c.SealKey))
	if err != nil {
		return fmt.Errorf("open the seal key: %w", err)
	}
	d, err := store.OpenDump(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	to := store.Config{DSN: url, Dir: c.Data, Box: box}
	moved, err := d.MovedTo(ctx)
	if err != nil {
		return err
	}
	if err := movedBefore(ctx, from, to, moved); err != nil {
		return err
	}
	assigned, err := d.Assigned(ctx)
	if err != nil {
		return err
	}
	marked := false
	done, err := store.Load(ctx, to, store.Loading{
		Shape: d.Shape(), Chunks: d.Chunks(ctx),
		// Marked before the commit: a crash between the two leaves one store that servers open, or none, but never both.
		Ready: func() error {
			_, err := store.SetMoved(ctx, from, to.Address())
			marked = err == nil
			return err
		},
	})
	if err != nil {
		return unmark(ctx, marked, from, to, err)
	}
	if err := compared(w, d.Tables(), done.Tables); err != nil {
		return err
	}
	if err := noteWhole(ctx, to, hob.ActMigrated, "store", from.Address()); err != nil {
		return err
	}
	if err := disownFiles(ctx, c); err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "all tables are equal. %s is marked as moved; it stays as it is, and hob serve refuses it (back: hob migrate --reopen)\n"+
		"now start hob serve with HOB_DATABASE_URL set to the new address and the same seal key (%s)\n", from.Address(), sealPlace(c))
	if done.Unfinished > 0 {
		fmt.Fprintf(w.stdout, "%s under way: the first start takes it up\n", count(int(done.Unfinished), "run"))
	}
	if path := ownProject(config.Config{Data: c.Data, ProjectDatabase: c.ProjectDatabase}); path != "" && exists(path) {
		fmt.Fprintf(w.stdout, "the agents' own tables in %s were not moved: load them into Postgres and set HOB_PROJECT_DATABASE_URL\n", path)
	}
	return warnOfGrants(ctx, w, cmp.Or(c.ProjectDatabase, url), assigned)
}

// movedBefore refuses to move what was moved. A mark alone is no move: who was killed in front of the commit left one, and
// may do it over.
func movedBefore(ctx context.Context, from, to store.Config, moved string) error {
	switch {
	case moved == "":
		return nil
	case moved != to.Address():
		return hob.Errorf(hob.Conflict, "%s was moved to %s already; to use it again: hob migrate --reopen", from.Address(), moved)
	}
	d, err := store.OpenDump(ctx, to)
	if hob.KindOf(err) == hob.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	return hob.Errorf(hob.Conflict, "%s was moved there already, and nothing is left to do: start hob serve with HOB_DATABASE_URL set to %s",
		from.Address(), moved)
}

// unmark takes the mark back where the move certainly did not happen.
func unmark(ctx context.Context, marked bool, from, to store.Config, err error) error {
	if !marked {
		if hob.KindOf(err) == hob.Conflict {
			return fmt.Errorf("%w; choose an empty database", err)
		}
		return fmt.Errorf("%w; nothing was changed", err)
	}
	ctx = context.WithoutCancel(ctx)
	d, look := store.OpenDump(ctx, to)
	if look == nil {
		look = d.Close()
	} else if hob.KindOf(look) == hob.NotFound {
		if _, back := store.SetMoved(ctx, from, ""); back == nil {
			return err
		}
	}
	return fmt.Errorf("%w\nit is not known whether %s has everything: look with hob migrate status --database URL. If it has nothing, go on with %s after: hob migrate --reopen",
		errors.Join(err, look), to.Address(), from.Address())
}

// compared prints both sides of each table.
func compared(w world, from, to []store.Table) error {
	t := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TABLE\tROWS\tDIGEST\tON POSTGRES\tDIGEST\t")
	equal := len(from) == len(to)
	for i := range min(len(from), len(to)) {
		a, b, verdict := from[i], to[i], "equal"
		if a.Name != b.Name || a.Rows != b.Rows || a.SHA256 != b.SHA256 {
			equal, verdict = false, "DIFFERENT"
		}
		fmt.Fprintf(t, "%s\t%d\t%.16s\t%d\t%.16s\t%s\n", a.Name, a.Rows, a.SHA256, b.Rows, b.SHA256, verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !equal {
		return errors.New("the tables are not equal; do not use the new database")
	}
	return nil
}
