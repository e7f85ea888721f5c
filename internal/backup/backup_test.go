package backup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/backup"
	"hob/internal/seal"
	"hob/internal/store"
)

// filled is a store with an agent, a session and a run under way; its Config has the seal key.
func filled(t *testing.T) store.Config {
	t.Helper()
	dir := t.TempDir()
	b, err := seal.Open(filepath.Join(dir, "seal.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	c := store.Config{Dir: dir, Box: b}
	db, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	by := hob.System(hob.DefaultWorkspace)
	a, err := db.CreateAgent(t.Context(), by, hob.Agent{Name: "a", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.StartRun(t.Context(), hob.NewRun{
		Run:   hob.Run{ID: "run_1", Workspace: hob.DefaultWorkspace, Agent: a.ID, Principal: by, Model: "m", Status: hob.Running, Epoch: 1, LeaseOwner: "p"},
		Lease: time.Minute, Session: hob.Session{ID: "s"}, Message: hob.Message{Role: hob.RoleUser, Content: "hello"}, Pin: json.RawMessage(`{}`),
		Events: []hob.Event{{Seq: 1, Type: hob.EventStepStarted, Data: json.RawMessage(`{"seq":1}`)}},
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return c
}

// blobs are two files' bytes, the second one empty.
func blobs(yield func(backup.Blob, error) bool) {
	_ = yield(backup.Blob{Name: "0a1b", Size: 4, Body: strings.NewReader("\x00\x01\n\xff")}, nil) &&
		yield(backup.Blob{Name: "ff00", Body: strings.NewReader("")}, nil)
}

// archive backs a store up, with an agents' file of the given content; with one there are blobs, too.
func archive(t *testing.T, c store.Config, project string) ([]byte, backup.Manifest) {
	t.Helper()
	d, err := store.OpenDump(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	src := backup.Source{Dump: d, Version: "v1", Now: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}
	if project != "" {
		src.Project = filepath.Join(t.TempDir(), "copy.db")
		if err := os.WriteFile(src.Project, []byte(project), 0o600); err != nil {
			t.Fatal(err)
		}
		src.Files = blobs
	}
	var b bytes.Buffer
	m, err := backup.Write(t.Context(), &b, src)
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), m
}

// entry is one file of an archive.
type entry struct {
	tar.Header
	content []byte
}

func unpack(t *testing.T, packed []byte) []entry {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var list []entry
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry{*h, content})
	}
}

func pack(t *testing.T, list []entry, behind string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, e := range list {
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.content))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(zip, behind); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchive_GivesBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	c := filled(t)
	const project = "SQLite format 3\x00 of the agents"
	packed, m := archive(t, c, project)
	a, err := backup.Verify(bytes.NewReader(packed), 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, a.Manifest); diff != "" {
		t.Errorf("manifest (-written +read):\n%s", diff)
	}
	if m.Files.Count != 2 || m.Files.Size != 4 || m.Files.Elsewhere != "" {
		t.Errorf("files %+v", m.Files)
	}
	var files []string
	for b, err := range a.Blobs() {
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(b.Body)
		files = append(files, fmt.Sprintf("%s %d %x %v", b.Name, b.Size, content, err))
	}
	if want := []string{"0a1b 4 00010aff <nil>", "ff00 0  <nil>"}; !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
	if m.Format != 2 || m.Hob != "v1" || m.Store.Dialect != "sqlite" || m.Store.Seal != c.Box.Fingerprint() || m.Rows() < 8 {
		t.Errorf("%+v", m)
	}
	var got bytes.Buffer
	if err := a.Project(&got); err != nil || got.String() != project {
		t.Errorf("project %q, %v", got.String(), err)
	}
	into := store.Config{Dir: t.TempDir(), Box: c.Box}
	loaded, err := store.Load(t.Context(), into, store.Loading{Shape: a.Manifest.Store, Chunks: a.Chunks(), Hold: true})
	if err != nil || loaded.Unfinished != 1 {
		t.Fatalf("%+v, %v", loaded, err)
	}
	again, _ := archive(t, store.Config{Dir: into.Dir}, "")
	if b, err := backup.Verify(bytes.NewReader(again), 0); err != nil || b.Manifest.Project != nil || b.Manifest.Rows() != m.Rows() {
		t.Errorf("a backup of the restored: %v", err)
	}
	for _, e := range unpack(t, packed) {
		if e.Mode != 0o600 || e.Typeflag != tar.TypeReg {
			t.Errorf("%s has mode %o, type %c", e.Name, e.Mode, e.Typeflag)
		}
		if key, err := os.ReadFile(filepath.Join(c.Dir, "seal.key")); err != nil || bytes.Contains(e.content, bytes.TrimSpace(key)) {
			t.Errorf("%s holds the seal key (%v)", e.Name, err)
		}
	}
}

func TestVerify_RefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	packed, _ := archive(t, filled(t), "the agents' file")
	find := func(list []entry, part string) int {
		return slices.IndexFunc(list, func(e entry) bool { return strings.Contains(e.Name, part) })
	}
	manifest := func(change func(map[string]any)) func([]entry) []entry {
		return func(list []entry) []entry {
			m := map[string]any{}
			last := &list[len(list)-1]
			if err := json.Unmarshal(last.content, &m); err != nil {
				t.Error(err)
			}
			change(m)
			last.content, _ = json.Marshal(m)
			return list
		}
	}
	file := func(name, content string) entry {
		return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600}, []byte(content)}
	}
	for _, tt := range []struct {
		name   string
		change func([]entry) []entry
		behind string
		want   string
	}{
		{"nothing in it", func([]entry) []entry { return nil }, "", "no manifest"},
		{"no manifest", func(l []entry) []entry { return l[:len(l)-1] }, "", "no manifest"},
		{"a row changed", func(l []entry) []entry {
			e := &l[find(l, "tables/messages")]
			e.content = bytes.Replace(e.content, []byte("hello"), []byte("hallo"), 1)
			return l
		}, "", `table "messages" has 1 rows with the digest`},
		{"a part less", func(l []entry) []entry { i := find(l, "tables/runs/"); return slices.Delete(l, i, i+1) }, "", `table "runs" has 0 rows`},
		{"a digest changed", manifest(func(m map[string]any) {
			m["store"].(map[string]any)["tables"].([]any)[0].(map[string]any)["sha256"] = strings.Repeat("0", 64)
		}), "", "but the manifest says"},
		{"a table named twice", manifest(func(m map[string]any) {
			s := m["store"].(map[string]any)
			s["tables"] = append(s["tables"].([]any), s["tables"].([]any)[0])
		}), "", "but the manifest says"},
		{"a table the manifest lacks", manifest(func(m map[string]any) {
			s := m["store"].(map[string]any)
			s["tables"] = s["tables"].([]any)[1:]
		}), "", `table "meta" is not in its manifest`},
		{"a newer format", manifest(func(m map[string]any) { m["format"] = 3 }), "", "use the newer Hob"},
		{"no format", manifest(func(m map[string]any) { delete(m, "format") }), "", "names no format"},
		{"an unknown field", manifest(func(m map[string]any) { m["more"] = 1 }), "", "manifest cannot be read"},
		{"the agents' file changed", func(l []entry) []entry { l[0].content[0]++; return l }, "", "project.db is not what"},
		{"the agents' file less", func(l []entry) []entry { return l[1:] }, "", "project.db is not what"},
		{"a byte of a file changed", func(l []entry) []entry { l[find(l, "files/0a1b")].content[0]++; return l }, "", "files are not what"},
		{"a file less", func(l []entry) []entry { i := find(l, "files/ff00"); return slices.Delete(l, i, i+1) }, "", "files are not what"},
		{"a file more", func(l []entry) []entry { return slices.Insert(l, 1, file("files/00", "x")) }, "", "files are not what"},
		{"a file under another name", func(l []entry) []entry { l[find(l, "files/0a1b")].Name = "files/0a1c"; return l }, "", "files are not what"},
		{"a file in a folder", func(l []entry) []entry { return slices.Insert(l, 1, file("files/../x", "x")) }, "", "does not belong there"},
		{"a file behind the rows", func(l []entry) []entry { return slices.Insert(l, len(l)-1, file("files/00", "x")) }, "", "does not belong there"},
		{"a manifest without the files", manifest(func(m map[string]any) { delete(m, "files") }), "", "says nothing of the files"},
		{"an old manifest with files", manifest(func(m map[string]any) { delete(m, "files"); m["format"] = 1 }), "", "says nothing of the files"},
		{"an extra file", func(l []entry) []entry { return slices.Insert(l, 2, file("readme.txt", "x")) }, "", "does not belong there"},
		{"a file behind the manifest", func(l []entry) []entry { return append(l, file("tables/zz/000001.jsonl", "[]\n")) }, "", "behind the manifest"},
		{"a path up", func(l []entry) []entry { return slices.Insert(l, 1, file("../../etc/passwd", "x")) }, "", "does not belong there"},
		{"a path up in a table", func(l []entry) []entry { return slices.Insert(l, 3, file("tables/../000001.jsonl", "[]\n")) }, "", `table ".." is not in its manifest`},
		{"an absolute path", func(l []entry) []entry { return slices.Insert(l, 1, file("/etc/passwd", "x")) }, "", "does not belong there"},
		{"parts out of order", func(l []entry) []entry {
			l[find(l, "tables/runs/")].Name = "tables/runs/000002.jsonl"
			return l
		}, "", "does not belong there"},
		{"a part by another name", func(l []entry) []entry {
			l[find(l, "tables/runs/")].Name = "tables/runs/1.jsonl"
			return l
		}, "", "does not belong there"},
		{"half a row", func(l []entry) []entry {
			e := &l[find(l, "tables/runs/")]
			e.content = e.content[:len(e.content)-1]
			return l
		}, "", "does not end with a whole row"},
		{"a link", func(l []entry) []entry {
			return slices.Insert(l, 1, entry{tar.Header{Typeflag: tar.TypeSymlink, Name: "tables/x/000001.jsonl", Linkname: "/etc/passwd"}, nil})
		}, "", "is no plain file"},
		{"a folder", func(l []entry) []entry {
			return slices.Insert(l, 0, entry{tar.Header{Typeflag: tar.TypeDir, Name: "tables/"}, nil})
		}, "", "is no plain file"},
		{"a huge manifest", func(l []entry) []entry {
			l[len(l)-1].content = bytes.Repeat([]byte(" "), 2<<20)
			return l
		}, "", "more than the 1048576"},
		{"something behind the end", func(l []entry) []entry { return l }, "hidden", "behind its end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			changed := pack(t, tt.change(unpack(t, packed)), tt.behind)
			_, err := backup.Verify(bytes.NewReader(changed), 0)
			if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := backup.Verify(bytes.NewReader(pack(t, unpack(t, packed), "")), 0); err != nil {
		t.Errorf("packed anew without a change: %v", err)
	}
}

func TestVerify_FindsFlippedBytesAndCuts(t *testing.T) {
	t.Parallel()
	packed, _ := archive(t, filled(t), "the agents' file")
	content := func(packed []byte) (list []string) {
		for _, e := range unpack(t, packed) {
			list = append(list, e.Name+"\n"+string(e.content))
		}
		return list
	}
	whole, quiet := content(packed), 0
	for at := 0; at < len(packed); at += 7 {
		flipped := slices.Clone(packed)
		flipped[at] ^= 0x10
		if _, err := backup.Verify(bytes.NewReader(flipped), 0); err != nil {
			if hob.KindOf(err) != hob.Invalid {
				t.Errorf("byte %d of %d flipped: %v", at, len(packed), err)
			}
			continue
		}
		// A compressed text can be written in more than one way, and the gzip header has bytes that mean nothing: what
		// counts is that it unpacks to the same.
		if quiet++; !slices.Equal(content(flipped), whole) {
			t.Errorf("byte %d of %d flipped: nobody noticed", at, len(packed))
		}
	}
	if quiet > len(packed)/140 {
		t.Errorf("%d of %d flipped bytes changed nothing", quiet, len(packed)/7)
	}
	for n := 0; n < len(packed); n += 41 {
		if _, err := backup.Verify(bytes.NewReader(packed[:n]), 0); hob.KindOf(err) != hob.Invalid {
			t.Errorf("cut after %d of %d bytes: %v", n, len(packed), err)
		}
	}
	if _, err := backup.Verify(bytes.NewReader(append(slices.Clone(packed), "more"...)), 0); hob.KindOf(err) != hob.Invalid {
		t.Errorf("something behind it: %v", err)
	}
}

func TestVerify_BoundsWhatAnArchiveUnpacksTo(t *testing.T) {
	t.Parallel()
	packed, _ := archive(t, filled(t), "")
	list := unpack(t, packed)
	zeros := entry{tar.Header{Typeflag: tar.TypeReg, Name: "project.db", Mode: 0o600}, make([]byte, 8<<20)}
	bomb := pack(t, append([]entry{zeros}, list...), "")
	if len(bomb) > 1<<20 {
		t.Fatalf("it has %d bytes packed", len(bomb))
	}
	if _, err := backup.Verify(bytes.NewReader(bomb), 4<<20); hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("error %v", err)
	}
	behind := pack(t, list, strings.Repeat("\x00", 8<<20))
	if _, err := backup.Verify(bytes.NewReader(behind), 4<<20); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("zeros behind the end: %v", err)
	}
	a, err := backup.Verify(bytes.NewReader(packed), 1<<20)
	if err != nil || a.Size < 1000 || a.Size > 1<<20 {
		t.Errorf("size %d, %v", a.Size, err)
	}
	// A header that claims more than is there takes no memory.
	part := slices.IndexFunc(list, func(e entry) bool { return strings.HasPrefix(e.Name, "tables/runs/") })
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: list[part].Name, Mode: 0o600, Size: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Flush(), zip.Close()); err == nil {
		t.Log("the writer did not mind") // it may say that the content is missing
	}
	if _, err := backup.Verify(bytes.NewReader(b.Bytes()), 0); hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), fmt.Sprint(1<<40)) {
		t.Errorf("a part of a terabyte: %v", err)
	}
}

func TestVerify_RefusesOtherFiles(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "text": "hello", "a gzip of text": string(pack(t, nil, ""))[:20]} {
		if _, err := backup.Verify(strings.NewReader(content), 0); hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "damaged or none of Hob's") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where the bytes of files lie elsewhere the archive says so and holds none.
func TestArchive_NamesThePlaceOfFilesThatAreElsewhere(t *testing.T) {
	t.Parallel()
	d, err := store.OpenDump(t.Context(), filled(t))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	m, err := backup.Write(t.Context(), &b, backup.Source{Dump: d, Version: "v1", Now: time.Now(), Elsewhere: "s3://hob-files/eu"})
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	a, err := backup.Verify(bytes.NewReader(b.Bytes()), 0)
	if err != nil || a.Manifest.Files.Elsewhere != "s3://hob-files/eu" || m.Files.Count != 0 {
		t.Errorf("%+v, %v", m.Files, err)
	}
	for range a.Blobs() {
		t.Error("there is a file")
	}
	old := unpack(t, b.Bytes()) // one of the format before files
	last := &old[len(old)-1]
	fields := map[string]any{}
	if err := json.Unmarshal(last.content, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "files")
	fields["format"] = 1
	last.content, _ = json.Marshal(fields)
	if _, err := backup.Verify(bytes.NewReader(pack(t, old, "")), 0); err != nil {
		t.Errorf("an archive of the first format: %v", err)
	}
}

func TestArchive_AFileThatIsNotAsLongAsItSaysFails(t *testing.T) {
	t.Parallel()
	d, err := store.OpenDump(t.Context(), filled(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, size := range []int64{1, 5} {
		short := func(yield func(backup.Blob, error) bool) {
			yield(backup.Blob{Name: "ab", Size: size, Body: strings.NewReader("abc")}, nil)
		}
		if _, err := backup.Write(t.Context(), io.Discard, backup.Source{Dump: d, Files: short}); err == nil {
			t.Errorf("%d bytes were announced, 3 came, and nobody noticed", size)
		}
	}
}
