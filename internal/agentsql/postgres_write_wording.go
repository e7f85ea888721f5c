package agentsql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// wording turns an error into one the model may read.
func (r *postgresWrite) wording(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if errors.Is(err, errRelation) {
		return errNoTable(r.w.Table, slices.DeleteFunc(r.w.Grant.Tables.clean().names(), func(n string) bool { return n == r.table }))
	}
	e := pgError(err)
	switch {
	case r.ctx != nil && r.ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), e != nil && e.Code == "57014":
		return timedOut(Limits{Timeout: r.w.Limits.Timeout}, err)
	case e == nil:
		return unavailable(err, "The project database cannot be reached")
	}
	said := func(kind Kind, format string, args ...any) error {
		return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), cause: err}
	}
	switch e.Code {
	case "55P03", "40001", "40P01":
		return said(Busy, "The rows are locked by another change; try again shortly")
	case "42501":
		if len(r.reach.runs) > 0 { // the change itself is within the grant, by what was checked before
			return said(Refused, "The change is not granted: what the database runs with it (%s) may not do its work with the agents' login; "+
				"the database's owner can make its function SECURITY DEFINER", strings.Join(r.reach.runs, ", "))
		}
		return said(Refused, "The change is not granted")
	case "25006":
		return said(Unavailable, "The project database takes no changes now")
	case "23503":
		return said(Failed, "A foreign key forbids the change: a row that it refers to is missing, or other rows refer to the changed ones")
	}
	if e.TableName != "" && e.SchemaName+"."+e.TableName != r.table && !slices.Contains(r.w.Grant.Tables.clean().names(), e.SchemaName+"."+e.TableName) ||
		r.reach.beyond() {
		return said(Failed, "A constraint or trigger of the database forbids the change")
	}
	return r.plain(e, said)
}

// plain words errors about the change's own table and values.
func (r *postgresWrite) plain(e *pgconn.PgError, said func(Kind, string, ...any) error) error {
	switch e.Code {
	case "23505":
		return said(Failed, "A row with the same value exists already (unique constraint %s)", short(e.ConstraintName))
	case "23502":
		return said(Failed, "Column '%s' must have a value", short(e.ColumnName))
	case "23514":
		return said(Failed, "A value breaks the check constraint %s", short(e.ConstraintName))
	case "23P01":
		return said(Failed, "The row conflicts with another one (exclusion constraint %s)", short(e.ConstraintName))
	case "428C9":
		return said(Invalid, "A column that the database numbers itself cannot be written")
	case "42883":
		return said(Invalid, "A column of the where cannot be compared")
	case "42804", "42846":
		return said(Invalid, "A value does not fit its column's type")
	}
	if strings.HasPrefix(e.Code, "22") { // about the given values
		return said(Invalid, "%s", short200(e.Message))
	}
	return said(Failed, "The database could not make the change")
}
