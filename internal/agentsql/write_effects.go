package agentsql

import (
	"fmt"
	"slices"
	"strings"
)

// relations are what makes a change of one table go on into others. Tables are
// named schema.table; on SQLite in lower case.
type relations struct {
	keys     []foreignKey
	triggers []trigger
	// parts are the partitions of a table, theirs included.
	parts map[string][]string
}

// foreignKey refers from child to parent.
type foreignKey struct {
	name          string
	child, parent string
	// childColumns and parentColumns pair up; no parentColumns: those of the
	// parent's primary key.
	childColumns, parentColumns []string
	onDelete, onUpdate          action
}

// action is what a foreign key does to the child's rows.
type action string

// The actions that change rows.
const (
	noAction action = ""
	cascade  action = "cascade"
	setNull  action = "set null" // or to the default
)

// trigger is a trigger, or whatever else runs of itself when rows change.
type trigger struct {
	what  string // trigger, rule …
	name  string
	table string
	ops   []Operation
}

// reach is where a change goes.
type reach struct {
	// tables are those whose rows it changes, by verb, the first included.
	tables map[Operation]map[string]bool
	// related are the tables that its foreign keys look into.
	related map[string]bool
	// outside tells what of it the grant does not cover, for an operator.
	outside []string
	// open: a trigger or rule may do anything; runs names those of granted tables.
	open bool
	runs []string
}

// beyond reports whether rows of other tables may change, too.
func (r reach) beyond() bool {
	n := 0
	for _, tables := range r.tables {
		n += len(tables)
	}
	return r.open || n > 1
}

// reach follows a change of a table. columns are those an update writes; nil
// stands for all.
func (r relations) reach(g WriteGrant, table string, op Operation, columns []string) reach {
	out := reach{tables: map[Operation]map[string]bool{}, related: map[string]bool{}}
	granted := map[string]bool{}
	for _, name := range g.Tables.clean().names() {
		for _, verb := range Operations() {
			if g.may(name, verb) {
				granted[string(verb)+" "+r.spelled(name)] = true
			}
		}
	}
	f := follower{relations: r, granted: granted, all: map[string]bool{}, out: &out}
	f.follow(r.spelled(table), op, columns)
	slices.Sort(out.outside)
	out.outside = slices.Compact(out.outside)
	return out
}

// spelled is a table's name as the relations have it.
func (r relations) spelled(table string) string {
	if strings.HasPrefix(table, SQLiteSchema+".") {
		return strings.ToLower(table)
	}
	return table
}

type follower struct {
	relations

	granted map[string]bool // "verb table"
	all     map[string]bool // tables followed for an update of all columns
	out     *reach
}

func (f follower) follow(table string, op Operation, columns []string) {
	if f.out.tables[op] == nil {
		f.out.tables[op] = map[string]bool{}
	}
	if f.out.tables[op][table] {
		if op != Update || columns == nil {
			return
		}
		columns = nil // met again by other columns: once more, for all of them
		if f.all[table] {
			return
		}
	}
	if op == Update && columns == nil {
		f.all[table] = true
	}
	f.out.tables[op][table] = true
	here := append([]string{table}, f.parts[table]...)
	for _, t := range f.triggers {
		if slices.Contains(here, t.table) && slices.Contains(t.ops, op) {
			f.out.open = true
			if f.granted[string(op)+" "+table] {
				f.out.runs = append(f.out.runs, t.what+" "+short(t.name))
			}
			f.out.outside = append(f.out.outside, fmt.Sprintf("%s on %s runs %s %q", op, table, t.what, t.name))
		}
	}
	for _, k := range f.keys {
		if slices.Contains(here, k.child) {
			f.out.related[k.parent] = true
		}
		if !slices.Contains(here, k.parent) {
			continue
		}
		f.out.related[k.child] = true
		switch op {
		case Insert:
		case Update:
			if k.onUpdate != noAction && k.touched(columns) {
				f.child(table, op, k, Update)
			}
		case Delete:
			switch k.onDelete {
			case cascade:
				f.child(table, op, k, Delete)
			case setNull:
				f.child(table, op, k, Update)
			case noAction:
			}
		}
	}
}

// child goes on to the rows that refer to changed ones.
func (f follower) child(table string, op Operation, k foreignKey, verb Operation) {
	if !f.granted[string(verb)+" "+k.child] {
		f.out.outside = append(f.out.outside, fmt.Sprintf("%s on %s goes on to %s rows of %s (foreign key %s)", op, table, verb, k.child, k.name))
	}
	f.follow(k.child, verb, k.childColumns)
}

// touched reports whether an update of columns may change what is referred to.
func (k foreignKey) touched(columns []string) bool {
	if columns == nil || len(k.parentColumns) == 0 {
		return true
	}
	return slices.ContainsFunc(k.parentColumns, func(p string) bool {
		return slices.ContainsFunc(columns, func(c string) bool { return strings.EqualFold(p, c) })
	})
}

// sideEffects tells what every change that a grant allows may do beyond it.
func (r relations) sideEffects(g WriteGrant) []string {
	var all []string
	for _, table := range g.Tables.clean().names() {
		for _, op := range g.verbs(table) {
			all = append(all, r.reach(g, table, op, g.Columns[table]).outside...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
