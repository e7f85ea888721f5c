package agentsql

import (
	"context"
	"encoding/json"
	"errors"

	"hob"
)

// Tool is a DB as the builtin database_query wants it: plain types, and errors
// of the root package whose messages may be shown.
type Tool struct {
	DB     DB
	Limits Limits // zero: the defaults
}

// CheckGrant reads an assignment's `schemas`. Its errors are hob.Invalid.
func (t Tool) CheckGrant(raw json.RawMessage) (map[string][]string, error) {
	g, err := ParseGrant(raw)
	return g, rootError(err)
}

// Describe returns a text with the columns of the granted tables, and how many
// of the tables can be read.
func (t Tool) Describe(ctx context.Context, grant map[string][]string) (string, int, error) {
	d, err := t.DB.Describe(ctx, grant)
	if err != nil {
		return "", 0, rootError(err)
	}
	return d.Text(), len(d.Tables), nil
}

// Query runs one reading statement. rows is a JSON array of objects.
func (t Tool) Query(ctx context.Context, agent hob.AgentID, grant map[string][]string, sql string) (json.RawMessage, bool, error) {
	rows, err := t.DB.Query(ctx, Query{Grant: grant, SQL: sql, Agent: string(agent), Limits: t.Limits})
	if err != nil {
		return nil, false, rootError(err)
	}
	return rows.JSON, rows.Truncated, nil
}

// rootError keeps the message for the model and the cause for the log.
func rootError(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &hob.Error{Kind: hob.Internal, Code: "database", Message: "The project database could not answer", Err: err}
	}
	kinds := map[Kind]hob.Kind{
		Refused: hob.Forbidden, Invalid: hob.Invalid, Failed: hob.Invalid, Timeout: hob.Unavailable,
		TooLarge: hob.TooLarge, Busy: hob.RateLimited, Unavailable: hob.Unavailable,
	}
	return &hob.Error{Kind: kinds[e.Kind], Code: "database_" + string(e.Kind), Message: e.Message, Err: e.Cause()}
}
