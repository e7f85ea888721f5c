package store

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"

	"hob"
	"hob/internal/seal"
)

// migrations are the schema's steps, 0001_name.sql and on. A step that was released is never changed; a new one is added.
//
//go:embed migration/*.sql
var migrations embed.FS

// migration is one step: its number is its place in the list, from 1.
type migration struct{ name, text string }

func knownMigrations() ([]migration, error) {
	files, err := migrations.ReadDir("migration") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	list := make([]migration, 0, len(files))
	for i, f := range files {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(f.Name(), want) {
			return nil, fmt.Errorf("migration %s should begin with %s", f.Name(), want)
		}
		text, err := migrations.ReadFile("migration/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", f.Name(), err)
		}
		list = append(list, migration{f.Name(), string(text)})
	}
	return list, nil
}

// statements splits a migration: a statement ends with a semicolon at the end of a line.
func (m migration) statements() []string {
	var list []string
	for s := range strings.SplitSeq(m.text, ";\n") {
		if strings.TrimSpace(s) != "" {
			list = append(list, s)
		}
	}
	return list
}

const createMigrations = `CREATE TABLE IF NOT EXISTS schema_migrations (
	version {int} PRIMARY KEY, name TEXT NOT NULL, applied_at {int} NOT NULL)`

// migrate brings the schema to the newest version, all missing steps in one transaction, alone. A schema that is newer
// than this program is refused: it may keep what this program would not see.
func (s *DB) migrate(ctx context.Context) error {
	known, err := knownMigrations()
	if err != nil {
		return err
	}
	return s.e.migrate(ctx, func(ctx context.Context, t *tx) error {
		for _, stmt := range append(s.d.lock[:len(s.d.lock):len(s.d.lock)], s.d.types.Replace(createMigrations)) {
			if err := t.define(ctx, stmt); err != nil {
				return fmt.Errorf("prepare the schema: %w", err)
			}
		}
		at, err := one(ctx, t, scanInt, `SELECT coalesce(max(version), 0) FROM schema_migrations`)
		if err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		if at > int64(len(known)) {
			return fmt.Errorf("the database has schema version %d, but this Hob knows only up to %d: start the newer Hob, or restore a backup", at, len(known))
		}
		if err := s.d.apply(ctx, t, known, int(at), s.now()); err != nil || at == 0 || at == int64(len(known)) {
			return err
		}
		e := t.did(hob.System(hob.DefaultWorkspace), "store.schema", "store", strconv.Itoa(len(known)), nil, nil)
		e.Detail = details("from", strconv.FormatInt(at, 10))
		s.fill(t, e)
		notes := t.notes
		t.notes = nil
		return s.insertNotes(ctx, t, notes)
	})
}

// apply runs the steps after the first done ones, and makes sure of the workspace that every database has.
func (d *dialect) apply(ctx context.Context, t *tx, known []migration, done int, now int64) error {
	if err := d.steps(ctx, t, known, done, now); err != nil {
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO workspaces (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		string(hob.DefaultWorkspace), "Default", now)
	return hob.Wrap("make the default workspace", err)
}

// steps runs the steps after the first done ones.
func (d *dialect) steps(ctx context.Context, t *tx, known []migration, done int, now int64) error {
	for i, m := range known[done:] {
		for _, stmt := range m.statements() {
			if err := t.define(ctx, d.types.Replace(stmt)); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
		}
		if _, err := t.exec(ctx, `INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, ?)`,
			done+i+1, m.name, now); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	return nil
}

// checkSeal compares the seal key with the one the database was filled under.
func (s *DB) checkSeal(ctx context.Context) error {
	var kept string
	err := s.e.write(ctx, func(ctx context.Context, t *tx) error {
		if _, err := t.exec(ctx, `INSERT INTO meta (name, value) VALUES ('seal_fingerprint', ?) ON CONFLICT (name) DO NOTHING`,
			s.box.Fingerprint()); err != nil {
			return err
		}
		var err error
		kept, err = one(ctx, t, scanText, `SELECT value FROM meta WHERE name = 'seal_fingerprint'`)
		return err
	})
	if err != nil {
		return fmt.Errorf("check the seal key: %w", err)
	}
	if kept != s.box.Fingerprint() {
		return fmt.Errorf("the seal key from %s (fingerprint %s) is not the one this database was made with (%s): bring the old key back, in the key file or in the environment. "+
			"All servers of one database need one %s: the text of the key file on the first server. Nothing was changed or deleted",
			s.box.Source(), s.box.Fingerprint(), kept, seal.EnvKey)
	}
	return nil
}
