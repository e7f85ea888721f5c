package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hob/internal/agentsql"
	"hob/internal/store"
)

// bySchema are the agents' tools by the schemas in which they may read tables.
func bySchema(assigned []store.Assigned) map[string][]store.Assigned {
	granted := map[string][]store.Assigned{}
	for _, a := range assigned {
		var config struct {
			Schemas json.RawMessage `json:"schemas"`
		}
		if json.Unmarshal(a.Config, &config) != nil {
			continue
		}
		g, err := agentsql.ParseGrant(config.Schemas)
		if err != nil {
			continue // the API does not take such a grant, and the tool reads nothing by it
		}
		for schema := range g {
			granted[schema] = append(granted[schema], a)
		}
	}
	return granted
}

// warnOfGrants names the agents whose grants are about schemas that their new database does not have: it would answer them
// nothing. What is moved is moved, so a fault here is told and fails nothing.
func warnOfGrants(ctx context.Context, w world, project string, assigned []store.Assigned) error {
	granted := bySchema(assigned)
	if len(granted) == 0 {
		return nil
	}
	there, err := store.Schemas(ctx, project)
	if err != nil {
		_, err = fmt.Fprintf(w.stdout, "warning: it was not looked whether the schemas that agents may read are there: %s\n", plain(explain(err)))
		return err
	}
	var b strings.Builder
	at := store.Config{DSN: project}.Address()
	for _, schema := range slices.Sorted(maps.Keys(granted)) {
		if slices.Contains(there, schema) {
			continue
		}
		fmt.Fprintf(&b, "warning: %s has no schema %q, in which these may read tables:\n", plain(at), plain(schema))
		for _, a := range granted[schema] {
			fmt.Fprintf(&b, "  agent %s (%s), tool %s: PATCH /api/agents/%s/tools/%s\n", plain(a.Name), a.Agent, plain(a.Tool), a.Agent, a.ID)
		}
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "until then their queries find nothing: load the tables, and send each PATCH with the tool's whole configuration and the schema of now\n"+
			"  {\"config_override\":{\"schemas\":{\"SCHEMA\":[\"TABLE\"]}}}\n"+
			"(the sample shop of hob serve is the schema %s on Postgres, from the first start on)\n", agentsql.SampleSchema)
	}
	_, err = fmt.Fprint(w.stdout, b.String())
	return err
}
