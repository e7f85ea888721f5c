package store_test

import (
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"hob"
	"hob/internal/store"
)

func TestDump_ListsTheToolsOfAllAgents(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		c.Box = box(t)
		db, err := store.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		by := hob.System(hob.DefaultWorkspace)
		a, err := db.CreateAgent(t.Context(), by, hob.Agent{Workspace: hob.DefaultWorkspace, Name: "shop", Model: "m", Settings: json.RawMessage(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		given, err := db.Assign(t.Context(), by, hob.Assignment{
			Agent: a.ID, Workspace: hob.DefaultWorkspace, ToolType: string(hob.BuiltinTool), ToolName: "database_query",
			ConfigOverride: json.RawMessage(`{"schemas":{"main":["orders"]}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		list, err := dump(t, c).Assigned(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		got := list[0]
		if got.Agent != a.ID || got.Name != "shop" || got.ID != given.ID || got.Tool != "database_query" || !strings.Contains(string(got.Config), `"orders"`) {
			t.Errorf("assigned: %+v", got)
		}
		if c.DSN == "" {
			return
		}
		schemas, err := store.Schemas(t.Context(), c.DSN)
		if err != nil || !slices.Contains(schemas, "hob") || !slices.Contains(schemas, "public") || slices.Contains(schemas, "main") {
			t.Errorf("schemas: %v, %v", schemas, err)
		}
		nowhere, err := url.Parse(c.DSN)
		if err != nil {
			t.Fatal(err)
		}
		nowhere.Path = "/nowhere"
		if _, err := store.Schemas(t.Context(), nowhere.String()); hob.KindOf(err) != hob.Unavailable || !strings.Contains(err.Error(), "refuses the connection: ") {
			t.Errorf("a database that is not there: %v", err)
		}
	})
}

func TestUnreached_SaysWhereAndWhyOnce(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	c := store.Config{DSN: "postgres://hob:hush@" + at + "/x?sslmode=disable", Box: box(t)}
	want := "cannot reach Postgres at " + at + " (connection refused)"
	_, opened := store.OpenDump(t.Context(), c)
	source := made(t, engines()["sqlite"], c.Box)
	d := dump(t, source)
	_, loaded := store.Load(t.Context(), c, store.Loading{Shape: d.Shape(), Chunks: d.Chunks(t.Context())})
	_, listed := store.Schemas(t.Context(), c.DSN)
	for name, err := range map[string]error{"a dump": opened, "a load": loaded, "a list": listed} {
		if hob.KindOf(err) != hob.Unavailable || err.Error() != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
