//go:build linux

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lineNames reads the names of all lines, and those of drills alone, from the source.
func lineNames(t *testing.T) (all map[string]string, drills []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "lines.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all[v.Names[0].Name] = name
			if strings.Contains(g.Doc.Text(), "drills alone") {
				drills = append(drills, name)
			}
		}
	}
	if len(all) == 0 || len(drills) == 0 {
		t.Fatal("lines.go has no names")
	}
	return all, drills
}

func TestLines_AreExplainedOnThePageAndFitTheirColumn(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/durability.md")
	if err != nil {
		t.Fatal(err)
	}
	all, drills := lineNames(t)
	for _, name := range all {
		if !strings.Contains(string(page), "\n| "+name+" | ") {
			t.Errorf("no table of docs/durability.md explains the line %q", name)
		}
		if len(name) > nameWidth && !slices.Contains(drills, name) {
			t.Errorf("the line %q breaks the column", name)
		}
	}
	for _, b := range bugs() {
		if !strings.Contains(string(page), "\n| `"+b.name+"` | ") {
			t.Errorf("docs/durability.md does not list the fault %s", b.name)
		}
	}
	for _, p := range parts() {
		if !strings.Contains(string(page), "\n| `"+p.name+"` | ") {
			t.Errorf("docs/durability.md does not list the part %s", p.name)
		}
	}
}

// The page can only be held against names that stand in one place.
func TestLines_HaveNamesOfTheTableAlone(t *testing.T) {
	t.Parallel()
	all, _ := lineNames(t)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{testedName: true} // by tested
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 || !slices.Contains([]string{"judge", "figure", "within", "v"}, called(call)) {
				return true
			}
			name, _ := call.Args[0].(*ast.Ident)
			if name != nil && all[name.Name] != "" {
				used[all[name.Name]] = true
			} else if name == nil || name.Name != "promise" { // in the checker's own short form
				t.Errorf("%s: a line whose name is not in lines.go", set.Position(call.Pos()))
			}
			return true
		})
	}
	for _, name := range all {
		if !used[name] {
			t.Errorf("no line is called %q", name)
		}
	}
}

// called is the name of the function that is called.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
