package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctor_HasNoFaultToFindInAFreshInstallation(t *testing.T) {
	t.Parallel()
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, map[string]string{"HOB_DATABASE_URL": database, "OPENAI_API_KEY": "sk-very-secret"})
			before := in.run("doctor")
			if name == "sqlite" && (before.code != 0 || !strings.Contains(before.stdout, "not there yet")) {
				t.Errorf("before the first start: exit code %d\n%s", before.code, before.stdout)
			}
			if _, err := os.Stat(in.dir); err == nil {
				t.Error("the doctor made the data folder")
			}
			in.serve()
			out := in.run("doctor")
			if out.code != 0 {
				t.Errorf("exit code %d:\n%s%s", out.code, out.stdout, out.stderr)
			}
			mustContain(t, "the table", out.stdout, "store", "seal key", "project database", "egress guard", "configured: openai")
			if apart := strings.Contains(out.stdout, "other servers of the database do not find them"); apart != (name == "postgres") {
				t.Errorf("told of files that lie apart: %t\n%s", apart, out.stdout)
			}
			if strings.Contains(out.stdout, "sk-very-secret") {
				t.Error("a secret shows")
			}
		})
	}
}

func TestDoctor_JSON(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	in.serve()
	var report struct {
		Version       string
		Checks        []struct{ Check, Verdict, Text, Fix string }
		Configuration []struct{ Name, Value, Source string }
	}
	out := in.run("doctor", "--json")
	if err := json.Unmarshal([]byte(out.stdout), &report); err != nil {
		t.Fatalf("%v:\n%s", err, out.stdout)
	}
	if report.Version == "" || len(report.Checks) < 8 || len(report.Configuration) < 20 {
		t.Errorf("version %q, %d checks, %d settings", report.Version, len(report.Checks), len(report.Configuration))
	}
}

func TestDoctor_FindsFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		harm func(t *testing.T, in *installation)
		want []string
	}{
		"seal key gone": {
			func(t *testing.T, in *installation) { remove(t, in, "seal.key") },
			[]string{"fail  seal key", "is missing", "backup"},
		},
		"seal key readable": {
			func(t *testing.T, in *installation) { mode(t, in, "seal.key", 0o644) },
			[]string{"fail  seal key"},
		},
		"another seal key": {
			func(_ *testing.T, in *installation) {
				in.env["HOB_SEAL_KEY"] = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
			},
			[]string{"fail  store", "key"},
		},
		"service key readable": {
			func(t *testing.T, in *installation) { mode(t, in, "service.key", 0o644) },
			[]string{"fail  data folder", "service.key", "chmod 600"},
		},
		"folder writable": {
			func(t *testing.T, in *installation) { mode(t, in, "", 0o777) },
			[]string{"fail  data folder", "chmod 700"},
		},
		"store no database": {
			func(t *testing.T, in *installation) { write(t, in, "hob.db", strings.Repeat("no database ", 1000)) },
			[]string{"fail  store"},
		},
		"project no database": {
			func(t *testing.T, in *installation) { write(t, in, "project.db", strings.Repeat("no database ", 1000)) },
			[]string{"fail  project database"},
		},
		"no Postgres": {
			func(_ *testing.T, in *installation) {
				in.env["HOB_DATABASE_URL"] = "postgres://u:hunter2@127.0.0.1:1/d"
			},
			[]string{"fail  store"},
		},
		"open address": {
			func(_ *testing.T, in *installation) { in.env["HOB_ADDR"] = "0.0.0.0:8787" },
			[]string{"fail  access", "HOB_SERVICE_KEY"},
		},
		"egress entry": {
			func(_ *testing.T, in *installation) { in.env["HOB_EGRESS_ALLOW"] = "nonsense" },
			[]string{"fail  egress guard", "nonsense"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, nil)
			in.serve().stop()
			tc.harm(t, in)
			out := in.run("doctor")
			if out.code != 1 {
				t.Errorf("exit code %d, want 1", out.code)
			}
			mustContain(t, "the table", out.stdout, tc.want...)
			if strings.Contains(out.stdout+out.stderr, "hunter2") {
				t.Errorf("a password shows:\n%s", out.stdout)
			}
		})
	}
}

func remove(t *testing.T, in *installation, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(in.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, in *installation, name string, m os.FileMode) {
	t.Helper()
	if err := os.Chmod(filepath.Join(in.dir, name), m); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, in *installation, name, text string) {
	t.Helper()
	for _, old := range []string{name + "-wal", name + "-shm"} {
		if err := os.RemoveAll(filepath.Join(in.dir, old)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(in.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
