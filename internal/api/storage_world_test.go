package api_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"hob"
	"hob/internal/storage"
	"hob/internal/store"
)

// storageBucket is the public bucket that the paths of a scene name.
const storageBucket = "reports"

// newFiles is object storage over a folder.
func newFiles(t *testing.T, s *store.DB, dir string) *storage.Files {
	t.Helper()
	place, err := storage.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = place.Close() })
	return storage.New(storage.Config{
		Store: s, Backend: place, Secret: []byte("a secret of at least thirty-two bytes"), BaseURL: func() string { return "https://hob.example.com" },
	})
}

// storageScene makes the scene's bucket as it is at first, and gives the query of a signed link to its first object.
func (w *world) storageScene() string {
	w.t.Helper()
	ctx, by := w.t.Context(), hob.System(hob.DefaultWorkspace)
	err := w.files.Empty(ctx, by, storageBucket)
	if hob.KindOf(err) == hob.NotFound {
		_, err = w.store.CreateBucket(ctx, by, hob.Bucket{ID: storageBucket, Public: true})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"2026/june.txt", "2026/draft.txt", "2026/old.txt"} {
		if _, _, err := w.files.Put(ctx, by, hob.NewFile{Bucket: storageBucket, Name: name, Body: strings.NewReader("content of " + name)}); err != nil {
			w.t.Fatal(err)
		}
	}
	link, err := w.files.Sign(ctx, by, storageBucket, "2026/june.txt", hob.MaxLinkTime)
	if err != nil {
		w.t.Fatal(err)
	}
	_, query, _ := strings.Cut(link, "?")
	return "?" + query
}

// brokenPlace is a place for bytes that does not work.
type brokenPlace struct{}

var errPlace = errors.New("inner detail")

func (brokenPlace) Put(context.Context, string, int64, io.Reader) error     { return errPlace }
func (brokenPlace) Open(context.Context, string) (io.ReadSeekCloser, error) { return nil, errPlace }
func (brokenPlace) Delete(context.Context, ...string) error                 { return errPlace }
func (brokenPlace) List(context.Context, func(storage.Entry) error) error   { return errPlace }
func (brokenPlace) Check(context.Context) error                             { return errPlace }
