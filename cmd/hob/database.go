package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"hob"
	"hob/internal/agentsql"
	"hob/internal/builtin"
)

// What an assignment may ask for is what the database grants at most.
const (
	_ = uint(agentsql.MaxRows - builtin.MaxQueryRows)
	_ = uint(agentsql.MaxTimeout - builtin.MaxDatabaseTimeout)
	_ = uint(agentsql.MaxWriteRows - builtin.MaxAffectedRows)
)

// projectDatabase lets the database tools reach agents' SQL: it turns the one's grants and errors into the other's.
type projectDatabase struct {
	db  agentsql.DB
	log *slog.Logger
}

// CheckGrant reads an assignment's schemas.
func (p projectDatabase) CheckGrant(raw json.RawMessage) (map[string][]string, error) {
	g, err := agentsql.ParseGrant(raw)
	if err != nil {
		return nil, p.told(context.Background(), err)
	}
	return g, nil
}

// Describe writes the granted tables for a model.
func (p projectDatabase) Describe(ctx context.Context, grant map[string][]string) (string, []string, error) {
	d, err := p.db.Describe(ctx, grant)
	if err != nil {
		return "", nil, p.told(ctx, err)
	}
	return d.Text(), d.Missing, nil
}

// Query runs one reading statement of an agent.
func (p projectDatabase) Query(ctx context.Context, q builtin.DatabaseQuery) (json.RawMessage, bool, error) {
	rows, err := p.db.Query(ctx, agentsql.Query{
		Grant: q.Grant, SQL: q.SQL, Agent: string(q.Agent), Limits: agentsql.Limits{Rows: q.Rows, Timeout: q.Timeout},
	})
	if err != nil {
		return nil, false, p.told(ctx, err)
	}
	return rows.JSON, rows.Truncated, nil
}

// DescribeWrites writes the tables that may be changed for a model.
func (p projectDatabase) DescribeWrites(ctx context.Context, grant builtin.DatabaseGrant) (string, []string, error) {
	g := writeGrant(grant)
	d, err := p.db.DescribeWrites(ctx, g)
	if err != nil {
		return "", nil, p.told(ctx, err)
	}
	return d.WriteText(g), d.Missing, nil
}

// SideEffects tells what changes do beyond a grant.
func (p projectDatabase) SideEffects(ctx context.Context, grant builtin.DatabaseGrant) ([]string, error) {
	effects, err := p.db.SideEffects(ctx, writeGrant(grant))
	if err != nil {
		return nil, p.told(ctx, err)
	}
	return effects, nil
}

// Write carries out a change of an agent.
func (p projectDatabase) Write(ctx context.Context, c builtin.DatabaseChange) (builtin.DatabaseWritten, error) {
	done, err := p.db.Write(ctx, write(c))
	if err != nil {
		return builtin.DatabaseWritten{}, p.told(ctx, err)
	}
	return builtin.DatabaseWritten(done), nil
}

// Preview tells what a change would do.
func (p projectDatabase) Preview(ctx context.Context, c builtin.DatabaseChange) (json.RawMessage, error) {
	preview, err := p.db.Preview(ctx, write(c))
	if err != nil {
		return nil, p.told(ctx, err)
	}
	text, err := json.Marshal(preview)
	if err != nil {
		return nil, fmt.Errorf("preview of %s: %w", c.Table, err)
	}
	return text, nil
}

func writeGrant(g builtin.DatabaseGrant) agentsql.WriteGrant {
	out := agentsql.WriteGrant{Tables: g.Tables, Columns: g.Columns, SideEffects: g.SideEffects}
	if g.Operations == nil {
		return out
	}
	out.Operations = map[string][]agentsql.Operation{}
	for table, verbs := range g.Operations {
		ops := make([]agentsql.Operation, len(verbs))
		for i, v := range verbs {
			ops[i] = agentsql.Operation(v)
		}
		out.Operations[table] = ops
	}
	return out
}

func write(c builtin.DatabaseChange) agentsql.Write {
	return agentsql.Write{
		Grant: writeGrant(c.Grant), Table: c.Table, Operation: agentsql.Operation(c.Operation), Data: c.Data, Where: c.Where,
		Returning: c.Returning, Key: c.Call.Key, Agent: string(c.Call.Agent), BeginBy: c.Call.BeginBy,
		Limits: agentsql.WriteLimits{Rows: c.Rows, Timeout: c.Timeout},
	}
}

// told turns an error of agents' SQL into one whose text the model may read. The cause, which may name what the model
// must not know, goes to the log.
func (p projectDatabase) told(ctx context.Context, err error) error {
	var e *agentsql.Error
	if !errors.As(err, &e) {
		return err
	}
	if cause := e.Cause(); cause != nil {
		p.log.LogAttrs(ctx, slog.LevelDebug, "a statement of an agent failed",
			slog.String("kind", string(e.Kind)), slog.String("error", cause.Error()))
	}
	switch e.Kind {
	case agentsql.Unavailable, agentsql.Busy:
		return hob.Errorf(hob.Unavailable, "%s", e.Message)
	case agentsql.OutcomeUnknown:
		return hob.Errorf(hob.Unavailable, "%s", e.Message).WithCode(builtin.CodeOutcomeUnknown)
	case agentsql.Refused, agentsql.Invalid, agentsql.Powerful:
		return hob.Errorf(hob.Invalid, "%s", e.Message).WithCode(builtin.CodeStatementRefused)
	default:
		return hob.Errorf(hob.Invalid, "%s", e.Message)
	}
}
