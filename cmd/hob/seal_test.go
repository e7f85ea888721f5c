package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second server without the key of the first makes none that the database would refuse, neither then nor as it looks.
func TestServe_MakesNoSealKeyForADatabaseOfOthers(t *testing.T) {
	t.Parallel()
	database, both := databases(t)["postgres"]
	if !both {
		return // the quick tests know SQLite alone, which has one server
	}
	first := install(t, map[string]string{"HOB_DATABASE_URL": database})
	first.serve()
	second := install(t, map[string]string{"HOB_DATABASE_URL": database})
	for _, command := range []string{"serve", "doctor"} {
		out := second.run(command)
		if out.code != 1 {
			t.Errorf("hob %s: exit code %d, want 1", command, out.code)
		}
		if command == "serve" {
			mustContain(t, "the error", out.stderr, "HOB_SEAL_KEY", "seal.key in the data folder of the first server")
		}
		if _, err := os.Stat(filepath.Join(second.dir, "seal.key")); err == nil {
			t.Errorf("hob %s made a seal key", command)
		}
	}
	key, err := os.ReadFile(filepath.Join(first.dir, "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	second.env["HOB_SEAL_KEY"] = strings.TrimSpace(string(key)) // as the message says
	second.serve()
}
