package api

import "github.com/google/jsonschema-go/jsonschema"

// overrideKeys are the keys of config_override that are no arguments of a tool, in the order in which they are shown. A tool
// that has none of a key's name says so in the warnings.
func overrideKeys() (order []string, keys map[string]*jsonschema.Schema) {
	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	texts := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "array", Items: text()} }
	object := func() *jsonschema.Schema {
		return &jsonschema.Schema{Types: []string{"null", "object"}, AdditionalProperties: texts()}
	}
	typed := func(name string) *jsonschema.Schema { return &jsonschema.Schema{Type: name} }
	keys = map[string]*jsonschema.Schema{}
	for _, k := range []struct {
		name, description string
		schema            *jsonschema.Schema
	}{
		{"schemas", `of the database tools: the tables they reach, as in {"main": ["orders"]}`, object()},
		{"operations", `of database_write: the verbs, for all tables as in ["insert"] or by table as in {"main.orders": ["update"]}`, &jsonschema.Schema{Types: []string{"array", "object"}}},
		{"columns", `of database_write: the columns it may write, by table`, object()},
		{"max_rows", "of database_query: rows of a result", typed("integer")},
		{"max_rows_affected", "of database_write: rows that one change may affect", typed("integer")},
		{"confirm_side_effects", "of database_write: changes may go on beyond the grant", typed("boolean")},
		{"buckets", `of the storage tools: the buckets they reach, as in ["reports"], or the beginnings of names by bucket as in {"reports": ["2026/"]}`, &jsonschema.Schema{Types: []string{"array", "object"}}},
		{"languages", `of code_execute: python, javascript or both`, texts()},
		{"allowed_hosts", "of tools that reach the network: the hosts they may call, at least one; the public internet where absent", texts()},
		{"methods", "of http_request: the methods it may use", texts()},
		{"timeout_seconds", "of the database tools, http_request and custom tools: time of one call", typed("number")},
		{"max_chars", "of tools that reach the network: characters of an answer that are shown", typed("integer")},
		{"max_calls_per_run", "of tools that reach the network", typed("integer")},
		{"recovery", "of http_request: read, keyed or once", text()},
		{"result", "of http_request: body, or full for status and headers as well", text()},
		{"allowed_domains", "of web_browsing: nothing else is found", texts()},
		{"blocked_domains", "of web_browsing: not found; not beside allowed_domains", texts()},
		{"max_uses", "of web_browsing: searches for one answer of the model", typed("integer")},
	} {
		k.schema.Description = k.description
		order, keys[k.name] = append(order, k.name), k.schema
	}
	return order, keys
}
