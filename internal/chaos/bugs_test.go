//go:build linux

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var planted = regexp.MustCompile(`seeded\.Bug\("(\w+)"\)`)

func TestBugs_AreThoseThatAreInTheProgram(t *testing.T) {
	t.Parallel()
	var found []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range planted.FindAllSubmatch(text, -1) {
			found = append(found, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	names := bugNames()
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Compact(found)); diff != "" {
		t.Errorf("faults (-table +source):\n%s", diff)
	}
}

func TestBugs_HaveADrill(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, b := range bugs() {
		if _, ok := drills()[b.drill]; !ok {
			t.Errorf("%s: there is no drill %q", b.name, b.drill)
		}
		used[b.drill] = true
	}
	for name := range drills() {
		if !used[name] {
			t.Errorf("no fault is planted for the drill %s", name)
		}
	}
}

func TestJobs_RunEachDrillOnceWithoutAFault(t *testing.T) {
	t.Parallel()
	var got []string
	for _, j := range jobsFor([]string{"repeat_once", "lost_tail", "reset_seq"}) {
		got = append(got, j.drill+":"+j.name)
	}
	want := []string{"call:", "call:reset_seq", "call:repeat_once", "resume:", "resume:lost_tail"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClean_WantsFaultsInTheSeededProgramAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, seeded := write("plain", "a program"), write("seeded", "a program with "+bugVariable)
	if err := clean(plain, seeded); err != nil {
		t.Error(err)
	}
	if clean(seeded, seeded) == nil || clean(plain, plain) == nil {
		t.Error("a program with faults passes as one without, or the other way round")
	}
}

func TestOptions_NameFaultsBehindBugs(t *testing.T) {
	t.Parallel()
	for args, ok := range map[string]bool{
		"-only kill,swallow": true, "-only repeat_once": false, "-bugs -only repeat_once": true, "-bugs -only kill": false, "-bugs extra": false,
	} {
		var out bytes.Buffer
		if _, err := parseOptions(strings.Fields(args), &out); (err == nil) != ok {
			t.Errorf("%s: %v", args, err)
		}
	}
}
