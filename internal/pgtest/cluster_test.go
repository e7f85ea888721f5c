package pgtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPick_NamesTheInstallCommandWhenNoServerIsThere(t *testing.T) {
	t.Parallel()
	half := t.TempDir() // initdb without a server is not a server
	if err := os.WriteFile(filepath.Join(half, "initdb"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := pick([]string{"", "/nonexistent", half})
	if err == nil || !strings.Contains(err.Error(), InstallHint) {
		t.Fatalf("pick = %v, want an error naming %q", err, InstallHint)
	}
}

func TestPick_TakesTheFirstWholeServer(t *testing.T) {
	t.Parallel()
	whole := t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(whole, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := pick([]string{t.TempDir(), whole, t.TempDir()}); err != nil || got != whole {
		t.Fatalf("pick = %q, %v, want %q", got, err, whole)
	}
}
