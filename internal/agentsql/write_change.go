package agentsql

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// targetTable is the table of a change as the catalogue has it.
type targetTable struct {
	schema, name string
	columns      []targetColumn
	// only keeps a statement from tables that inherit from this one.
	only bool
}

func (t targetTable) full() string { return t.schema + "." + t.name }

// targetColumn is a column of such a table.
type targetColumn struct {
	name string
	typ  string // as the catalogue writes it
	key  bool   // of the primary key
	auto bool   // the database numbers it: serial, identity, SQLite's rowid
	// computed columns cannot be written.
	computed bool
	kind     columnKind
	element  columnKind // of an array
}

// columnKind is how JSON values go into a column.
type columnKind int

const (
	plainColumn   columnKind = iota // text that the engine reads by the column's type
	jsonColumn                      // any JSON value as it is
	arrayColumn                     // a JSON array of elements
	integerColumn                   // SQLite only: whole numbers
	realColumn                      // SQLite only: numbers
	textColumn                      // SQLite only: text, which may hold JSON
	blobColumn                      // SQLite only: as text, or \x and hexadecimal digits
)

// change is a Write whose names were found in the catalogue.
type change struct {
	op        Operation
	table     targetTable
	columns   []targetColumn // of rows
	rows      [][]param      // of an insert; the one of an update
	where     []condition
	returning []targetColumn
}

// condition is one column's part of a where.
type condition struct {
	column targetColumn
	values []param
	null   bool // NULL matches, too
}

// param is a value bound to a statement.
type param struct {
	kind paramKind
	text string // of textParam and blobParam
	i    int64
	f    float64
}

type paramKind int

const (
	nullParam paramKind = iota
	textParam
	intParam
	floatParam
	blobParam
)

// resolveTable finds the table that a write names among the granted ones.
func (w Write) resolveTable() (string, error) {
	if !slices.Contains(Operations(), w.Operation) {
		return "", invalid("Invalid operation: '%s'. Use insert, update or delete.", short(string(w.Operation)))
	}
	schema, name, qualified := strings.Cut(w.Table, ".")
	if !qualified {
		schema, name = "", w.Table
	}
	if qualified && !identifier(schema) || !identifier(name) {
		return "", invalid("Invalid identifier: '%s'", short(w.Table))
	}
	names := w.Grant.Tables.clean().names()
	var found []string
	for _, full := range names {
		s, n, _ := strings.Cut(full, ".")
		if n == name && (!qualified || s == schema) {
			found = append(found, full)
		}
	}
	switch len(found) {
	case 0:
		return "", errNoTable(w.Table, names)
	case 1:
	default:
		return "", invalid("Table '%s' is ambiguous. Use one of: %s", w.Table, strings.Join(found, ", "))
	}
	if !w.Grant.may(found[0], w.Operation) {
		var verbs []string
		for _, op := range w.Grant.verbs(found[0]) {
			verbs = append(verbs, string(op))
		}
		if len(verbs) == 0 {
			verbs = []string{"none"}
		}
		return "", refuse("Table '%s' does not allow %s. Allowed operations: %s", found[0], w.Operation, strings.Join(verbs, ", "))
	}
	return found[0], nil
}

func errNoTable(name string, names []string) *Error {
	return refuse("Table '%s' not found. Available tables: %s", name, strings.Join(names, ", "))
}

// checkForm judges what needs no catalogue.
func (w Write) checkForm() error {
	if n := len(w.Data) + len(w.Where); n > MaxWriteBytes {
		return invalid("data and where are too long: %d bytes, at most %d", n, MaxWriteBytes)
	}
	data, where := !nothing(w.Data), !nothing(w.Where)
	switch w.Operation {
	case Insert:
		if !data {
			return invalid("INSERT requires non-empty data.")
		}
		if where {
			return invalid("INSERT takes no where.")
		}
	case Update:
		if !data {
			return invalid("UPDATE requires non-empty data.")
		}
		if d := bytes.TrimSpace(w.Data); d[0] == '[' {
			return invalid("UPDATE takes one object as data, not an array.")
		}
		if !where {
			return invalid("UPDATE requires non-empty where (mass updates not allowed).")
		}
	case Delete:
		if data {
			return invalid("DELETE takes no data.")
		}
		if !where {
			return invalid("DELETE requires non-empty where (mass deletes not allowed).")
		}
	}
	return nil
}

// nothing reports a value that is absent or has nothing in it.
func nothing(raw json.RawMessage) bool {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return len(bytes.TrimSpace(raw)) == 0 // what is no JSON is judged where it is read
	}
	switch compact.String() {
	case "", "null", "{}", "[]":
		return true
	}
	return false
}

// bind finds a write's columns in its table and turns its values into the
// dialect's.
func (w Write) bind(t targetTable, d dialect) (change, error) {
	b := binder{w: w, t: t, d: d}
	c := change{op: w.Operation, table: t}
	var err error
	if w.Operation != Delete {
		if c.columns, c.rows, err = b.rows(); err != nil {
			return c, err
		}
	}
	if w.Operation != Insert {
		if c.where, err = b.where(); err != nil {
			return c, err
		}
	}
	for _, name := range w.Returning {
		column, err := b.column(name)
		if err != nil {
			return c, err
		}
		c.returning = append(c.returning, column)
	}
	if n := c.values(); n > MaxWriteValues {
		return c, invalid("The change has %d values in one statement, at most %d are allowed", n, MaxWriteValues)
	}
	return c, nil
}

// values is how many parameters the change's largest statement has.
func (c change) values() int {
	n := len(c.columns)
	for _, w := range c.where {
		n += len(w.values)
	}
	return n
}

type binder struct {
	w Write
	t targetTable
	d dialect
}

func (b binder) column(name string) (targetColumn, error) {
	if !identifier(name) {
		return targetColumn{}, invalid("Invalid identifier: '%s'", short(name))
	}
	names := make([]string, len(b.t.columns))
	for i, c := range b.t.columns {
		if c.name == name {
			return c, nil
		}
		names[i] = c.name
	}
	return targetColumn{}, invalid("Column '%s' not found in table '%s'. Available columns: %s", name, b.t.full(), strings.Join(names, ", "))
}

// rows reads data: the columns of all rows, and their values.
func (b binder) rows() ([]targetColumn, [][]param, error) {
	var objects []json.RawMessage
	if raw := bytes.TrimSpace(b.w.Data); raw[0] != '[' {
		objects = append(objects, raw)
	} else if json.Unmarshal(raw, &objects) != nil {
		return nil, nil, invalid("data must be an object, or an array of objects.")
	}
	if len(objects) > b.w.Limits.Rows {
		return nil, nil, tooMany(b.w.Limits)
	}
	var names []string
	var columns []targetColumn
	rows := make([][]param, 0, len(objects))
	for i, raw := range objects {
		values, err := b.object(raw)
		if err != nil {
			return nil, nil, err
		}
		own := sortedNames(values)
		if i == 0 {
			names = own
			if columns, err = b.written(names); err != nil {
				return nil, nil, err
			}
		}
		if !slices.Equal(names, own) {
			return nil, nil, invalid("All rows must have the same columns.")
		}
		row := make([]param, len(columns))
		for j, c := range columns {
			if row[j], err = convert(b.d, c, values[c.name]); err != nil {
				return nil, nil, err
			}
		}
		rows = append(rows, row)
	}
	return columns, rows, nil
}

func sortedNames(values map[string]json.RawMessage) []string {
	names := make([]string, 0, len(values))
	for n := range values {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// object reads one row of data.
func (b binder) object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	members, err := objectMembers(raw)
	if err != nil {
		return nil, invalid("data must be an object, or an array of objects.")
	}
	if len(members) == 0 {
		return nil, invalid("%s requires non-empty data.", strings.ToUpper(string(b.w.Operation)))
	}
	values := make(map[string]json.RawMessage, len(members))
	for _, m := range members {
		if _, twice := values[m.name]; twice {
			return nil, invalid("Column '%s' is named twice", short(m.name))
		}
		values[m.name] = m.value
	}
	return values, nil
}

// written are the columns that data writes: an insert leaves those to the
// database that it numbers itself.
func (b binder) written(names []string) ([]targetColumn, error) {
	var columns []targetColumn
	for _, name := range names {
		c, err := b.column(name)
		if err != nil {
			return nil, err
		}
		switch {
		case c.auto && b.w.Operation == Insert:
			continue
		case c.computed:
			return nil, invalid("Column '%s' is computed and cannot be written", name)
		case !b.w.Grant.writable(b.t.full(), name):
			return nil, refuse("Column '%s' of table '%s' may not be written. Writable columns: %s",
				name, b.t.full(), strings.Join(sorted(b.w.Grant.Columns[b.t.full()]), ", "))
		}
		columns = append(columns, c)
	}
	if len(columns) == 0 {
		return nil, invalid("INSERT data has only auto-generated columns.")
	}
	return columns, nil
}

// where reads the conditions: a scalar is compared, null means IS NULL, an
// array is a choice of scalars.
func (b binder) where() ([]condition, error) {
	members, err := objectMembers(b.w.Where)
	if err != nil {
		return nil, invalid("where must be an object of columns and values.")
	}
	var all []condition
	for _, m := range members {
		c, err := b.column(m.name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o condition) bool { return o.column.name == m.name }) {
			return nil, invalid("Column '%s' is named twice", m.name)
		}
		var items []json.RawMessage
		if m.value[0] != '[' {
			items = append(items, m.value)
		} else if err := json.Unmarshal(m.value, &items); err != nil || len(items) == 0 {
			return nil, invalid("The condition on '%s' is empty", m.name)
		}
		one := condition{column: c}
		for _, item := range items {
			switch item[0] {
			case '{', '[':
				return nil, invalid("The condition on '%s' must be a text, a number, true, false, null or an array of these", m.name)
			case 'n':
				one.null = true
				continue
			}
			p, err := convert(b.d, c, item)
			if err != nil {
				return nil, err
			}
			one.values = append(one.values, p)
		}
		all = append(all, one)
	}
	return all, nil
}
