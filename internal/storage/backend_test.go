package storage_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"hob"
	"hob/internal/egress"
	"hob/internal/storage"
)

// fakeS3 is a service with the bucket "hob-files", and the requests that it got.
type fakeS3 struct {
	*httptest.Server
	requests atomic.Int64
	down     atomic.Bool
}

func newS3(t testing.TB) *fakeS3 {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("hob-files"); err != nil {
		t.Fatal(err)
	}
	inner := gofakes3.New(backend).Server()
	f := &fakeS3{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if f.down.Load() {
			http.Error(w, "down", http.StatusForbidden) // a status that is not tried again
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeS3) open(t testing.TB, address string) *storage.S3 {
	t.Helper()
	guard := egress.New(egress.Config{})
	t.Cleanup(guard.Close)
	s, err := storage.OpenS3(storage.S3Config{
		Address: address + "?endpoint=" + f.URL, AccessKey: "key", SecretKey: "secret", Egress: guard, TempDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// backends are the places by name: how to get an empty one.
func backends() map[string]func(testing.TB) storage.Backend {
	return map[string]func(testing.TB) storage.Backend{
		"local": func(t testing.TB) storage.Backend { return local(t, filepath.Join(t.TempDir(), "files")) },
		"s3":    func(t testing.TB) storage.Backend { return newS3(t).open(t, "s3://hob-files/eu/1") },
	}
}

func local(t testing.TB, dir string) *storage.Local {
	t.Helper()
	l, err := storage.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// onBackends runs a test on every place.
func onBackends(t *testing.T, run func(t *testing.T, b storage.Backend)) {
	t.Helper()
	for name, open := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

func listed(t *testing.T, b storage.Backend) []string {
	t.Helper()
	var names []string
	if err := b.List(t.Context(), func(e storage.Entry) error { names = append(names, e.Blob); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestBackend_GivesBackWhatWasStored(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, b storage.Backend) {
		big := make([]byte, 3<<20+17)
		if _, err := rand.Read(big); err != nil {
			t.Fatal(err)
		}
		var names []string
		for what, c := range map[string]struct {
			content []byte
			known   bool
		}{
			"nothing": {nil, true}, "a byte": {[]byte("x"), true}, "a byte of unknown size": {[]byte("y"), false},
			"much": {big, true}, "much of unknown size": {big, false},
		} {
			blob, size := storage.NewBlob(), int64(-1)
			names = append(names, blob)
			if c.known {
				size = int64(len(c.content))
			}
			if err := b.Put(t.Context(), blob, size, iotest.OneByteReader(bytes.NewReader(c.content[:min(len(c.content), 10)]))); err == nil && c.known && len(c.content) > 10 {
				t.Errorf("%s: a body that is too short was stored", what)
			}
			if err := b.Delete(t.Context(), blob); err != nil {
				t.Fatal(err)
			}
			if err := b.Put(t.Context(), blob, size, bytes.NewReader(c.content)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			body, err := b.Open(t.Context(), blob)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, c.content) {
				t.Errorf("%s: %d bytes read back, %v", what, len(got), err)
			}
			for _, at := range []int64{0, int64(len(c.content)) / 2, int64(len(c.content))} {
				end, err := body.Seek(0, io.SeekEnd)
				if err != nil || end != int64(len(c.content)) {
					t.Errorf("%s: its end is at %d, %v", what, end, err)
				}
				if _, err := body.Seek(at, io.SeekStart); err != nil {
					t.Error(err)
				}
				if rest, err := io.ReadAll(body); err != nil || !bytes.Equal(rest, c.content[at:]) {
					t.Errorf("%s: %d bytes from %d on, %v", what, len(rest), at, err)
				}
			}
			if _, err := body.Seek(-1, io.SeekStart); err == nil {
				t.Errorf("%s: a place before the beginning was sought", what)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(names)
		if got := listed(t, b); !slices.Equal(got, names) {
			t.Errorf("listed %v, want %v", got, names)
		}
		if err := b.Delete(t.Context(), names...); err != nil {
			t.Error(err)
		}
		if err := b.Delete(t.Context(), names...); err != nil {
			t.Errorf("deleted again: %v", err)
		}
		if got := listed(t, b); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
		if err := b.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		if got := listed(t, b); len(got) != 0 {
			t.Errorf("left by the check: %v", got)
		}
	})
}

func TestBackend_AbsentIsNotFound(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, b storage.Backend) {
		if _, err := b.Open(t.Context(), storage.NewBlob()); hob.KindOf(err) != hob.NotFound {
			t.Errorf("open: %v", err)
		}
		for _, name := range []string{"", "..", "../x", "a/b", "/etc/passwd", strings.Repeat("A", 32), strings.Repeat("a", 33), "owner/../x"} {
			_, opened := b.Open(t.Context(), name)
			for what, err := range map[string]error{
				"put": b.Put(t.Context(), name, 1, strings.NewReader("x")), "open": opened, "delete": b.Delete(t.Context(), name),
			} {
				if err == nil || hob.KindOf(err) == hob.NotFound {
					t.Errorf("%s %q: %v, want a refusal of the name", what, name, err)
				}
			}
		}
	})
}

// A body that breaks off leaves nothing, and no more does one whose caller leaves.
func TestBackend_InterruptedBodiesLeaveNothing(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, b storage.Backend) {
		broken := errors.New("the line is cut")
		for _, size := range []int64{100_000, -1} {
			blob := storage.NewBlob()
			body := io.MultiReader(bytes.NewReader(make([]byte, 50_000)), iotest.ErrReader(broken))
			if err := b.Put(t.Context(), blob, size, body); err == nil {
				t.Errorf("size %d: stored", size)
			}
			ctx, cancel := context.WithCancel(t.Context())
			leaves := io.MultiReader(bytes.NewReader(make([]byte, 50_000)), readerFunc(func([]byte) (int, error) {
				cancel()
				return 0, context.Cause(ctx)
			}))
			if err := b.Put(ctx, blob, size, leaves); err == nil {
				t.Errorf("size %d: stored although the caller left", size)
			}
			if _, err := b.Open(t.Context(), blob); hob.KindOf(err) != hob.NotFound {
				t.Errorf("size %d: open: %v", size, err)
			}
		}
		if got := listed(t, b); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestLocal_FilesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := local(t, dir)
	for range 5 {
		if err := l.Put(t.Context(), storage.NewBlob(), -1, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has the mode %04o, want %04o", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "0750") {
		t.Errorf("check of a folder that others may read: %v", err)
	}
}

// A link in the folder leads nowhere outside it.
func TestLocal_ReachesNothingOutsideItsFolder(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "files")
	l := local(t, dir)
	outside := filepath.Join(top, "secret")
	blob := storage.NewBlob()
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o600), os.Mkdir(filepath.Join(dir, blob[:2]), 0o700),
		os.Symlink(outside, filepath.Join(dir, blob[:2], blob)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if body, err := l.Open(t.Context(), blob); err == nil {
		_ = body.Close()
		t.Error("a link out of the folder was followed")
	}
	if got := listed(t, l); len(got) != 0 {
		t.Errorf("listed: %v", got)
	}
}

func TestS3_AddressesAreRead(t *testing.T) {
	t.Parallel()
	guard := egress.New(egress.Config{})
	t.Cleanup(guard.Close)
	for address, good := range map[string]bool{
		"s3://hob-files": true, "s3://hob-files/a/b?region=eu-central-1": true, "s3://hob-files?endpoint=https://s3.example.com": true,
		"s3://hob-files?endpoint=https://s3.example.com&path_style=false": true, "s3://hob-files?endpoint=http://127.0.0.1:9000": true,
		"": false, "https://hob-files": false, "s3://": false, "s3://x": false, "s3://hob-files?endpoint=https://s3.example.com/path": false,
		"s3://hob-files?endpoint=nothing": false,
	} {
		_, err := storage.OpenS3(storage.S3Config{Address: address, AccessKey: "k", SecretKey: "s", Egress: guard})
		if (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestS3_CheckSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := newS3(t)
	if err := f.open(t, "s3://other-bucket").Check(t.Context()); err == nil || !strings.Contains(err.Error(), "no bucket other-bucket") {
		t.Errorf("an absent bucket: %v", err)
	}
	f.down.Store(true)
	if err := f.open(t, "s3://hob-files").Check(t.Context()); err == nil || !strings.Contains(err.Error(), "hob-files") {
		t.Errorf("a service that refuses: %v", err)
	}
}

// Two prefixes of a bucket know nothing of each other.
func TestS3_KeepsToItsPrefix(t *testing.T) {
	t.Parallel()
	f := newS3(t)
	one, two, all := f.open(t, "s3://hob-files/one"), f.open(t, "s3://hob-files/two"), f.open(t, "s3://hob-files")
	blob := storage.NewBlob()
	if err := one.Put(t.Context(), blob, 1, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Open(t.Context(), blob); hob.KindOf(err) != hob.NotFound {
		t.Errorf("open: %v", err)
	}
	if got := slices.Concat(listed(t, two), listed(t, all)); len(got) != 0 {
		t.Errorf("listed: %v", got)
	}
	if got := listed(t, one); !slices.Equal(got, []string{blob}) {
		t.Errorf("listed: %v", got)
	}
}

// Bytes go by; they are not held: a body comes piece by piece and is never asked for as a whole.
func TestS3_StreamsBodies(t *testing.T) {
	t.Parallel()
	s := newS3(t).open(t, "s3://hob-files")
	const size = 20 << 20
	var largest int
	body := io.LimitReader(readerFunc(func(p []byte) (int, error) { largest = max(largest, len(p)); return len(p), nil }), size)
	if err := s.Put(t.Context(), storage.NewBlob(), size, body); err != nil {
		t.Fatal(err)
	}
	if largest > 1<<20 {
		t.Errorf("%d bytes of the body were asked for at once", largest)
	}
	before := time.Now()
	if err := s.Delete(t.Context(), storage.NewBlob()); err != nil || time.Since(before) > time.Minute {
		t.Errorf("delete what is not there: %v", err)
	}
}
