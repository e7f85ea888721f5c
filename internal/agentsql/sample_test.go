package agentsql_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"hob/internal/agentsql"
	"hob/internal/pgtest"
)

func TestSeed_MakesTheSameShopOnBothEngines(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		schema := map[string]string{"sqlite": "main", "postgres": agentsql.SampleSchema}[e.name]
		e.grant = agentsql.Grant{schema: agentsql.SampleTables()}
		for sql, want := range map[string]string{
			"SELECT count(*) AS n FROM orders WHERE status = 'open'": `[{"n":` + strconv.Itoa(agentsql.SampleOpenOrders) + `}]`,
			"SELECT count(*) AS n FROM customers":                    `[{"n":20}]`,
			"SELECT count(*) AS n FROM products":                     `[{"n":12}]`,
			"SELECT count(*) AS n FROM orders":                       `[{"n":60}]`,
			"SELECT count(*) AS n FROM order_items":                  `[{"n":120}]`,
			"SELECT count(DISTINCT status) AS n FROM orders":         `[{"n":4}]`,
			"SELECT count(*) AS n FROM order_items i JOIN orders o ON o.id = i.order_id JOIN products p ON p.id = i.product_id":            `[{"n":120}]`,
			"SELECT name, email, created_on FROM customers WHERE id = 1":                                                                   `[{"name":"Ada Brandt","email":"ada.brandt@example.com","created_on":"2024-09-03"}]`,
			"SELECT count(*) AS n FROM customers c WHERE c.created_on > (SELECT min(ordered_on) FROM orders o WHERE o.customer_id = c.id)": `[{"n":0}]`,
		} {
			if rows, err := e.query(t.Context(), sql); err != nil || string(rows.JSON) != want {
				t.Errorf("%s: %s, %v, want %s", sql, rows.JSON, err, want)
			}
		}
		d, err := e.db.Describe(t.Context(), e.grant)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(d.Text(), "REFERENCES"); got != 3 {
			t.Errorf("%d foreign keys, want 3:\n%s", got, d.Text())
		}
	})
}

func TestSeedSQLite_KeepsAnExistingFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "project.db")
	if err := os.WriteFile(path, []byte("not even a database"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := agentsql.SeedSQLite(path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "not even a database" {
		t.Errorf("file holds %q, %v", got, err)
	}
	if _, err := agentsql.OpenSQLite(path, agentsql.Options{}); err == nil {
		t.Error("a file that is no database was opened")
	}
}

func TestSeedSQLite_IsPrivateDeterministicAndWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "project.db")
	var wg sync.WaitGroup
	for range 4 { // several starts at once
		wg.Go(func() {
			if err := agentsql.SeedSQLite(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v, want 0600", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("folder holds %v, %v, want the file alone", left, err)
	}
	again := filepath.Join(t.TempDir(), "project.db")
	if err := agentsql.SeedSQLite(again); err != nil {
		t.Fatal(err)
	}
	if digest(t, path) != digest(t, again) {
		t.Error("two samples differ")
	}
}

func digest(t *testing.T, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

func TestSeedPostgres_KeepsAnExistingSchema(t *testing.T) {
	t.Parallel()
	where := pgtest.URL(t)
	writePostgres(t, where, "CREATE SCHEMA hob_demo; CREATE TABLE hob_demo.mine (a int)")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := agentsql.SeedPostgres(t.Context(), where); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := scanAll(t, where, "SELECT relname::text FROM pg_class WHERE relnamespace = 'hob_demo'::regnamespace"); len(got) != 1 || got[0] != "mine" {
		t.Errorf("schema holds %q, want mine alone", got)
	}
}
