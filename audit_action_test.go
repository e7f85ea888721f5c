package hob_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hob"
)

// TestAuditDoc_IsTheTableOfActions compares docs/audit.md with the table in code, row by row.
func TestAuditDoc_IsTheTableOfActions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "| action | object | `object_id` | tells |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/audit.md has no table of actions")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	var want []string
	for _, a := range hob.AuditActions() {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", a.Name, a.Kind, a.Object, a.Tells))
	}
	got := strings.Split(table, "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("the page lacks %s", want[i])
		case i >= len(want):
			t.Errorf("the page has %s, which code has not", got[i])
		case got[i] != want[i]:
			t.Errorf("row %d:\npage %s\ncode %s", i+1, got[i], want[i])
		}
	}
}

// TestAuditActions_AreThoseThatAreNoted holds the table against the code that notes: what is noted is in the table, and what
// is in the table is noted somewhere.
func TestAuditActions_AreThoseThatAreNoted(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, a := range hob.AuditActions() {
		if known[a.Name] {
			t.Errorf("%s is in the table twice", a.Name)
		}
		known[a.Name] = true
	}
	noters := []string{"did", "filed", "hooked", "assigned", "noteApproval"}
	text := func(e ast.Expr) string {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			v, _ := strconv.Unquote(lit.Value)
			return v
		}
		return ""
	}
	named := map[string]bool{hob.ActRefused: true, hob.ActBackup: true, hob.ActRestored: true, hob.ActMigrated: true, hob.ActOverride: true}
	noted := 0
	for _, s := range sources(t) {
		if s.test || s.path == "audit_action.go" || strings.Contains(s.path, "/storetest/") {
			continue
		}
		must := func(n ast.Node, action string) {
			if noted++; action != "" && !known[action] {
				t.Errorf("%s notes %q, which is not among hob.AuditActions", s.fset.Position(n.Pos()), action)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				named[text(n)] = true
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					name = f.Sel.Name
				case *ast.Ident:
					name = f.Name
				}
				if slices.Contains(noters, name) && len(n.Args) > 1 {
					must(n, text(n.Args[1]))
				}
			case *ast.CompositeLit:
				if sel, ok := n.Type.(*ast.SelectorExpr); !ok || sel.Sel.Name != "AuditEntry" {
					return true
				}
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						if id, ok := kv.Key.(*ast.Ident); ok && id.Name == "Action" {
							must(kv, text(kv.Value))
						}
					}
				}
			}
			return true
		})
	}
	if noted < 30 {
		t.Errorf("%d places that note were found", noted)
	}
	for name := range known {
		if !named[name] {
			t.Errorf("nothing notes %s", name)
		}
	}
}
