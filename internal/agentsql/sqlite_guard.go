package agentsql

import (
	"bytes"
	"context"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// progressOps is how many of the engine's operations pass between two looks at
// the limits: few, since each may build a value of maxSQLiteValue.
const progressOps = 40

// maxSQLiteMemory is how much memory outside Go's heap, in bytes, the process
// may gain while one statement runs. The engine was built without a counter of
// its own, so the process is measured; what several hostile statements take at
// once counts together.
const maxSQLiteMemory = 24 << 20

// memoryEvery is the least time between two measurements.
const memoryEvery = time.Millisecond

// sqliteGuard judges what a statement may reach while it is compiled, and when
// it has to stop.
type sqliteGuard struct {
	ctx     context.Context //nolint:containedctx // the one statement's own; SQLite asks by way of C
	tables  map[string]bool // granted and present, lower case
	defined map[string]bool // names of the statement's own table expressions

	memory  *memoryMeter
	next    time.Time // of the next measurement
	stopped string    // why goOn said no: "time" or "memory"
	denied  bool      // something was refused
}

// authorize is the default-deny policy for every action of a statement.
//
// A view is no door: the engine asks for the tables behind it as well, and they
// must be granted too. (The callback's last argument would name the view, but a
// table expression of the same name looks just alike.)
func (g *sqliteGuard) authorize(action int32, a, b, database string) bool {
	ok := false
	switch action {
	case sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE:
		ok = true
	case sqlite3.SQLITE_READ:
		ok = (database == "" || database == SQLiteSchema) && g.mayRead(a, b)
	case sqlite3.SQLITE_FUNCTION:
		ok = sqliteFunctions[strings.ToLower(b)]
	}
	if !ok {
		g.denied = true
	}
	return ok && g.goOn()
}

// mayRead knows granted tables, and the two table functions that read only
// their argument. A read of no column (count(*)) is reported by name alone,
// also for the statement's own table expressions; which table a name stands
// for there is decided by openedTables.
func (g *sqliteGuard) mayRead(table, column string) bool {
	name := strings.ToLower(table)
	return g.tables[name] || sqliteTableFunctions[name] || column == "" && (name == "" || g.defined[name])
}

// goOn reports whether the statement may run on.
func (g *sqliteGuard) goOn() bool {
	if g.ctx.Err() != nil {
		g.stopped = "time"
		return false
	}
	now := time.Now() //nolint:forbidigo // measures the statement
	if now.Before(g.next) {
		return true
	}
	g.next = now.Add(memoryEvery)
	if deadline, ok := g.ctx.Deadline(); ok && now.After(deadline) {
		g.stopped = "time"
		return false
	}
	if g.memory.grown() > maxSQLiteMemory {
		g.stopped = "memory"
		return false
	}
	return true
}

// sqliteTableFunctions are table-valued functions without an effect or a view
// of anything but their argument.
var sqliteTableFunctions = wordSet(`json_each json_tree`)

// sqliteFunctions are the functions a statement may call: free of side effects,
// telling nothing of the file, the server or the connection, and linear in the
// size of their arguments, or nearly so. LIKE, GLOB, -> and ->> come as
// functions as well.
var sqliteFunctions = wordSet(`
	-> ->> abs acos acosh asin asinh atan atan2 atanh ceil ceiling char coalesce concat concat_ws cos cosh
	current_date current_time current_timestamp date datetime degrees exp floor format glob hex if ifnull iif
	instr julianday length like likelihood likely ln log log10 log2 lower ltrim max min mod nullif octet_length pi pow
	power printf quote radians random replace round rtrim sign sin sinh sqrt strftime substr substring tan
	tanh time timediff trim trunc typeof unicode unixepoch unlikely upper
	avg count group_concat string_agg sum total
	cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
	json json_array json_array_length json_error_position json_extract json_group_array json_group_object
	json_object json_quote json_type json_valid`)

// maxFunctionCost bounds the functions and concatenations in one compiled
// program, which may all run, and all keep a result of maxSQLiteValue, between
// two looks at the limits.
const maxFunctionCost = 10_000

// copyCost is the share of one copied value (a result column that repeats a
// computed one), columnCost that of one read from a row.
const (
	copyCost   = 60
	columnCost = 45
)

// functionCost is the time in milliseconds, on a machine of two cores, of one
// call with the worst arguments of maxSQLiteValue; for quick functions it is
// the share of memory that counts.
func functionCost(name string) int {
	switch name {
	case "instr", "replace", "trim", "ltrim", "rtrim": // length × length
		return 650
	case "like", "glob": // length × pattern
		return 100
	}
	return 80
}

// memoryMeter measures the process's resident memory less what belongs to Go's
// heap. Where /proc is absent it reads 0 and only the engine's own limits hold;
// see Check.
type memoryMeter struct {
	statm   *os.File
	samples []metrics.Sample
	base    int64
	buf     [128]byte
}

func newMemoryMeter() *memoryMeter {
	m := &memoryMeter{samples: []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}}
	// Without the file the meter reads 0, as documented.
	m.statm, _ = os.Open("/proc/self/statm")
	m.base = m.outside()
	return m
}

func (m *memoryMeter) works() bool { return m.statm != nil }

func (m *memoryMeter) close() {
	if m.statm != nil {
		m.statm.Close()
	}
}

// grown is the gain since the meter was made, in bytes.
func (m *memoryMeter) grown() int64 { return m.outside() - m.base }

func (m *memoryMeter) outside() int64 {
	if m.statm == nil {
		return 0
	}
	n, _ := m.statm.ReadAt(m.buf[:], 0) // io.EOF after the one short line
	fields := bytes.Fields(m.buf[:n])
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	metrics.Read(m.samples)
	heap := m.samples[0].Value.Uint64() - m.samples[1].Value.Uint64()
	return pages*int64(os.Getpagesize()) - int64(heap)
}
