package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"hob"
)

// Assigned is a tool that an agent has, and how it is configured there.
type Assigned struct {
	Agent  hob.AgentID
	Name   string // the agent's
	ID     hob.AssignmentID
	Tool   string
	Config json.RawMessage
}

// Assigned lists the tools of all agents of all workspaces, as they were at the dump's moment.
func (d *Dump) Assigned(ctx context.Context) ([]Assigned, error) {
	list, err := many(ctx, &d.link.tx, func(r row) (a Assigned, err error) {
		var config string
		err = r.Scan(&a.Agent, &a.Name, &a.ID, &a.Tool, &config)
		a.Config = json.RawMessage(config)
		return a, err
	}, `SELECT g.id, g.name, a.id, a.tool_name, a.config_override FROM assignments a JOIN agents g ON g.id = a.agent_id ORDER BY a.n`)
	return list, hob.Wrap("list the agents' tools", err)
}

// Schemas names the schemas of any Postgres database, Hob's or not.
func Schemas(ctx context.Context, dsn string) (_ []string, err error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the database address is not a valid postgres:// URL")
	}
	db := sql.OpenDB(&connector{cfg: cfg, clock: hob.SystemClock})
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.PingContext(ctx); err != nil {
		return nil, unreached(cfg, err)
	}
	list, err := many(ctx, &tx{q: rebinder{postgresDialect(), db}}, scanText, `SELECT CAST(nspname AS text) FROM pg_catalog.pg_namespace ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list the schemas: %w", err)
	}
	return list, nil
}
