package egress_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bypasses are names by which code would reach the network past the guard.
func bypasses() map[string][]string {
	return map[string][]string{
		"net": {
			"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer", "DefaultResolver",
			"LookupHost", "LookupIP", "LookupAddr", "LookupCNAME", "LookupTXT", "LookupMX", "LookupNS", "LookupSRV", "Resolver",
		},
		"net/http": {
			"Client", "Transport", "Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport",
			"ProxyFromEnvironment", "ProxyURL", "NewFileTransport", "NewFileTransportFS",
		},
		"net/http/httputil": {"NewSingleHostReverseProxy", "ReverseProxy", "NewClientConn", "NewProxyClientConn"},
		"net/smtp":          {"Dial", "SendMail", "NewClient"},
		"net/rpc":           {"Dial", "DialHTTP", "DialHTTPPath"},
		"net/textproto":     {"Dial"},
		"crypto/tls":        {"Dial", "DialWithDialer", "Dialer"},
		"log/syslog":        {"Dial", "New", "NewLogger"},
	}
}

// findBypasses lists the uses in one file. A *http.Client as the type of a
// field or parameter is fine: it is how others hold what OperatorClient gave.
func findBypasses(fset *token.FileSet, f *ast.File) []string {
	banned := bypasses()
	packages := map[string]string{} // local name → import path
	var found []string
	for _, imp := range f.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil || banned[path] == nil {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		if name == "." {
			found = append(found, fset.Position(imp.Pos()).String()+": dot import of "+path)
		}
		packages[name] = path
	}
	held := map[*ast.SelectorExpr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			if sel, ok := n.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Client" {
				held[sel] = true
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || held[n] {
				return true
			}
			path := packages[x.Name]
			if path != "" && slices.Contains(banned[path], n.Sel.Name) {
				found = append(found, fset.Position(n.Pos()).String()+": "+path+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestModule_ReachesTheNetworkOnlyThroughThisPackage(t *testing.T) {
	t.Parallel()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			t.Fatal("no go.mod above the package")
		}
		root = parent
	}
	// client speaks to a Hob server for people, not for agents.
	exempt := []string{"internal/egress", "client", "internal/bench", "internal/chaos"} // these two measure and test from outside
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			hidden := rel != "." && strings.HasPrefix(d.Name(), ".")
			if hidden || d.Name() == "testdata" || d.Name() == "node_modules" || slices.Contains(exempt, rel) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		for _, use := range findBypasses(fset, f) {
			t.Errorf("%s: only package egress may open connections", use)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Fatalf("no Go file looked at below %s", root)
	}
}

func TestFindBypasses_SeesEveryForm(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, src string
		want      int
	}{
		{"client literal", `import "net/http"; var c = http.Client{}`, 1},
		{"client pointer", `import "net/http"; var c = &http.Client{}`, 1},
		{"new client", `import "net/http"; var c = new(http.Client)`, 1},
		{"client value", `import "net/http"; var c http.Client`, 1},
		{"transport", `import "net/http"; var c = &http.Transport{}`, 1},
		{"transport held", `import "net/http"; func f(*http.Transport) {}`, 1},
		{"get", `import "net/http"; func f() { http.Get("x") }`, 1},
		{"default client", `import "net/http"; var c = http.DefaultClient`, 1},
		{"renamed import", `import h "net/http"; var c = h.DefaultClient`, 1},
		{"dot import", `import . "net/http"`, 1},
		{"proxy", `import "net/http"; var p = http.ProxyFromEnvironment`, 1},
		{"dial", `import "net"; var d = net.Dial`, 1},
		{"dialer", `import "net"; var d net.Dialer`, 1},
		{"tls", `import "crypto/tls"; var d = tls.Dial`, 1},
		{"mail", `import "net/smtp"; var d = smtp.SendMail`, 1},
		{"held client", `import "net/http"; type T struct{ c *http.Client }; func f(*http.Client) *http.Client { return nil }`, 0},
		{"server", `import ("net"; "net/http"); var s http.Server; var l net.Listener; var r = http.NewRequest`, 0},
		{"other package", `import "x/http"; var c = http.Client{}`, 0},
	}
	for _, tt := range tests {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x; "+tt.src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := findBypasses(fset, f); len(got) != tt.want {
			t.Errorf("%s: %v, want %d", tt.name, got, tt.want)
		}
	}
}
