package agentsql

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hob/internal/pgtest"
)

// Looking makes no roles; what a query makes stays.
func TestCheck_LeavesNoRoles(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	opened, err := OpenPostgres(t.Context(), url, Options{Secret: []byte("sixteen bytes or more of a secret"), AllowPowerfulRole: true})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	d, ok := opened.(*postgresDB)
	if !ok {
		t.Fatalf("the database is a %T", opened)
	}
	roles := func(g Grant) (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer drop(conn)
		reader, checker := d.roleNames(g)
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_roles WHERE rolname IN ($1, $2)", reader, checker).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Cleanup(func() { // roles belong to the cluster
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer drop(conn)
		reader, checker := d.roleNames(Grant{})
		if _, err := conn.Exec(ctx, "DROP OWNED BY "+reader+", "+checker+"; DROP ROLE "+reader+", "+checker); err != nil {
			t.Error(err)
		}
	})
	for _, f := range opened.Check(t.Context()) {
		if f.Level == Fault && !strings.Contains(f.Text, "superuser") {
			t.Errorf("a fault on a good server: %s", f.Text)
		}
	}
	if n := roles(Grant{}); n != 0 {
		t.Errorf("looking left %d roles", n)
	}
	if len(d.logins) != 0 {
		t.Errorf("looking left %d logins", len(d.logins))
	}
	if _, err := opened.Query(t.Context(), Query{Grant: Grant{}, SQL: "SELECT 1"}); err != nil {
		t.Fatal(err)
	}
	opened.Check(t.Context())
	if n := roles(Grant{}); n != 2 {
		t.Errorf("behind a query there are %d of its 2 roles", n)
	}
}

func TestCheck_SaysThatTheServerCapsNoMemory(t *testing.T) {
	t.Parallel()
	db, err := OpenPostgres(t.Context(), pgtest.URL(t), Options{Secret: []byte("sixteen bytes or more of a secret"), AllowPowerfulRole: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, f := range db.Check(t.Context()) {
		if strings.Contains(f.Text, "MemoryMax=") && f.Level == OK {
			return
		}
	}
	t.Error("nothing tells it")
}
