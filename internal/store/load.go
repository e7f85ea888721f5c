package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"hob"
)

// Loading is a dump about to be loaded.
type Loading struct {
	// Shape is the dump's. Digests of its tables, where they are there, have to be those of the rows.
	Shape  Shape
	Chunks iter.Seq2[Chunk, error] // as of Dump.Chunks
	// Hold keeps unfinished runs from being driven until an operator lets them go: what they did since the dump was made
	// is not known.
	Hold bool
	// Ready is called when everything is loaded and compared and only the commit is left. Its error undoes the load.
	Ready func() error
}

// Loaded is what a load did.
type Loaded struct {
	Tables     []Table // as they were read back from the database, with their digests
	Unfinished int64   // runs that were under way
}

// Load fills an empty database, of either dialect, with a dump of either dialect, all or nothing. A dump of an older schema
// is loaded at its own version, compared, and then brought up to date. Every row is read back before the load counts.
//
// Errors: Conflict where the database holds something already, Invalid where the dump is of a newer schema, was made under
// another seal key, or is not what its digests say.
func Load(ctx context.Context, c Config, in Loading) (Loaded, error) {
	known, err := knownMigrations()
	if err != nil {
		return Loaded{}, err
	}
	if err := in.Shape.check(c, len(known)); err != nil {
		return Loaded{}, err
	}
	l, err := c.link(ctx, true)
	if err != nil {
		return Loaded{}, err
	}
	out, err := l.load(ctx, in, known)
	if err != nil {
		l.rollback()
		return Loaded{}, fmt.Errorf("fill the database: %w", errors.Join(err, l.close()))
	}
	_ = l.close() // what is committed stays, however the connection ends
	return out, nil
}

// check says why a dump cannot be loaded at all.
func (s Shape) check(c Config, known int) error {
	switch {
	case c.Box == nil:
		return errors.New("fill the database: a seal key is needed")
	case s.Schema > known:
		return hob.Errorf(hob.Invalid, "it was made from schema version %d, but this Hob knows only up to %d: use the newer Hob", s.Schema, known)
	case s.Schema < 1:
		return hob.Errorf(hob.Invalid, "it does not say which schema version it was made from")
	case s.Seal != "" && s.Seal != c.Box.Fingerprint():
		return hob.Errorf(hob.Invalid, "it was made under the seal key with the fingerprint %s, but the key from %s has %s: "+
			"put the old key into its place, or into HOB_SEAL_KEY", s.Seal, c.Box.Source(), c.Box.Fingerprint())
	}
	return nil
}

// load does all of it in the transaction that it begins, and commits.
func (l *link) load(ctx context.Context, in Loading, known []migration) (Loaded, error) {
	now := hob.SystemClock().UnixMicro()
	if err := l.prepare(ctx, in.Shape, known, now); err != nil {
		return Loaded{}, err
	}
	written, err := l.fill(ctx, in)
	if err != nil {
		return Loaded{}, err
	}
	out := Loaded{Tables: make([]Table, 0, len(written))}
	for i, table := range written {
		sum := NewSum()
		for lines, err := range l.rows(ctx, table) {
			if err != nil {
				return Loaded{}, fmt.Errorf("read table %s back: %w", table.Name, err)
			}
			sum.Add(lines)
		}
		read := sum.Table(table.Name, table.Columns)
		if read.SHA256 != table.SHA256 || in.Shape.Tables[i].SHA256 != "" && in.Shape.Tables[i].SHA256 != read.SHA256 {
			return Loaded{}, hob.Errorf(hob.Invalid, "table %s reads back as %d rows with the digest %s, but should be %d rows with %s; nothing was kept",
				table.Name, read.Rows, read.SHA256, in.Shape.Tables[i].Rows, in.Shape.Tables[i].SHA256)
		}
		out.Tables = append(out.Tables, read)
	}
	if err := l.d.apply(ctx, &l.tx, known, in.Shape.Schema, now); err != nil {
		return Loaded{}, err
	}
	if err := l.linkLoaded(ctx); err != nil {
		return Loaded{}, err
	}
	// Whoever held a lease held it in the other database.
	if out.Unfinished, err = l.exec(ctx, `UPDATE runs SET lease_owner = '', lease_until = 0, held = CASE WHEN ? = 1 THEN 1 ELSE held END
		WHERE completed_at = 0`, flag(in.Hold)); err != nil {
		return Loaded{}, fmt.Errorf("end the leases: %w", err)
	}
	if in.Ready != nil {
		if err := in.Ready(); err != nil {
			return Loaded{}, err
		}
	}
	return out, hob.Wrap("commit", l.define(ctx, "COMMIT"))
}

// prepare begins the transaction, makes sure that the database is empty, and makes the schema of the dump's version.
func (l *link) prepare(ctx context.Context, shape Shape, known []migration, now int64) error {
	for _, stmt := range append([]string{l.d.begin}, l.d.lock...) {
		if err := l.define(ctx, stmt); err != nil {
			return fmt.Errorf("lock the database: %w", err)
		}
	}
	version, err := l.version(ctx)
	if err != nil {
		return err
	}
	if version > len(known) {
		return hob.Errorf(hob.Conflict, "the database has schema version %d, which this Hob does not know", version)
	}
	if version > 0 {
		if err := l.clear(ctx); err != nil {
			return err
		}
	}
	if err := l.define(ctx, l.d.types.Replace(createMigrations)); err != nil {
		return fmt.Errorf("make the schema: %w", err)
	}
	if err := l.d.steps(ctx, &l.tx, known[:shape.Schema], 0, now); err != nil {
		return err
	}
	tables, err := l.d.tables(ctx, &l.tx)
	if err != nil {
		return err
	}
	return sameShape(shape.Tables, tables)
}

// clear drops the tables of a database that holds nothing.
func (l *link) clear(ctx context.Context) error {
	tables, err := l.d.tables(ctx, &l.tx)
	if err != nil {
		return err
	}
	if l.d.exclusive != "" { // a server could fill them before they are dropped
		names := make([]string, len(tables))
		for i, t := range tables {
			names[i] = t.Name
		}
		if err := l.define(ctx, fmt.Sprintf(l.d.exclusive, strings.Join(names, ", "))); err != nil {
			return fmt.Errorf("lock the tables, which others use: %w", err)
		}
	}
	for _, t := range tables {
		where := ""
		switch t.Name {
		case "meta":
			continue
		case "workspaces":
			where = ` WHERE id <> '` + string(hob.DefaultWorkspace) + `'`
		}
		n, err := one(ctx, &l.tx, scanInt, `SELECT count(*) FROM (SELECT 1 FROM `+t.Name+where+` LIMIT 1) AS x`)
		if err != nil {
			return fmt.Errorf("look into table %s: %w", t.Name, err)
		}
		if n > 0 {
			return hob.Errorf(hob.Conflict, "the database is not empty: its table %s has rows. Nothing was changed", t.Name)
		}
	}
	for i := len(tables) - 1; i >= 0; i-- {
		if err := l.define(ctx, `DROP TABLE `+tables[i].Name); err != nil {
			return fmt.Errorf("drop the empty table %s: %w", tables[i].Name, err)
		}
	}
	return hob.Wrap("drop the empty schema", l.define(ctx, `DROP TABLE schema_migrations`))
}

// fill writes the rows and gives the tables with the digests of what came.
func (l *link) fill(ctx context.Context, in Loading) ([]Table, error) {
	at, tables := 0, in.Shape.Tables
	if len(tables) == 0 {
		return nil, hob.Errorf(hob.Invalid, "the dump has no tables")
	}
	done := make([]Table, 0, len(tables))
	f := l.filler(tables[0])
	next := func() error {
		if err := f.end(ctx); err != nil {
			return fmt.Errorf("load table %s: %w", f.table.Name, err)
		}
		done = append(done, f.sum.Table(f.table.Name, f.table.Columns))
		if at++; at < len(tables) {
			f = l.filler(tables[at])
		}
		return nil
	}
	for chunk, err := range in.Chunks {
		if err != nil {
			return nil, err
		}
		for at < len(tables) && tables[at].Name != chunk.Table {
			if err := next(); err != nil {
				return nil, err
			}
		}
		if at == len(tables) {
			return nil, hob.Errorf(hob.Invalid, "rows of %.40q come in a place where none belong", chunk.Table)
		}
		if err := f.add(ctx, chunk.Lines); err != nil {
			return nil, fmt.Errorf("load table %s: %w", chunk.Table, err)
		}
	}
	for at < len(tables) {
		if err := next(); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// filler writes the rows of one table.
type filler struct {
	table Table
	sum   *Sum
	l     *link
	bulk  *bulk
	args  []any
	row   int64
}

func (l *link) filler(t Table) *filler {
	head := `INSERT INTO ` + t.Name + ` (` + t.columns() + `)`
	return &filler{table: t, sum: NewSum(), l: l, bulk: newBulk(head, len(t.Columns), "")}
}

func (f *filler) add(ctx context.Context, lines []byte) error {
	f.sum.Add(lines)
	for line := range bytes.Lines(lines) {
		f.row++
		var err error
		if f.args, err = readRow(f.args, line, f.table.Columns, f.l.d.strict); err != nil {
			return fmt.Errorf("row %d: %w", f.row, err)
		}
		if len(f.args) == bulkRows*len(f.table.Columns) {
			if err := f.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *filler) flush(ctx context.Context) error {
	err := f.bulk.insert(ctx, &f.l.tx, f.args)
	clear(f.args)
	f.args = f.args[:0]
	return hob.Wrap(fmt.Sprintf("write the rows up to %d", f.row), err)
}

// end writes what is left, and lets the database number new rows behind the loaded ones.
func (f *filler) end(ctx context.Context) error {
	if err := f.flush(ctx); err != nil {
		return err
	}
	if f.l.d.numbers == "" || f.table.Columns[0].Name != "n" {
		return nil
	}
	_, err := many(ctx, &f.l.tx, scanInt, fmt.Sprintf(f.l.d.numbers, f.table.Name))
	return hob.Wrap("set the next number", err)
}
