package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"hob"
	"hob/internal/agentsql"
)

// projectDatabase lets the database tool reach agents' SQL: it turns the one's grants and errors into the other's.
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
func (p projectDatabase) Describe(ctx context.Context, grant map[string][]string) (string, int, error) {
	d, err := p.db.Describe(ctx, grant)
	if err != nil {
		return "", 0, p.told(ctx, err)
	}
	return d.Text(), len(d.Tables), nil
}

// Query runs one reading statement of an agent.
func (p projectDatabase) Query(ctx context.Context, agent hob.AgentID, grant map[string][]string, sql string) (json.RawMessage, bool, error) {
	rows, err := p.db.Query(ctx, agentsql.Query{Grant: grant, SQL: sql, Agent: string(agent)})
	if err != nil {
		return nil, false, p.told(ctx, err)
	}
	return rows.JSON, rows.Truncated, nil
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
	kind := hob.Invalid
	if e.Kind == agentsql.Unavailable || e.Kind == agentsql.Busy {
		kind = hob.Unavailable
	}
	return hob.Errorf(kind, "%s", e.Message)
}
