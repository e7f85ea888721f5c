//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// fill copies the one run that a store holds, with all that belongs to it, until there are as many events as wanted, and
// gives how many there are then. The copies have ids of their own, in their rows and in their events. The server is down.
func fill(ctx context.Context, path string, want int) (_ int, err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=synchronous(off)&_pragma=cache_size(-65536)")
	if err != nil {
		return 0, fmt.Errorf("open the store's file: %w", err)
	}
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	f := filler{db: db}
	events, err := f.template(ctx)
	if err != nil {
		return 0, err
	}
	if f.copies = (want - 1) / events; f.copies < 1 {
		return 0, fmt.Errorf("the run to copy has %d events, too many to store %d", events, want)
	}
	for _, table := range []string{"sessions", "runs", "run_details", "run_events", "messages", "usage"} {
		if err := f.copy(ctx, table); err != nil {
			return 0, err
		}
	}
	// What was written is on the disk before anything is measured.
	for _, text := range []string{"PRAGMA synchronous = FULL", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return 0, fmt.Errorf("%s: %w", text, err)
		}
	}
	var stored int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM run_events").Scan(&stored)
	return stored, err
}

type filler struct {
	db     *sql.DB
	run    string // the template's id
	copies int
}

// template finds the run that is copied; it has to be the only one.
func (f *filler) template(ctx context.Context) (events int, err error) {
	var runs int
	if err := f.db.QueryRowContext(ctx, "SELECT count(*), max(id) FROM runs").Scan(&runs, &f.run); err != nil {
		return 0, fmt.Errorf("find the run to copy: %w", err)
	}
	if runs != 1 {
		return 0, fmt.Errorf("the store to fill holds %d runs, want 1", runs)
	}
	err = f.db.QueryRowContext(ctx, "SELECT count(*) FROM run_events").Scan(&events)
	if err == nil && events == 0 {
		err = errors.New("the run to copy has no events")
	}
	return events, err
}

// copy writes the copies of a table's rows. Columns are read from the schema, so that a new one does not matter.
func (f *filler) copy(ctx context.Context, table string) error {
	columns, err := f.columns(ctx, table)
	if err != nil {
		return err
	}
	var names, values []string
	for _, c := range columns {
		if v := copied(table, c); v != "" {
			names = append(names, c)
			values = append(values, v)
		}
	}
	run := strings.ReplaceAll(f.run, "'", "''")
	text := fmt.Sprintf("WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d) INSERT INTO %s (%s) SELECT %s FROM k, %s t",
		f.copies, table, strings.Join(names, ", "), strings.ReplaceAll(strings.Join(values, ", "), "{run}", "'"+run+"'"), "(SELECT * FROM "+table+")")
	if _, err := f.db.ExecContext(ctx, text); err != nil {
		return fmt.Errorf("copy the rows of %s: %w", table, err)
	}
	return nil
}

// copied is what copy number k.i of a row has in a column; "" where the database gives the value.
func copied(table, column string) string {
	switch {
	case column == "run_n", column == "session_n", column == "n" && table != "usage":
		return "t." + column + " + k.i"
	case column == "n":
		return ""
	case column == "run_id", column == "id" && table == "runs":
		return "printf('run_%012x', k.i)"
	case column == "id" && table == "sessions":
		return "printf('sess_%012x', k.i)"
	case column == "data":
		return "replace(t.data, {run}, printf('run_%012x', k.i))"
	}
	return "t." + column
}

func (f *filler) columns(ctx context.Context, table string) ([]string, error) {
	rows, err := f.db.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", table, err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("read the columns of %s: %w", table, err)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the store has no table %s", table)
	}
	return names, rows.Err()
}
