package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dialect is how one database differs from the other. Statements are written once, with ? for arguments and with these
// words: {now} the database's clock in µs, {like} LIKE in any case, {skip} what keeps a claim from waiting for another,
// {keep} what keeps rows from being deleted before the transaction ends, {hold} what keeps them from being changed by others
// as well.
type dialect struct {
	name     string
	types    *strings.Replacer // the words of migrations
	words    *strings.Replacer // the words of statements
	numbered bool              // $1 for ?
	settle   string            // waits for the writers of sessions and keeps new ones out until the transaction ends
	alone    string            // keeps others with the same text out until the transaction ends; "" where it is alone anyway

	// whole: a read that was begun is finished although its caller left. Watching for that costs the SQLite driver a
	// goroutine per statement, which is more than a look-up itself.
	whole bool

	strict bool // texts with NUL or of invalid UTF-8 are refused

	conflict func(error) bool // a unique value is there already
	again    func(error) bool // the transaction certainly did not happen and may work when tried again
	lock     []string         // what a migration begins with, so that it is alone

	snapshot string // begins a transaction that reads one moment
	begin    string // begins one that loads a dump
	migrated string // counts the table of migrations: 0 or 1
	columns  string // names and types of a table's columns, in order; none where it is not there
	// exclusive locks tables against everybody, where the transaction does not by itself.
	exclusive string
	numbers   string // the sequence behind a table's column n; empty where the database needs none

	texts sync.Map // statement → its text in this dialect
}

// rebind gives a statement in this dialect's own words. The statements are few and fixed, so each is made once.
func (d *dialect) rebind(query string) string {
	if text, ok := d.texts.Load(query); ok {
		return text.(string)
	}
	text := d.words.Replace(query)
	if d.numbered {
		text = number(text)
	}
	d.texts.Store(query, text)
	return text
}

// number replaces each ? by $1, $2 …; no literal of ours holds a ?.
func number(query string) string {
	var b strings.Builder
	n := 0
	for {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// engine is an opened database.
type engine struct {
	reads querier
	write writeFunc
	ping  func(context.Context) error
	close func() error
	// migrate runs fn in one transaction that no other process migrates beside.
	migrate func(ctx context.Context, fn func(context.Context, *tx) error) error
	stats   func() Stats
	news    *news
	bound   time.Duration // of one statement that reads; 0 = none
}

// writeFunc runs fn in a transaction and returns when it is durable, or with fn's error when nothing was written. fn may
// run more than once and must give the same each time; it uses the context it is given, not its caller's. Once begun, a
// write is not cancelled by ctx.
type writeFunc func(ctx context.Context, fn func(context.Context, *tx) error) error

// querier runs statements written in the common words.
type querier interface {
	exec(ctx context.Context, query string, args []any) (sql.Result, error)
	query(ctx context.Context, query string, args []any) (*sql.Rows, error)
	define(ctx context.Context, stmt string) error
}
