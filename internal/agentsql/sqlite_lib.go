package agentsql

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteConn is a connection used for one statement and then closed, so that
// nothing an agent did can be seen by the next. Opening one costs a fraction of
// a millisecond.
//
// It binds the engine's own interface rather than the database/sql driver,
// since the walls need what the driver keeps to itself: the tail of a prepared
// text, sqlite3_stmt_readonly, a progress handler that may look at limits, and
// the length of a value before it is copied.
type sqliteConn struct {
	tls *libc.TLS
	db  uintptr

	// The engine holds these by address, which the collector does not see; they
	// live, and stay where they are, as long as the connection.
	authorize authorizeFunc
	progress  progressFunc
	temp      *tempFiles
}

// sqliteError is an engine's result code with its message.
type sqliteError struct {
	code int // extended
	text string
}

func (e *sqliteError) Error() string { return fmt.Sprintf("sqlite: %s (%d)", e.text, e.code) }

// primary is the result code without its extension.
func (e *sqliteError) primary() int { return e.code & 0xff }

// sqliteURI names a file by a URI, which alone makes the engine heed mode=ro.
func sqliteURI(path, mode string) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "mode=" + mode + "&cache=private"}
	return u.String()
}

// sqliteMode is what a connection is opened for.
type sqliteMode struct {
	uri   string
	flag  int32
	begin []string      // statements that end with the transaction begun
	wait  time.Duration // for a lock that another program holds
	temp  *tempFiles    // where what is sorted and grouped lies; nil: in memory
	// parameters and triggerDepth are limits of the engine.
	parameters, triggerDepth int32
}

// readMode is for agents' queries, writeMode for their changes: these come as
// data, are made into statements with parameters, and honour foreign keys.
func readMode() sqliteMode {
	return sqliteMode{
		uri: "ro", flag: sqlite3.SQLITE_OPEN_READONLY, triggerDepth: 1, wait: readWait,
		begin: []string{"PRAGMA query_only = 1", "BEGIN"},
	}
}

func writeMode() sqliteMode {
	return sqliteMode{
		uri: "rw", flag: sqlite3.SQLITE_OPEN_READWRITE, parameters: MaxWriteValues, triggerDepth: 32, wait: writeWait,
		begin: []string{"PRAGMA foreign_keys = 1", "PRAGMA synchronous = FULL", "BEGIN IMMEDIATE"},
	}
}

// How long locks of other programs are waited for.
const (
	readWait  = time.Second
	writeWait = 2 * time.Second
)

// openSQLiteConn opens a file read-only with every hardening switch set.
func openSQLiteConn(path string) (*sqliteConn, error) { return openSQLiteFor(path, readMode()) }

// openSQLiteFor opens a file, in a transaction of the mode.
func openSQLiteFor(path string, mode sqliteMode) (*sqliteConn, error) {
	c := &sqliteConn{tls: libc.NewTLS()}
	name, err := libc.CString(sqliteURI(path, mode.uri))
	if err != nil {
		c.tls.Close()
		return nil, fmt.Errorf("sqlite path: %w", err)
	}
	defer libc.Xfree(c.tls, name)
	out := c.tls.Alloc(8)
	defer c.tls.Free(8)
	flags := mode.flag | sqlite3.SQLITE_OPEN_URI | sqlite3.SQLITE_OPEN_NOMUTEX |
		sqlite3.SQLITE_OPEN_PRIVATECACHE | sqlite3.SQLITE_OPEN_EXRESCODE
	layer := uintptr(0) // the system's
	if c.temp = mode.temp; c.temp != nil {
		if layer, err = libc.CString(c.temp.name); err != nil {
			c.tls.Close()
			return nil, fmt.Errorf("sqlite files: %w", err)
		}
		defer libc.Xfree(c.tls, layer)
	}
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, out, flags, layer)
	c.db = libc.AtomicLoadPUintptr(out)
	if rc != sqlite3.SQLITE_OK {
		err := c.errorOf(rc)
		c.close()
		return nil, err
	}
	if err := c.harden(mode); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// sqliteLimits bound what one statement may build. Memory rests on the first:
// no value, built or read, is longer.
func sqliteLimits(mode sqliteMode) map[int32]int32 {
	return map[int32]int32{
		sqlite3.SQLITE_LIMIT_LENGTH:              maxSQLiteValue,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH:          MaxSQLBytes,
		sqlite3.SQLITE_LIMIT_EXPR_DEPTH:          200,
		sqlite3.SQLITE_LIMIT_COMPOUND_SELECT:     100,
		sqlite3.SQLITE_LIMIT_VDBE_OP:             50_000,
		sqlite3.SQLITE_LIMIT_FUNCTION_ARG:        40,
		sqlite3.SQLITE_LIMIT_ATTACHED:            0,
		sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
		sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER:     mode.parameters,
		sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH:       mode.triggerDepth,
		sqlite3.SQLITE_LIMIT_WORKER_THREADS:      0,
	}
}

// maxSQLiteValue is the longest text or blob a statement can read or build, in
// bytes. Some of the engine's functions take time proportional to the square
// of it without a chance to stop them.
const maxSQLiteValue = 256 << 10

func (c *sqliteConn) harden(mode sqliteMode) error {
	for _, s := range []struct{ op, on int32 }{
		{sqlite3.SQLITE_DBCONFIG_DEFENSIVE, 1},
		{sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
		{sqlite3.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
		{sqlite3.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
		{sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
		{sqlite3.SQLITE_DBCONFIG_DQS_DML, 0}, // "x" is a name, never a text
	} {
		if err := c.config(s.op, s.on); err != nil {
			return err
		}
	}
	// The schema is read before the length limit: a long CREATE TABLE is no
	// agent's doing.
	temp := "MEMORY"
	if c.temp != nil {
		temp = "FILE"
	}
	settings := append([]string{
		// The first: all others may meet a lock.
		fmt.Sprintf("PRAGMA busy_timeout = %d", mode.wait.Milliseconds()),
		"PRAGMA temp_store = " + temp, "PRAGMA cache_size = -1024", "PRAGMA mmap_size = 0", "PRAGMA cell_size_check = 1",
	}, mode.begin...)
	// A snapshot: what is checked is what runs.
	for _, pragma := range append(settings, "SELECT count(*) FROM sqlite_schema") {
		if err := c.run(pragma); err != nil {
			return err
		}
	}
	for id, v := range sqliteLimits(mode) {
		sqlite3.Xsqlite3_limit(c.tls, c.db, id, v)
	}
	return nil
}

// config sets a switch and verifies it.
func (c *sqliteConn) config(op, on int32) error {
	args := c.tls.Alloc(16)
	defer c.tls.Free(16)
	state := c.tls.Alloc(8)
	defer c.tls.Free(8)
	rc := sqlite3.Xsqlite3_db_config(c.tls, c.db, op, libc.VaList(args, on, state))
	if rc != sqlite3.SQLITE_OK {
		return c.errorOf(rc)
	}
	if got := libc.AtomicLoadPInt32(state); got != on {
		return fmt.Errorf("sqlite: switch %d is %d, want %d", op, got, on)
	}
	return nil
}

// The engine's signatures of an authorizer and a progress handler.
type (
	authorizeFunc func(tls *libc.TLS, data uintptr, action int32, a, b, database, source uintptr) int32
	progressFunc  func(tls *libc.TLS, data uintptr) int32
)

// statementGuard judges statements while they are compiled and while they run.
type statementGuard interface {
	authorize(action int32, a, b, database string) bool
	goOn() bool
}

// guardWith makes g judge everything prepared from now on, and watch it run.
func (c *sqliteConn) guardWith(g statementGuard) error {
	c.authorize = func(_ *libc.TLS, _ uintptr, action int32, a, b, database, _ uintptr) int32 {
		if !g.authorize(action, cString(a), cString(b), cString(database)) {
			return sqlite3.SQLITE_DENY
		}
		return sqlite3.SQLITE_OK
	}
	c.progress = func(*libc.TLS, uintptr) int32 {
		if !g.goOn() {
			return 1
		}
		return 0
	}
	if rc := sqlite3.Xsqlite3_set_authorizer(c.tls, c.db, callback(&c.authorize), 0); rc != sqlite3.SQLITE_OK {
		return c.errorOf(rc)
	}
	sqlite3.Xsqlite3_progress_handler(c.tls, c.db, progressOps, callback(&c.progress), 0)
	return nil
}

// callback gives the address the engine calls *f by: that of the function's own
// data, which a Go function value is a pointer to.
func callback[F any](f *F) uintptr { return *(*uintptr)(unsafe.Pointer(f)) }

func cString(p uintptr) string {
	if p == 0 {
		return ""
	}
	return libc.GoString(p)
}

// sqliteStmt is a prepared statement.
type sqliteStmt struct {
	c *sqliteConn
	p uintptr
}

// prepare compiles the one statement of sql and returns what follows it.
func (c *sqliteConn) prepare(sql string) (*sqliteStmt, string, error) {
	text, err := libc.CString(sql)
	if err != nil {
		return nil, "", fmt.Errorf("sqlite: %w", err)
	}
	defer libc.Xfree(c.tls, text)
	out := c.tls.Alloc(16)
	defer c.tls.Free(16)
	rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(sql)+1), 0, out, out+8)
	if rc != sqlite3.SQLITE_OK {
		return nil, "", c.errorOf(rc)
	}
	tail := libc.AtomicLoadPUintptr(out + 8)
	s := &sqliteStmt{c: c, p: libc.AtomicLoadPUintptr(out)}
	return s, strings.Clone(sql[tail-text:]), nil
}

func (s *sqliteStmt) readOnly() bool { return sqlite3.Xsqlite3_stmt_readonly(s.c.tls, s.p) != 0 }
func (s *sqliteStmt) parameters() int {
	return int(sqlite3.Xsqlite3_bind_parameter_count(s.c.tls, s.p))
}

// step moves to the next row and reports whether there is one.
func (s *sqliteStmt) step() (bool, error) {
	switch rc := sqlite3.Xsqlite3_step(s.c.tls, s.p); rc {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.errorOf(rc)
	}
}

func (s *sqliteStmt) names() []string {
	names := make([]string, sqlite3.Xsqlite3_column_count(s.c.tls, s.p))
	for i := range names {
		names[i] = cString(sqlite3.Xsqlite3_column_name(s.c.tls, s.p, int32(i)))
	}
	return names
}

// value reads a column. Of a long text or blob only as much is copied as can
// be shown: limit characters.
func (s *sqliteStmt) value(column, limit int) value {
	tls, i := s.c.tls, int32(column)
	switch sqlite3.Xsqlite3_column_type(tls, s.p, i) {
	case sqlite3.SQLITE_NULL:
		return nullValue()
	case sqlite3.SQLITE_INTEGER:
		return rawValue(fmt.Sprint(sqlite3.Xsqlite3_column_int64(tls, s.p, i)))
	case sqlite3.SQLITE_FLOAT:
		return floatValue(sqlite3.Xsqlite3_column_double(tls, s.p, i))
	case sqlite3.SQLITE_BLOB:
		p := sqlite3.Xsqlite3_column_blob(tls, s.p, i)
		n := int(sqlite3.Xsqlite3_column_bytes(tls, s.p, i))
		return bytesValue(copyC(p, min(n, limit)), n)
	default:
		p := sqlite3.Xsqlite3_column_text(tls, s.p, i)
		n := int(sqlite3.Xsqlite3_column_bytes(tls, s.p, i))
		const widest = 4 // bytes of a character
		return value{text: string(copyC(p, min(n, widest*limit))), size: n}
	}
}

// text reads a column as text; for the package's own statements.
func (s *sqliteStmt) text(column int) string {
	p := sqlite3.Xsqlite3_column_text(s.c.tls, s.p, int32(column))
	return string(copyC(p, int(sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, int32(column)))))
}

func (s *sqliteStmt) int(column int) int64 {
	return sqlite3.Xsqlite3_column_int64(s.c.tls, s.p, int32(column))
}

func copyC(p uintptr, n int) []byte {
	if p == 0 || n == 0 {
		return nil
	}
	return libc.GoBytes(p, n)
}

func (s *sqliteStmt) close() {
	// The code repeats the last step's, which was reported already.
	sqlite3.Xsqlite3_finalize(s.c.tls, s.p)
}

// run executes one of the package's own statements.
func (c *sqliteConn) run(sql string) error {
	return c.each(sql, func(*sqliteStmt) {})
}

// each calls row for every row of one of the package's own statements.
func (c *sqliteConn) each(sql string, row func(*sqliteStmt)) error {
	s, _, err := c.prepare(sql)
	if err != nil {
		return err
	}
	defer s.close()
	for {
		more, err := s.step()
		if err != nil || !more {
			return err
		}
		row(s)
	}
}

func (c *sqliteConn) errorOf(rc int32) error {
	e := &sqliteError{code: int(rc)}
	if c.db != 0 {
		e.text = cString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))
	}
	return e
}

// close ends the connection; its transaction is rolled back with it.
func (c *sqliteConn) close() {
	if c.db != 0 {
		sqlite3.Xsqlite3_close_v2(c.tls, c.db)
	}
	runtime.KeepAlive(c) // and the callbacks with it, to the last call
	c.tls.Close()
}
