//go:build node

package fakeai_test

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/fakeai"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// oracleReply answers what the client's script asks for by name.
func oracleReply(p fakeai.Parsed) fakeai.Reply {
	asked := ""
	for _, m := range p.Messages {
		if m.Role == "user" {
			asked = m.Text
		}
	}
	if status, ok := strings.CutPrefix(asked, "error "); ok {
		if n, err := strconv.Atoi(status); err == nil {
			return fakeai.Error(n, "as asked")
		}
	}
	r := fakeai.Text("Hello from the fake model.")
	switch asked {
	case "tools":
		return fakeai.ToolSteps(3, fakeai.Text("counted to three"))(p)
	case "parallel":
		return fakeai.Calls(
			fakeai.Call{ID: "a", Name: "count", Arguments: `{"step":1}`}, fakeai.Call{ID: "b", Name: "count", Arguments: `{"step":2}`})
	case "thoughts":
		r.Reasoning = []string{"Let me ", "think."}
	case "cut at once":
		r.CutAfter = -1
	case "cut":
		r.CutAfter = 3
	case "error inside":
		r.ErrorAfter, r.Type, r.Message = 3, "overloaded_error", "Overloaded"
	}
	return r
}

// TestOfficialClients runs the vendors' own clients against the fake: where they are content, so is the fake's form. It
// needs Node with npm, and the packages of the lock file from the registry.
func TestOfficialClients(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOB_TEST_NODE") != "1" {
		t.Fatal("set HOB_TEST_NODE=1 to run the tests with the tag node, which install packages from the npm registry")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is not installed: get it from https://nodejs.org, or run the tests without the tag node", tool)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "client.mjs"} {
		b, err := os.ReadFile(filepath.Join("testdata", "node", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")

	const key = "sk-oracle"
	srv := httptest.NewServer(fakeai.New(fakeai.Options{Reply: oracleReply, Key: key, Models: []string{"gpt-4o", "claude-x", "gemini-2.5-flash", "gemini-3-pro-preview"}}))
	defer srv.Close()
	out := run(t, dir, nodeFor(t, dir), "client.mjs", srv.URL, key)

	if *update {
		if err := os.WriteFile(filepath.Join("testdata", "node", "want.json"), out, 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Join("testdata", "node", "want.json"))
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(want, &a), json.Unmarshal(out, &b)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the clients saw (-want +got):\n%s", diff)
	}
}

// oldestNode is what the vendors' clients need; some distributions have an older one.
const oldestNode = 20

// nodeFor gives a Node that is new enough: the machine's own, or one from the registry beside the clients.
func nodeFor(t *testing.T, dir string) string {
	t.Helper()
	version := strings.TrimPrefix(strings.TrimSpace(string(run(t, dir, "node", "--version"))), "v")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= oldestNode {
		return "node"
	}
	run(t, dir, "npm", "install", "--no-save", "--no-audit", "--no-fund", "node@22")
	return filepath.Join(dir, "node_modules", ".bin", "node")
}

func run(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = append(out, exit.Stderr...)
		}
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}
