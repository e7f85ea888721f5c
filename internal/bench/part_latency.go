//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the store's driver, to measure one durable commit beside it
)

// firstToken is part 3.
func (b *bench) firstToken(ctx context.Context) error {
	s, err := b.stand(ctx, standing{folder: "first-token", kind: textModel})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	r, err := b.alone(ctx, alone{
		raw: streams(b.clock, s.raw()), hob: streams(b.clock, s.through()), runs: b.plan.alone,
	})
	if err != nil {
		return err
	}
	added := inMS(r.hob.firsts.p50() - r.raw.firsts.p50())
	two := 2 * inMS(r.commit.p50())
	b.report.beside(3, "added first-token time, 1 client", "ms", inMS(r.raw.firsts.p50()), added, atMost(0.4+two, 0.3+two))
	b.report.line(3, "the bars are 0.4 ms (must) and 0.3 ms (aim) and two durable commits of %s; hob's own part: %s ms",
		ms(r.commit.p50()), number(added-two))
	b.report.quantiles(3, "raw, first text", &r.raw.firsts)
	b.report.quantiles(3, "hob, first text", &r.hob.firsts)
	b.report.quantiles(3, "raw, whole run", &r.raw.times)
	b.report.quantiles(3, "hob, whole run", &r.hob.times)
	b.durable(3, r)
	return nil
}

// toolStep is part 4.
func (b *bench) toolStep(ctx context.Context) error {
	s, err := b.stand(ctx, standing{folder: "tool-step", kind: toolModel})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	turns, err := b.converse(ctx, s.model)
	if err != nil {
		return err
	}
	r, err := b.alone(ctx, alone{
		raw: b.conversations(s.model, turns), hob: streams(b.clock, s.through()), runs: b.plan.alone / 2,
	})
	if err != nil {
		return err
	}
	added := inMS(r.hob.times.p50()-r.raw.times.p50()) / toolSteps
	two := 2 * inMS(r.commit.p50())
	b.report.beside(4, "added per tool step, 1 client", "ms", inMS(r.raw.times.p50())/toolSteps, added, atMost(0.5+two, 0.25+two))
	b.report.line(4, "the bars are 0.5 ms (must) and 0.25 ms (aim) and two durable commits of %s; hob's own part: %s ms",
		ms(r.commit.p50()), number(added-two))
	b.report.quantiles(4, "raw, ten tool steps", &r.raw.times)
	b.report.quantiles(4, "hob, ten tool steps", &r.hob.times)
	b.durable(4, r)
	return nil
}

// durable notes what durability costs here.
func (b *bench) durable(part int, r latencies) {
	b.report.quantiles(part, "one durable SQLite commit", &r.commit)
	b.report.quantiles(part, "one 4 KiB write and fsync", &r.fsync)
}

// alone is a comparison with one client, for times instead of rates.
type alone struct {
	raw, hob opener
	runs     int // of each, in all
}

type latencies struct {
	raw, hob      outcome
	commit, fsync sample
}

// alone measures in turns: some runs of the floor, some of Hob, some durable commits. What a commit costs changes from
// minute to minute on shared disks, so it is measured between the runs it is a part of.
func (b *bench) alone(ctx context.Context, a alone) (r latencies, err error) {
	d, err := openDisk(ctx, b.folder, b.clock)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	const turns = 10
	each := max(1, a.runs/turns)
	for i := range turns + 1 {
		s := slice{clock: b.clock, clients: 1, runs: each, open: a.raw}
		raw, err := s.load(ctx)
		if err != nil {
			return r, fmt.Errorf("raw: %w", err)
		}
		s.open = a.hob
		hob, err := s.load(ctx)
		if err != nil {
			return r, fmt.Errorf("hob: %w", err)
		}
		if err := errors.Join(raw.err(), hob.err()); err != nil {
			return r, err
		}
		if i == 0 {
			continue // a warm-up
		}
		r.raw.add(raw)
		r.hob.add(hob)
		if err := d.measure(ctx, each, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// disk measures what a durable write costs in a folder: one row in a transaction of its own, in a SQLite database set up
// as the store's, and a plain write with fsync.
type disk struct {
	clock  clock
	folder string
	db     *sql.DB
	insert *sql.Stmt
	file   *os.File
}

func openDisk(ctx context.Context, folder string, c clock) (_ *disk, err error) {
	d := &disk{clock: c}
	if d.folder, err = os.MkdirTemp(folder, "disk-"); err != nil {
		return nil, fmt.Errorf("make a folder to measure commits in: %w", err)
	}
	if d.file, err = os.Create(filepath.Join(d.folder, "plain")); err != nil {
		return nil, fmt.Errorf("make a file to measure fsync on: %w", err)
	}
	d.db, err = sql.Open("sqlite", "file:"+filepath.Join(d.folder, "commit.db")+
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(4000)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a database to measure commits on: %w", err), d.file.Close())
	}
	d.db.SetMaxOpenConns(1)
	if _, err = d.db.ExecContext(ctx, "CREATE TABLE rows (n INTEGER PRIMARY KEY, body TEXT NOT NULL)"); err == nil {
		d.insert, err = d.db.PrepareContext(ctx, "INSERT INTO rows (body) VALUES (?)")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a table to measure commits on: %w", err), d.close())
	}
	return d, nil
}

func (d *disk) close() error {
	if d.insert != nil {
		_ = d.insert.Close() // the database is closed next
	}
	return errors.Join(d.db.Close(), d.file.Close(), os.RemoveAll(d.folder))
}

// rowBytes is about what one event takes.
const rowBytes = 256

func (d *disk) measure(ctx context.Context, times int, into *latencies) error {
	row := string(make([]byte, rowBytes))
	page := make([]byte, 4<<10)
	for range times {
		at := d.clock.now()
		if _, err := d.insert.ExecContext(ctx, row); err != nil {
			return fmt.Errorf("commit a row: %w", err)
		}
		into.commit.add(d.clock.now() - at)
		at = d.clock.now()
		if _, err := d.file.Write(page); err != nil {
			return fmt.Errorf("write a page: %w", err)
		}
		if err := d.file.Sync(); err != nil {
			return fmt.Errorf("fsync: %w", err)
		}
		into.fsync.add(d.clock.now() - at)
	}
	return nil
}
