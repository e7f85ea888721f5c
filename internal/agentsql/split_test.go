package agentsql

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit_FindsTheEndAsTheEngineDoes(t *testing.T) {
	t.Parallel()
	both := []dialect{sqliteDialect, postgresDialect}
	pg, lite := both[1:], both[:1]
	for _, tc := range []struct {
		sql      string
		dialects []dialect
		body     string // "" = refused
	}{
		{"SELECT 1", both, "SELECT 1"},
		{"SELECT 1;", both, "SELECT 1"},
		{"SELECT 1 ; -- x", both, "SELECT 1 "},
		{"SELECT 1 /* ; */;\n/* y */ ", both, "SELECT 1 /* ; */"},
		{"SELECT ';' ; ", both, "SELECT ';' "},
		{`SELECT ";"`, both, `SELECT ";"`},
		{"SELECT 'it''s;'", both, "SELECT 'it''s;'"},
		{"SELECT 1;;", both, ""},
		{";", both, ""},
		{"SELECT 1; SELECT 2", both, ""},
		{"SELECT ';' || ';'; x", both, ""},
		{"SELECT '\\'; DELETE FROM t --'", both, ""},
		{"SELECT [a;b]", lite, "SELECT [a;b]"},
		{"SELECT `a;b`", lite, "SELECT `a;b`"},
		{"SELECT `a;b`", pg, ""},
		{"SELECT 1 /* open ; ", lite, "SELECT 1 /* open ; "},
		{"SELECT 1 /* open ; ", pg, ""},
		{"SELECT 1 /* a /* b */ ; */", lite, ""},
		{"SELECT 1 /* a /* b */ ; */", pg, "SELECT 1 /* a /* b */ ; */"},
		{"SELECT $$;$$", pg, "SELECT $$;$$"},
		{"SELECT $a$ $$;$b$; $a$;", pg, "SELECT $a$ $$;$b$; $a$"},
		{"SELECT a$$;$$", pg, ""}, // the dollars belong to the word
		{`SELECT E'\';'`, pg, `SELECT E'\';'`},
		{`SELECT E'\\'; SELECT 2`, pg, ""},
		{`SELECT U&';' , U&"a;b"`, pg, `SELECT U&';' , U&"a;b"`},
		{"SELECT B'1', X'f', N'x;'", pg, "SELECT B'1', X'f', N'x;'"},
		{"SELECT 1 -- a\r; SELECT 2", pg, ""},
		{"SELECT 1 -- a\r; SELECT 2", lite, "SELECT 1 -- a\r; SELECT 2"},
		{"SELECT 1e-1;", both, "SELECT 1e-1"},
		{"((SELECT 1))", both, "((SELECT 1))"},
		{"EXPLAIN SELECT 1;", pg, "SELECT 1"},
		{"EXPLAIN (VERBOSE, COSTS OFF) WITH x AS (SELECT 1) SELECT 1", pg, "WITH x AS (SELECT 1) SELECT 1"},
		{"EXPLAIN (SELECT 1)", pg, "(SELECT 1)"},
		{"EXPLAIN QUERY PLAN SELECT 1", lite, "EXPLAIN QUERY PLAN SELECT 1"},
		{"EXPLAIN", both, ""},
		{"EXPLAIN (", pg, ""},
		{"EXPLAIN (VERBOSE", pg, ""},
	} {
		for _, d := range tc.dialects {
			s, err := split(tc.sql, d, DefaultSQLBytes)
			if (err != nil) != (tc.body == "") || s.body != tc.body && err == nil {
				t.Errorf("%q (dialect %d): body %q, %v, want %q", tc.sql, d, s.body, err, tc.body)
			}
		}
	}
}

func TestUnicodeEscapes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`\0061b`: "ab", `\+000061b`: "ab", `a\`: `a\`, `\00`: `\00`, `\zzzz`: `\zzzz`, `d\0061t\+000061`: "data",
	} {
		if got := unicodeEscapes(in); got != want {
			t.Errorf("%q = %q, want %q", in, got, want)
		}
	}
}

// FuzzSplit holds the scanner to SQLite's own idea of where a statement ends,
// and to not reading past or between its tokens on either dialect.
func FuzzSplit(f *testing.F) {
	for _, name := range []string{"hostile_common.sql", "hostile_sqlite.sql", "hostile_postgres.sql", "honest_common.sql", "honest_postgres.sql"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f.Add(strings.TrimSuffix(line, "\n"))
		}
	}
	path := filepath.Join(f.TempDir(), "project.db")
	if err := SeedSQLite(path); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		for _, d := range []dialect{sqliteDialect, postgresDialect} {
			at := 0
			for _, token := range lex(sql, d) {
				if token.start < at || token.end <= token.start || token.end > len(sql) {
					t.Fatalf("token %d–%d after %d of %d bytes", token.start, token.end, at, len(sql))
				}
				at = token.end
			}
		}
		s, err := split(sql, sqliteDialect, DefaultSQLBytes)
		if err != nil {
			return
		}
		again, err := split(s.body, sqliteDialect, DefaultSQLBytes)
		if err != nil || again.body != s.body {
			t.Fatalf("the body %q splits again into %q, %v", s.body, again.body, err)
		}
		c, err := openSQLiteConn(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		stmt, tail, err := c.prepare(sql)
		if err != nil {
			return // no statement for the engine
		}
		defer stmt.close()
		if rest := lex(tail, sqliteDialect); len(rest) > 0 {
			t.Fatalf("the engine leaves %q, which the scanner took for the same statement", tail)
		}
	})
}

func TestParseTree_IsStrict(t *testing.T) {
	t.Parallel()
	v, err := parseTree(`({QUERY :resname :relid :relid 5 :name \}\ \{X :list ("a\ b" (o 1 2) <>) :constvalue 2 [ 1 -3 ] :node {VAR :varattno 1}})`)
	if err != nil {
		t.Fatal(err)
	}
	q := v.list[0].node
	var keys []string
	for _, f := range q.fields {
		keys = append(keys, f.key)
	}
	if diff := cmp.Diff([]string{":resname", ":relid", ":name", ":list", ":constvalue", ":node"}, keys); diff != "" {
		t.Errorf("keys (-want +got)\n%s", diff)
	}
	if name, _ := q.get(":resname"); name.atom != ":relid" {
		t.Errorf("a column called :relid is read as %q", name.atom)
	}
	if c, _ := q.get(":constvalue"); !cmp.Equal(c.datum, []string{"1", "-3"}) {
		t.Errorf("constant %q", c.datum)
	}
	for _, bad := range []string{
		"", "(", "{", "{QUERY", "{QUERY :a", "{QUERY a 1}", "{QUERY :a 1} x", "({QUERY :a })", ")", "}", "{QUERY :constvalue 4 1}",
		"{QUERY :constvalue 4 [ 1", "{QUERY :constvalue 4 [ ( ] }", `{QUERY :a \`, strings.Repeat("(", 2*maxTreeDepth),
	} {
		if _, err := parseTree(bad); err == nil {
			t.Errorf("%.40q was read", bad)
		}
	}
}

func TestWalk_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	w := walk{
		allow: allowList{
			types: map[uint32]bool{23: true}, functions: map[uint32]bool{100: true, 101: true}, bounded: map[uint32]bool{101: true},
			operators: map[uint32]bool{200: true}, behind: map[uint32]bool{300: true}, sampling: map[uint32]bool{400: true},
		},
		tables: map[uint32]bool{1000: true}, view: 1001, enums: map[uint32]bool{2000: true}, columns: map[uint32]bool{3000: true},
	}
	query := func(inside string) string {
		return "({QUERY :commandType 1 :utilityStmt <> :rowMarks <> :targetList (" + inside + ")})"
	}
	for _, tc := range []struct {
		tree string
		want error
	}{
		{query(""), nil},
		{query("{VAR :varattno 1 :vartype 23}"), nil},
		{query("{VAR :varattno 1 :vartype 3000}"), nil},
		{query("{CONST :consttype 2000 :constvalue <>}"), nil},
		{query("{FUNCEXPR :funcid 100 :args <>}"), nil},
		{query("{OPEXPR :opno 200 :opfuncid 300}"), nil},
		{query("{RANGETBLENTRY :rtekind 0 :relid 1000 :rellockmode 1}"), nil},
		{query("{FUNCEXPR :funcid 101 :args ({VAR :varattno 1} {CONST :consttype 23 :constvalue 4 [ 16 39 0 0 0 0 0 0 ]})}"), nil},

		{"({QUERY :commandType 4})", errShape},
		{"({QUERY})", errShape},
		{"({QUERY :commandType 1 :rowMarks ({ROWMARKCLAUSE})})", errShape},
		{"({QUERY :commandType 1 :hasForUpdate true})", errShape},
		{"({QUERY :commandType 1 :hasModifyingCTE true})", errShape},
		{"({QUERY :commandType 1 :utilityStmt {X}})", errShape},
		{query("{FROBNICATE}"), errUnknown},
		{query("{XMLEXPR}"), errUnknown},
		{query("{NEXTVALUEEXPR :seqid 1}"), errUnknown},
		{query("{COERCETODOMAIN :resulttype 23}"), errUnknown},
		{query("{PARAM :paramkind 0}"), errUnknown},
		{query("{VAR :varattno -6 :vartype 23}"), errSystemCol},
		{query("{CONST :consttype 3000}"), errType},
		{query("{CONST :consttype 2205}"), errType},
		{query("{CONST :consttype x}"), errUnknown},
		{query("{FIELDSELECT :resulttype 2205}"), errType},
		{query("{RANGETBLFUNCTION :funccoltypes (o 23 2205)}"), errType},
		{query("{RANGETBLFUNCTION :funccoltypes (i 23)}"), errUnknown},
		{query("{FUNCEXPR :funcid 999}"), errFunction},
		{query("{FUNCEXPR :funcid 300}"), errFunction}, // an operator's function by name
		{query("{FUNCEXPR :funcid 101 :args ({VAR :varattno 1} {VAR :varattno 2})}"), errRepeat},
		{query("{FUNCEXPR :funcid 101 :args ({VAR :varattno 1} {CONST :consttype 23 :constvalue 4 [ 17 39 0 0 0 0 0 0 ]})}"), errRepeat},
		{query("{AGGREF :aggfnoid 999}"), errFunction},
		{query("{WINDOWFUNC :winfnoid 999}"), errFunction},
		{query("{WINDOWCLAUSE :startInRangeFunc 999}"), errFunction},
		{query("{OPEXPR :opno 999 :opfuncid 300}"), errOperator},
		{query("{OPEXPR :opno 200 :opfuncid 999}"), errOperator},
		{query("{ROWCOMPAREEXPR :opnos (o 200 999)}"), errOperator},
		{query("{SORTGROUPCLAUSE :eqop 200 :sortop 999}"), errOperator},
		{query("{SCALARARRAYOPEXPR :opno 200 :opfuncid 300 :hashfuncid 999}"), errOperator},
		{query("{SQLVALUEFUNCTION :op 10 :type 23}"), errValueFunc},
		{query("{TABLESAMPLECLAUSE :tsmhandler 999}"), errSample},
		{query("{RANGETBLENTRY :rtekind 0 :relid 1002 :rellockmode 1}"), errRelation},
		{query("{RANGETBLENTRY :rtekind 1 :relid 1002}"), errRelation},
		{query("{RTEPERMISSIONINFO :relid 1002}"), errRelation},
		{query("{RANGETBLENTRY :rtekind 0 :relid 1000 :rellockmode 3}"), errShape},
		{query("{RANGETBLENTRY :rtekind 0}"), errUnknown},
		{query("{RANGETBLENTRY :rtekind 4}"), errUnknown},
		{query("{RANGETBLENTRY :rtekind 7}"), errUnknown},
		{query("{RANGETBLENTRY :rtekind 1 :subquery {QUERY :commandType 1 :targetList ({FUNCEXPR :funcid 999})}}"), errFunction},
	} {
		v, err := parseTree(tc.tree)
		if err != nil {
			t.Errorf("%s: %v", tc.tree, err)
			continue
		}
		if err := w.value(v); !errors.Is(err, tc.want) {
			t.Errorf("%s\ngot %v, want %v", tc.tree, err, tc.want)
		}
	}
}

func FuzzTree(f *testing.F) {
	f.Add(`({QUERY :commandType 1 :rtable ({RANGETBLENTRY :rtekind 0 :relid 5}) :constvalue 4 [ 1 2 ]})`)
	f.Add(`({FUNCEXPR :funcid 1 :args ({CONST :constvalue 1 [ x ]} <>)})`)
	w := walk{allow: allowList{bounded: map[uint32]bool{1: true}}}
	f.Fuzz(func(t *testing.T, src string) {
		v, err := parseTree(src)
		if err != nil {
			return
		}
		// An empty allow list lets no function pass, however it is written.
		if err := w.value(v); err == nil && strings.Contains(src, "{FUNCEXPR :funcid 7") && !strings.Contains(src, `\`) {
			t.Fatalf("passed: %s", src)
		}
	})
}
