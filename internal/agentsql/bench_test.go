package agentsql_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const benchStatement = "SELECT o.status, count(*) AS n, sum(i.quantity * i.unit_cents) AS cents FROM orders o " +
	"JOIN order_items i ON i.order_id = o.id WHERE o.id > 5 GROUP BY o.status ORDER BY o.status"

// report gives the 50th and 99th percentile in milliseconds.
func report(b *testing.B, name string, times []time.Duration) {
	slices.Sort(times)
	at := func(p int) float64 { return float64(times[(len(times)-1)*p/100].Microseconds()) / 1000 }
	b.ReportMetric(at(50), name+"-p50-ms")
	b.ReportMetric(at(99), name+"-p99-ms")
}

// BenchmarkQuery measures a statement with the guard and, on a plain
// connection, without it; the difference of two that follow each other is the
// guard's price, which shall be at most 5 ms in 99 of 100.
func BenchmarkQuery(b *testing.B) {
	for _, open := range []func(testing.TB) engine{sqliteEngine, postgresEngine} {
		e := open(b)
		b.Run(e.name, func(b *testing.B) {
			plain := plainQuery(b, e)
			if _, err := e.query(b.Context(), benchStatement); err != nil {
				b.Fatal(err)
			}
			guarded, bare := make([]time.Duration, 0, b.N), make([]time.Duration, 0, b.N)
			for b.Loop() {
				start := time.Now()
				if _, err := e.query(b.Context(), benchStatement); err != nil {
					b.Fatal(err)
				}
				guarded = append(guarded, time.Since(start))
				start = time.Now()
				plain()
				bare = append(bare, time.Since(start))
			}
			price := make([]time.Duration, len(guarded))
			for i := range price {
				price[i] = max(guarded[i]-bare[i], 0)
			}
			report(b, "guard", price)
			report(b, "guarded", guarded)
			report(b, "plain", bare)
		})
	}
}

// BenchmarkWrite measures a change of one row with its marker, each a
// transaction of its own.
func BenchmarkWrite(b *testing.B) {
	for _, open := range []func(testing.TB) engine{sqliteEngine, postgresEngine} {
		d := newDesk(b, open(b))
		b.Run(d.name, func(b *testing.B) {
			w := d.write("update notes", `{"stars":3}`, `{"body":"first"}`)
			times := make([]time.Duration, 0, b.N)
			for i := 0; b.Loop(); i++ {
				w.Key = fmt.Sprint("bench ", i, " of ", b.N)
				start := time.Now()
				if _, err := d.db.Write(b.Context(), w); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
			}
			report(b, "write", times)
		})
	}
}

// plainQuery returns a function that runs the statement without a guard.
func plainQuery(b *testing.B, e engine) func() {
	if e.name == "sqlite" {
		u := url.URL{Scheme: "file", OmitHost: true, Path: e.where}
		db, err := sql.Open("sqlite", u.String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { db.Close() })
		return func() {
			rows, err := db.QueryContext(b.Context(), benchStatement)
			if err != nil {
				b.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
			}
			if err := rows.Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	conn, err := pgx.Connect(b.Context(), e.where)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(b.Context()) })
	if _, err := conn.Exec(b.Context(), "SET search_path = hob_demo"); err != nil {
		b.Fatal(err)
	}
	return func() {
		rows, err := conn.Query(b.Context(), benchStatement)
		if err != nil {
			b.Fatal(err)
		}
		rows.Close()
	}
}
