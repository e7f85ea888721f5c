package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"hob"
)

// Facts are what an operator should know of a store.
type Facts struct {
	Dialect string    // sqlite or postgres
	Server  string    // the engine's version
	Schema  int       // the number of the last migration that was applied; 0 = nothing of Hob's is there yet
	Known   int       // the number of the last one this program has
	Clock   time.Time // the database's, by which leases count
	// Settings are those that durability rests on, as they are in force for new connections.
	Settings map[string]string
}

// Weak names the settings that would lose what was acknowledged as durable, each with its value; empty is good.
func (f Facts) Weak() []string {
	wanted := map[string]string{"journal_mode": "wal", "fsync": "on", "full_page_writes": "on"}
	var weak []string
	for _, name := range []string{"journal_mode", "fsync", "full_page_writes"} {
		if value, ok := f.Settings[name]; ok && value != wanted[name] {
			weak = append(weak, name+" = "+value)
		}
	}
	return weak
}

// Inspect looks at a database without changing it: nothing is made, migrated or locked. A SQLite file that is not there
// is NotFound. It needs no seal key.
func Inspect(ctx context.Context, c Config) (Facts, error) {
	known, err := knownMigrations()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Known: len(known)}
	if c.postgres() {
		err = f.postgres(ctx, c.DSN)
	} else {
		err = f.sqlite(ctx, c.path())
	}
	if err != nil {
		return Facts{}, fmt.Errorf("look at the store: %w", err)
	}
	return f, nil
}

func (f *Facts) sqlite(ctx context.Context, path string) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return hob.Errorf(hob.NotFound, "%s is not there", path)
	}
	db, err := sql.Open("sqlite", sqliteDSN(path, "ro", sqliteReaderCache, "query_only(1)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	f.Dialect = "sqlite"
	return f.read(ctx, db, looks{
		server: `SELECT sqlite_version()`,
		clock:  `SELECT ` + sqliteDialect().words.Replace("{now}"),
		there:  `SELECT count(*) FROM sqlite_master WHERE name = 'schema_migrations'`,
		schema: `SELECT coalesce(max(version), 0) FROM schema_migrations`,
		settings: map[string]string{
			"journal_mode": `PRAGMA journal_mode`, "page_size": `PRAGMA page_size`, "page_count": `PRAGMA page_count`,
		},
	})
}

func (f *Facts) postgres(ctx context.Context, dsn string) (err error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return errors.New("the database address is not a valid postgres:// URL")
	}
	db := sql.OpenDB(&connector{cfg: cfg, clock: hob.SystemClock})
	defer func() { err = errors.Join(err, db.Close()) }()
	f.Dialect = "postgres"
	return f.read(ctx, db, looks{
		server: `SHOW server_version`,
		clock:  `SELECT ` + postgresDialect().words.Replace("{now}"),
		there:  `SELECT count(to_regclass('` + postgresSchema + `.schema_migrations'))`,
		schema: `SELECT coalesce(max(version), 0) FROM ` + postgresSchema + `.schema_migrations`,
		settings: map[string]string{
			"fsync": `SHOW fsync`, "full_page_writes": `SHOW full_page_writes`, "max_connections": `SHOW max_connections`,
		},
	})
}

// looks are the statements that find the facts out.
type looks struct {
	server, clock, there, schema string
	settings                     map[string]string
}

func (f *Facts) read(ctx context.Context, db *sql.DB, l looks) error {
	var us, there int64
	if err := db.QueryRowContext(ctx, l.server).Scan(&f.Server); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, l.clock).Scan(&us); err != nil {
		return err
	}
	f.Clock = hob.FromMicros(us).Time
	f.Settings = map[string]string{}
	for name, query := range l.settings {
		var value string
		if err := db.QueryRowContext(ctx, query).Scan(&value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.Settings[name] = value
	}
	if err := db.QueryRowContext(ctx, l.there).Scan(&there); err != nil || there == 0 {
		return err
	}
	return db.QueryRowContext(ctx, l.schema).Scan(&f.Schema)
}
