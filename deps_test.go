package hob_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the root package.
const module = "hob"

// Limits on length. Over a soft one the test says so; over a hard one it fails.
const (
	softFile, hardFile = 400, 800
	softFunc, hardFunc = 60, 100
	rootFiles          = 19
	rootLines          = 4000
)

// everything marks the packages where adapters meet.
const everything = "*"

// mayImport is the whole rule of who may import whom, by folder: adapters know the vocabulary (the root) and never each
// other; the engine knows interfaces only; cmd joins them. Tests in x_test packages may import everything.
func mayImport() map[string][]string {
	return map[string][]string{
		".":                        {},
		"client":                   {"."},
		"internal/agentsql":        {"."},
		"internal/api":             {".", "internal/engine", "internal/seeded"},
		"internal/backup":          {".", "internal/store"},
		"internal/builtin":         {".", "internal/egress"},
		"internal/sandbox":         {},
		"internal/storage":         {".", "internal/egress"},
		"internal/config":          {"."},
		"internal/egress":          {"."},
		"internal/engine":          {".", "internal/seeded"},
		"internal/hook":            {".", "internal/egress"},
		"internal/provider":        {".", "internal/egress"},
		"internal/seal":            {"."},
		"internal/settings":        {"."},
		"internal/seeded":          {},
		"internal/store":           {".", "internal/seal", "internal/seeded"},
		"internal/store/storetest": {"."},
		"internal/fakeai":          {"."},
		"internal/fakeai/cmd":      {"internal/fakeai"},
		"internal/fakeweb":         {},
		"internal/pgtest":          {},
		"internal/pgtest/run":      {"internal/pgtest"},
		"internal/bench":           {everything},
		"internal/chaos":           {everything},
		"cmd/hob":                  {everything},
	}
}

// testOnly lists the packages that serve tests: the program must not contain them.
func testOnly() []string {
	return []string{"internal/fakeai", "internal/fakeweb", "internal/pgtest", "internal/store/storetest"}
}

// source is one parsed Go file of the module.
type source struct {
	path, dir string // slash-separated, relative to the root
	test      bool
	outside   bool // a test in an x_test package
	lines     int
	file      *ast.File
	fset      *token.FileSet
}

// imports gives the paths that the file imports.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		paths = append(paths, p)
	}
	return paths
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// sources parses every Go file that belongs to the module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		test := strings.HasSuffix(name, "_test.go")
		all = append(all, source{
			path: filepath.ToSlash(path), dir: filepath.ToSlash(filepath.Dir(path)), test: test,
			outside: test && strings.HasSuffix(file.Name.Name, "_test"),
			lines:   bytes.Count(text, []byte("\n")), file: file, fset: fset,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestImports_FollowTheTable(t *testing.T) {
	t.Parallel()
	table := mayImport()
	for _, s := range sources(t) {
		allowed, known := table[s.dir]
		if !known {
			t.Errorf("%s: package %s has no line in the table above; a new package needs a decision record", s.path, s.dir)
			continue
		}
		if s.outside || slices.Contains(allowed, everything) && (s.test || s.dir == "internal/bench" || s.dir == "internal/chaos") {
			continue
		}
		for _, imported := range s.imports() {
			dir, ours := folder(imported)
			switch {
			case !ours || s.test && slices.Contains(testOnly(), dir):
			case slices.Contains(allowed, everything) && !slices.Contains(testOnly(), dir):
			case !slices.Contains(allowed, dir):
				t.Errorf("%s imports %s; %s may import %q only", s.path, imported, s.dir, allowed)
			}
		}
	}
}

// folder turns an import path of this module into its folder.
func folder(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	dir, ours := strings.CutPrefix(imported, module+"/")
	return dir, ours
}

func TestRoot_IsSmallAndStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	files, lines := 0, 0
	for _, s := range sources(t) {
		if s.dir != "." || s.test {
			continue
		}
		files++
		lines += s.lines
		for _, imported := range s.imports() {
			if _, ours := folder(imported); ours || strings.Contains(strings.Split(imported, "/")[0], ".") {
				t.Errorf("%s imports %s; the vocabulary imports the standard library only", s.path, imported)
			}
		}
	}
	if files == 0 || files > rootFiles || lines > rootLines {
		t.Errorf("the root has %d files with %d lines, want at most %d and %d", files, lines, rootFiles, rootLines)
	}
}

func TestFilesAndFunctions_AreShort(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		judge(t, s.path, s.lines, softFile, hardFile)
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || s.test {
				continue // a test's table may be as long as it has rows
			}
			lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			judge(t, s.at(f)+" "+f.Name.Name, lines, softFunc, hardFunc)
		}
	}
}

func judge(t *testing.T, what string, lines, soft, hard int) {
	t.Helper()
	switch {
	case lines > hard:
		t.Errorf("%s has %d lines, at most %d are allowed", what, lines, hard)
	case lines > soft:
		t.Logf("%s has %d lines; up to %d reads better", what, lines, soft)
	}
}

func TestPackages_HaveAComment(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			has[s.dir] = has[s.dir] || s.file.Doc != nil
		}
	}
	for dir, documented := range has {
		if !documented {
			t.Errorf("package %s has no package comment: what it is for, and what it is not for", dir)
		}
	}
}

func TestTests_AreNeverSkipped(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		each(s, func(x, name string, n ast.Node) {
			if (x == "t" || x == "tb" || x == "b" || x == "f") && (name == "Skip" || name == "Skipf" || name == "SkipNow") {
				t.Errorf("%s skips a test; make it run, or fail with what is missing", s.at(n))
			}
		})
	}
}

// Panics are for the registries' add, which runs before main, and for handing on a recovered one that is not ours.
func TestHabits_NoInitNoPanicNoCgo(t *testing.T) {
	t.Parallel()
	registries := []string{"internal/builtin", "internal/provider"}
	for _, s := range sources(t) {
		if slices.Contains(s.imports(), "C") || slices.Contains(s.imports(), "runtime/cgo") {
			t.Errorf("%s uses cgo; hob is built without", s.path)
		}
		if s.test {
			continue
		}
		registry := slices.Contains(registries, s.dir)
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			name := ""
			if ok && f.Recv == nil {
				name = f.Name.Name
			}
			if name == "init" && !registry {
				t.Errorf("%s is an init outside the registries", s.at(d))
			}
			allowed := registry && name == "add" || len(calls(d, "recover")) > 0
			if panics := calls(d, "panic"); len(panics) > 0 && !allowed {
				t.Errorf("%s panics; return an error", s.at(panics[0]))
			}
		}
	}
}

// calls finds the calls of a builtin function.
func calls(in ast.Node, name string) []ast.Node {
	var found []ast.Node
	ast.Inspect(in, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && id.Name == name {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

// That every outbound connection goes through egress is tested there; here, that SQL is store's and agentsql's alone.
func TestSQL_IsInTwoPackagesOnly(t *testing.T) {
	t.Parallel()
	allowed := []string{"internal/store", "internal/agentsql", "internal/pgtest", "internal/bench", "internal/chaos"}
	for _, s := range sources(t) {
		if s.test || slices.Contains(allowed, s.dir) {
			continue
		}
		for _, imported := range s.imports() {
			if imported == "database/sql" || strings.HasPrefix(imported, "github.com/jackc/pgx") || strings.HasPrefix(imported, "modernc.org/sqlite") {
				t.Errorf("%s imports %s; only store and agentsql talk to databases", s.path, imported)
			}
		}
	}
}

// each calls f for every selector x.name in a file.
func each(s source, f func(x, name string, n ast.Node)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				f(x.Name, sel.Sel.Name, n)
			}
		}
		return true
	})
}

func TestDependencies_EachHasALine(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(doc), -1) {
		listed[m[1]] = false
	}
	modules := required(t, "go.mod")
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			if m := moduleOf(imported, modules); m != "" {
				if _, ok := listed[m]; !ok {
					t.Errorf("%s imports %s, but docs/dependencies.md has no line for %s: why it is needed, and what would replace it", s.path, imported, m)
				}
				listed[m] = true
			}
		}
	}
	for m, used := range listed {
		if !used {
			t.Errorf("docs/dependencies.md lists %s, which nothing imports", m)
		}
	}
}

// moduleOf finds the required module that an import path belongs to.
func moduleOf(imported string, modules map[string]string) string {
	best := ""
	for m := range modules {
		if (imported == m || strings.HasPrefix(imported, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// required reads the versions a go.mod asks for.
func required(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s*(\S+\.\S+/\S+|\S+\.\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	return found
}

// The SQLite driver is generated against one version of its C library in Go; with another one it may corrupt memory.
func TestLibc_IsTheOneTheDriverWasMadeFor(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.GoMod}}", "modernc.org/sqlite").Output()
	if err != nil {
		t.Fatalf("go list -m modernc.org/sqlite: %v", err)
	}
	const libc = "modernc.org/libc"
	want := required(t, strings.TrimSpace(string(out)))[libc]
	if got := required(t, "go.mod")[libc]; got != want || want == "" {
		t.Errorf("go.mod has %s %q, the sqlite driver wants %q; never upgrade it by itself", libc, got, want)
	}
}
