package hob_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hob"
)

// declared reads a root file's string constants of one type, and the JSON names of its structs' fields.
func declared(t *testing.T, path, constants string) (values, fields []string) {
	t.Helper()
	for _, s := range sources(t) {
		if s.path != path {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if id, ok := n.Type.(*ast.Ident); ok && id.Name == constants && len(n.Values) == 1 {
					if lit, ok := n.Values[0].(*ast.BasicLit); ok {
						v, _ := strconv.Unquote(lit.Value)
						values = append(values, v)
					}
				}
			case *ast.Field:
				if n.Tag != nil {
					tag, _ := strconv.Unquote(n.Tag.Value)
					name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
					fields = append(fields, name)
				}
			}
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("%s declares no constant of type %s", path, constants)
	}
	return values, fields
}

func mustName(t *testing.T, doc string, names []string) {
	t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != "" && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("%s does not name `%s`", doc, name)
		}
	}
}

func TestEventsDoc_NamesEveryEventAndField(t *testing.T) {
	t.Parallel()
	events, fields := declared(t, "event.go", "EventType")
	mustName(t, "docs/events.md", append(events, fields...))
}

func TestAgentsDoc_NamesEverySetting(t *testing.T) {
	t.Parallel()
	mustName(t, "docs/agents.md", hob.SettingsKeys())
}

func TestErrorsDoc_NamesEveryKind(t *testing.T) {
	t.Parallel()
	kinds, _ := declared(t, "error.go", "Kind")
	mustName(t, "docs/errors.md", kinds)
}

// codes finds every code that is written down in the packages whose errors and events reach clients: given to WithCode, in a
// field Code, in a constant Code…, or for a parameter named code.
func codes(t *testing.T) []string {
	t.Helper()
	places := map[string]int{} // the position of the parameter named code, by function
	var files []*ast.File
	for _, s := range sources(t) {
		if s.test || !slices.Contains([]string{".", "internal/api", "internal/engine", "internal/provider", "internal/settings", "internal/store"}, s.dir) {
			continue
		}
		files = append(files, s.file)
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			at := 0
			for _, field := range f.Type.Params.List {
				for _, name := range field.Names {
					if name.Name == "code" {
						places[f.Name.Name] = at
					}
					at++
				}
			}
		}
	}
	codeName := regexp.MustCompile(`^[Cc]ode[A-Z]`)
	var found []string
	literal := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			code, _ := strconv.Unquote(lit.Value)
			found = append(found, code)
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				if at, ok := places[name]; ok && at < len(n.Args) {
					literal(n.Args[at])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
					literal(n.Value)
				}
			case *ast.ValueSpec:
				if codeName.MatchString(n.Names[0].Name) && len(n.Values) == 1 {
					literal(n.Values[0])
				}
			}
			return true
		})
	}
	return found
}

func TestErrorsDoc_NamesEveryCode(t *testing.T) {
	t.Parallel()
	found := codes(t)
	for _, known := range []string{"invalid_model", "too_many_unknown_keys", "overloaded", "doom_loop", "tool_unavailable"} {
		if !slices.Contains(found, known) {
			t.Errorf("the search misses %s, so it may miss others", known)
		}
	}
	objects, _ := declared(t, "principal.go", "ObjectKind")
	for _, kind := range objects {
		found = append(found, kind+"_not_found")
	}
	mustName(t, "docs/errors.md", found)
}

func TestDocs_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	checked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Error("no link was found in any page")
	}
}

func TestRecipes_AreShort(t *testing.T) {
	t.Parallel()
	for pattern, most := range map[string]int{"docs/adding-*.md": 40, "docs/decisions/*.md": 60, "AGENTS.md": 60} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no file matches %s (%v)", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), "\n"); n > most {
				t.Errorf("%s has %d lines, want at most %d", path, n, most)
			}
		}
	}
}

// TestLimits_EachHasATestThatReachesIt reads the tables of limits: their last column names the test, which must exist.
func TestLimits_EachHasATestThatReachesIt(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && strings.HasPrefix(f.Name.Name, "Test") {
				tests[f.Name.Name] = true
			}
		}
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	testName := regexp.MustCompile(`Test\w+`)
	rows := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		inTable := false
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			switch {
			case strings.HasPrefix(line, "| limit | default | setting | test |"):
				inTable = true
			case !strings.HasPrefix(line, "|"):
				inTable = false
			case inTable && !strings.HasPrefix(line, "|---"):
				rows++
				named := testName.FindAllString(cells[len(cells)-1], -1)
				there := func(name string) bool { return tests[name] }
				if len(cells) != 4 || !slices.ContainsFunc(named, there) || slices.ContainsFunc(named, func(n string) bool { return !there(n) }) {
					t.Errorf("%s: the limit %q is reached by no test (%q)", page, strings.TrimSpace(cells[0]), named)
				}
			}
		}
	}
	if rows < 50 {
		t.Errorf("%d limits were found in all pages", rows)
	}
}
