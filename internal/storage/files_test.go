package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"hob"
	"hob/internal/seal"
	"hob/internal/storage"
	"hob/internal/store"
)

func system() hob.Principal { return hob.System(hob.DefaultWorkspace) }

func newStore(t *testing.T) *store.DB {
	t.Helper()
	dir := t.TempDir()
	box, err := seal.Open(filepath.Join(dir, "seal.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Config{Dir: dir, Box: box})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// world is storage over one place, with the bucket b.
type world struct {
	*storage.Files
	t     *testing.T
	store *store.DB
	log   *bytes.Buffer
}

func newWorld(t *testing.T, b storage.Backend) *world {
	t.Helper()
	w := &world{t: t, store: newStore(t), log: &bytes.Buffer{}}
	w.Files = storage.New(storage.Config{
		Store: w.store, Backend: b, Secret: []byte("a secret of at least thirty-two bytes"), MaxSize: 1000,
		BaseURL: func() string { return "https://hob.example.com/" }, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err := w.EnsureBucket(t.Context(), system(), "b"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) put(name, content string) hob.File {
	w.t.Helper()
	f, _, err := w.Put(w.t.Context(), system(), hob.NewFile{Bucket: "b", Name: name, Body: strings.NewReader(content), Overwrite: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *world) read(name string) string {
	w.t.Helper()
	_, body, err := w.Open(w.t.Context(), system(), "b", name)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// onPlaces runs a test on storage over every place.
func onPlaces(t *testing.T, run func(t *testing.T, w *world)) {
	t.Helper()
	onBackends(t, func(t *testing.T, b storage.Backend) { run(t, newWorld(t, b)) })
}

func TestFiles_BytesGoWhenNothingNamesThem(t *testing.T) {
	t.Parallel()
	onPlaces(t, func(t *testing.T, w *world) {
		first := w.put("x", "one")
		if first.Size != 3 || first.Type != "text/plain; charset=utf-8" || len(first.Digest) != 64 {
			t.Errorf("file %+v", first)
		}
		second := w.put("x", "second")
		if got := listed(t, w.Backend); !slices.Equal(got, []string{second.Blob}) {
			t.Errorf("after the replacement: %v", got)
		}
		if _, err := w.Copy(t.Context(), system(), hob.FileMove{Bucket: "b", Name: "x", ToBucket: "b", ToName: "copy"}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Remove(t.Context(), system(), "b", "x"); err != nil {
			t.Fatal(err)
		}
		if got := w.read("copy"); got != "second" {
			t.Errorf("the copy reads %q", got)
		}
		if err := w.Empty(t.Context(), system(), "b"); err != nil {
			t.Fatal(err)
		}
		if got := listed(t, w.Backend); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

func TestFiles_WhatIsRefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	onPlaces(t, func(t *testing.T, w *world) {
		w.put("there", "x")
		if _, err := w.store.CreateBucket(t.Context(), system(), hob.Bucket{ID: "small", MaxSize: point(int64(600)), Types: []string{"text/*"}}); err != nil {
			t.Fatal(err)
		}
		reader := hob.Principal{Kind: hob.KeyPrincipal, ID: "k", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead}}
		user := hob.Principal{Kind: hob.UserPrincipal, ID: "u", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead}}
		untouched := iotest.ErrReader(errors.New("the body was read"))
		for what, c := range map[string]struct {
			by   hob.Principal
			file hob.NewFile
			want hob.Kind
		}{
			"a taken name":            {system(), hob.NewFile{Bucket: "b", Name: "there", Body: untouched}, hob.Conflict},
			"an absent bucket":        {system(), hob.NewFile{Bucket: "absent", Name: "x", Body: untouched}, hob.NotFound},
			"a bad name":              {system(), hob.NewFile{Bucket: "b", Name: "../x", Body: untouched}, hob.Invalid},
			"a key that reads":        {reader, hob.NewFile{Bucket: "b", Name: "x", Body: untouched}, hob.Forbidden},
			"a user":                  {user, hob.NewFile{Bucket: "b", Name: "x", Body: untouched}, hob.NotFound},
			"announced as too large":  {system(), hob.NewFile{Bucket: "b", Name: "x", Body: untouched, Size: 1001}, hob.TooLarge},
			"too large":               {system(), hob.NewFile{Bucket: "b", Name: "x", Body: strings.NewReader(strings.Repeat("x", 1001))}, hob.TooLarge},
			"too large for the call":  {system(), hob.NewFile{Bucket: "b", Name: "x", Body: strings.NewReader(strings.Repeat("x", 701)), MaxSize: 700}, hob.TooLarge},
			"too large for a bucket":  {system(), hob.NewFile{Bucket: "small", Name: "x", Body: strings.NewReader(strings.Repeat("x", 601))}, hob.TooLarge},
			"of a type not taken":     {system(), hob.NewFile{Bucket: "small", Name: "x", Body: strings.NewReader("x"), Type: "image/png"}, hob.Invalid},
			"of a sniffed type":       {system(), hob.NewFile{Bucket: "small", Name: "x", Body: strings.NewReader("\x89PNG\r\n\x1a\n")}, hob.Invalid},
			"a body that fails":       {system(), hob.NewFile{Bucket: "b", Name: "x", Body: io.MultiReader(strings.NewReader(strings.Repeat("x", 900)), untouched)}, hob.Internal},
			"a body that fails early": {system(), hob.NewFile{Bucket: "b", Name: "x", Body: io.MultiReader(strings.NewReader("x"), untouched)}, hob.Internal},
			"a body that is cut":      {system(), hob.NewFile{Bucket: "b", Name: "x", Body: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF))}, hob.Internal},
		} {
			if _, _, err := w.Put(t.Context(), c.by, c.file); hob.KindOf(err) != c.want {
				t.Errorf("%s: %v, want %s", what, err, c.want)
			}
		}
		if got := listed(t, w.Backend); len(got) != 1 {
			t.Errorf("blobs: %v", got)
		}
		for size, want := range map[int]hob.Kind{1000: "", 600: ""} { // the bounds themselves are within
			bucket := map[int]string{1000: "b", 600: "small"}[size]
			if _, _, err := w.Put(t.Context(), system(), hob.NewFile{Bucket: bucket, Name: "most", Body: strings.NewReader(strings.Repeat("x", size))}); hob.KindOf(err) != want {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	})
}

func point[T any](v T) *T { return &v }

func TestFiles_ManyWritesOfOneKeyStoreOnce(t *testing.T) {
	t.Parallel()
	onPlaces(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		fresh := 0
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				f, replayed, err := w.Put(t.Context(), system(), hob.NewFile{Bucket: "b", Name: "x", Body: strings.NewReader(fmt.Sprint(i)), Key: "run:call"})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || f.Name != "x" || f.Size != 1 {
					t.Errorf("%+v, %v", f, err)
				}
				if !replayed {
					fresh++
				}
			})
		}
		wg.Wait()
		if got := listed(t, w.Backend); fresh != 1 || len(got) != 1 {
			t.Errorf("%d writes, blobs %v", fresh, got)
		}
	})
}

func TestFiles_EnsureBucketMakesItOnceAndPrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, filepath.Join(t.TempDir(), "files")))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := w.EnsureBucket(t.Context(), system(), "made"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if b, err := w.store.Bucket(t.Context(), system(), "made"); err != nil || b.Public {
		t.Errorf("%+v, %v", b, err)
	}
	if err := w.EnsureBucket(t.Context(), system(), "../x"); hob.KindOf(err) != hob.Invalid {
		t.Errorf("a bad id: %v", err)
	}
}

func TestFiles_ReplacedWhileItIsOpenedIsReadAsItIsNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, filepath.Join(t.TempDir(), "files")))
	first := w.put("x", "one")
	w.Backend = &onOpen{Backend: w.Backend, do: func(blob string) {
		if blob == first.Blob {
			w.put("x", "second")
		}
	}}
	if got := w.read("x"); got != "second" {
		t.Errorf("read %q", got)
	}
}

// onOpen does something before a blob is opened.
type onOpen struct {
	storage.Backend
	do func(blob string)
}

func (o *onOpen) Open(ctx context.Context, blob string) (io.ReadSeekCloser, error) {
	o.do(blob)
	return o.Backend.Open(ctx, blob)
}

func TestFiles_MissingBytesAreToldAndLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, filepath.Join(t.TempDir(), "files")))
	f := w.put("x", "one")
	if err := w.Backend.Delete(t.Context(), f.Blob); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Open(t.Context(), system(), "b", "x"); hob.KindOf(err) != hob.NotFound || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("open: %v", err)
	}
	if !strings.Contains(w.log.String(), f.Blob) {
		t.Errorf("the log is %q", w.log)
	}
}

// The janitor deletes what nothing names once it is a day old, also what a crash left in the middle, and nothing else.
func TestSweep_DeletesWhatNothingNamesAfterADay(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "files")
	w := newWorld(t, local(t, dir))
	kept := w.put("x", "one")
	orphan, part := storage.NewBlob(), storage.NewBlob()
	if err := w.Backend.Put(t.Context(), orphan, -1, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{filepath.Join(part[:2], part+".0123abcd.part"): "half", "somebody's.txt": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{0, 0}, {storage.OrphanAge - time.Minute, 0}, {storage.OrphanAge + time.Minute, 2}, {storage.OrphanAge + time.Minute, 0}} {
		w.Clock = func() time.Time { return time.Now().Add(c.age) }
		if n, err := w.Sweep(t.Context()); n != c.want || err != nil {
			t.Errorf("after %v: %d deleted, %v, want %d", c.age, n, err, c.want)
		}
	}
	if got := listed(t, w.Backend); !slices.Equal(got, []string{kept.Blob}) || w.read("x") != "one" {
		t.Errorf("left: %v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "somebody's.txt")); err != nil {
		t.Errorf("a file that is none of Hob's: %v", err)
	}
}

func TestSweep_AsksInBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, filepath.Join(t.TempDir(), "files")))
	const many = 1203
	for range many {
		if err := w.Backend.Put(t.Context(), storage.NewBlob(), 0, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	kept := w.put("x", "one")
	w.Clock = func() time.Time { return time.Now().Add(2 * storage.OrphanAge) }
	if n, err := w.Sweep(t.Context()); n != many || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	if got := listed(t, w.Backend); !slices.Equal(got, []string{kept.Blob}) {
		t.Errorf("left: %v", got)
	}
}

// A second store over the same bytes, as a restored copy is, deletes nothing of them: neither what it does not name nor
// what it replaces.
func TestSweep_IsForTheStoreThatOwnsTheBytes(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, b storage.Backend) {
		owner, copied := newWorld(t, b), newWorld(t, b)
		theirs := owner.put("x", "one")
		if _, err := owner.Sweep(t.Context()); err != nil { // puts its name there
			t.Fatal(err)
		}
		copied.Clock = func() time.Time { return time.Now().Add(2 * storage.OrphanAge) }
		if n, err := copied.Sweep(t.Context()); n != 0 || err == nil || !strings.Contains(err.Error(), "another database") {
			t.Errorf("the copy swept %d, %v", n, err)
		}
		copied.put("mine", "two")
		if copied.put("mine", "three"); copied.read("mine") != "three" || !strings.Contains(copied.log.String(), "another database") {
			t.Errorf("the copy's own file, log %s", copied.log)
		}
		if got := listed(t, b); len(got) != 3 || owner.read("x") != "one" {
			t.Errorf("blobs %v, with %s among them", got, theirs.Blob)
		}
		if owned, err := storage.Owned(t.Context(), b); !owned || err != nil {
			t.Errorf("owned: %t, %v", owned, err)
		}
		if err := storage.Disown(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if n, err := copied.Sweep(t.Context()); n != 2 || err != nil { // the owner's, and what the copy replaced
			t.Errorf("after the change of owner %d deleted, %v", n, err)
		}
	})
}

func TestServe_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, filepath.Join(t.TempDir(), "files")))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Serve(ctx) }()
	cancel()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the janitor goes on")
	}
}

func TestLink_IsAnAddressForOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, filepath.Join(t.TempDir(), "files")))
	w.put("a b/ü?.txt", "x")
	link, err := w.Link(t.Context(), system(), "b", "/a b/ü?.txt", time.Hour)
	if err != nil || !strings.HasPrefix(link, "https://hob.example.com/storage/v1/object/sign/b/a%20b/%C3%BC%3F.txt?token=") {
		t.Errorf("link %s, %v", link, err)
	}
	for _, d := range []time.Duration{0, time.Second - 1, hob.MaxLinkTime + 1} {
		if _, err := w.Link(t.Context(), system(), "b", "a b/ü?.txt", d); hob.KindOf(err) != hob.Invalid {
			t.Errorf("a link for %v: %v", d, err)
		}
	}
	if _, err := w.Link(t.Context(), hob.Principal{Kind: hob.UserPrincipal, ID: "u", Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead}}, "b", "a b/ü?.txt", time.Hour); hob.KindOf(err) != hob.NotFound {
		t.Errorf("a user's link: %v", err)
	}
	// Another secret makes other links.
	_, token, _ := strings.Cut(link, "?token=")
	w.Secret = []byte("another secret of at least thirty-two bytes")
	if _, _, err := w.OpenLink(t.Context(), "b", "a b/ü?.txt", token); hob.KindOf(err) != hob.Invalid {
		t.Errorf("under another secret: %v", err)
	}
}

// While blobs are held they can be read although they are deleted; afterwards nothing of that is left.
func TestHold_KeepsWhatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "files")
	l := local(t, dir)
	w := newWorld(t, l)
	want := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		want[w.put(name, "content of "+name).Blob] = "content of " + name
	}
	h, err := l.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := w.put("late", "content of late")
	want[late.Blob] = "content of late"
	if err := h.More(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Empty(t.Context(), system(), "b"); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for b, err := range h.All() {
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(b.Body)
		if err != nil || int64(len(content)) != b.Size {
			t.Errorf("%s: %d bytes, %v", b.Blob, len(content), err)
		}
		got[b.Blob] = string(content)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("held %v, want %v", got, want)
	}
	if left := listed(t, l); len(left) != 0 {
		t.Errorf("what is held is listed: %v", left)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	// What an interrupted copy left is removed by a later one.
	old, young := filepath.Join(dir, ".held-old"), filepath.Join(dir, ".held-young")
	for _, folder := range []string{old, young} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if h, err = l.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if held, _ := filepath.Glob(filepath.Join(dir, ".held-*")); !slices.Equal(held, []string{young}) {
		t.Errorf("left: %v", held)
	}
}
