package storetest

import (
	"encoding/json"
	"strings"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func (w *world) newBucket(id string) hob.Bucket {
	w.t.Helper()
	b, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: id})
	w.must(err)
	return b
}

func bucketKept(w *world) {
	made, err := w.s.CreateBucket(w.ctx, w.key, hob.Bucket{
		ID: "b-1", Name: "Reports", Public: true, MaxSize: point(int64(0)), Types: []string{"image/*", "text/plain"},
	})
	w.must(err)
	same(w, "owner", made.Owner, w.key.Owner())
	got, err := w.s.Bucket(w.ctx, w.service, "b-1")
	w.must(err)
	if d := cmp.Diff(made, got); d != "" {
		w.t.Fatalf("-created +read:\n%s", d)
	}
	w.newBucket("a.2")
	list, err := w.s.Buckets(w.ctx, w.service)
	w.must(err)
	if len(list) != 2 || list[0].ID != "a.2" || list[1].Name != "Reports" {
		w.t.Fatalf("list by id: %v", list)
	}
	plain := list[0]
	if plain.Name != "a.2" || plain.Public || plain.MaxSize != nil || plain.Types != nil {
		w.t.Fatalf("a bucket without rules: %+v", plain)
	}
	shown, err := json.Marshal(plain)
	w.must(err)
	for _, want := range []string{`"file_size_limit":null`, `"allowed_mime_types":null`, `"public":false`, `"owner":""`} {
		if !strings.Contains(string(shown), want) {
			w.t.Fatalf("%s lacks %s", shown, want)
		}
	}
}

func bucketTaken(w *world) {
	w.newBucket("one")
	_, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: "one"})
	w.want(hob.Conflict, err)
	for _, id := range []string{"", "..", ".x", "a/b", "a b", "sign", "public", strings.Repeat("x", hob.MaxBucketID+1), "a\x00", "ü"} {
		_, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: id})
		w.want(hob.Invalid, err)
	}
	_, err = w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: strings.Repeat("x", hob.MaxBucketID)})
	w.must(err)
}

func bucketPatch(w *world) {
	made, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: "b", MaxSize: point(int64(5)), Types: []string{"image/png"}})
	w.must(err)
	got, err := w.s.UpdateBucket(w.ctx, w.service, "b", hob.BucketPatch{Public: point(true)})
	w.must(err)
	same(w, "rules that were not set", *got.MaxSize == 5 && got.Types[0] == "image/png" && got.Public, true)
	var unbound *int64
	_, err = w.s.UpdateBucket(w.ctx, w.service, "b", hob.BucketPatch{MaxSize: &unbound, Types: point([]string(nil))})
	w.must(err)
	got, err = w.s.Bucket(w.ctx, w.service, "b")
	w.must(err)
	want := made
	want.Public, want.MaxSize, want.Types, want.UpdatedAt = true, nil, nil, got.UpdatedAt
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatalf("-want +got:\n%s", d)
	}
	_, err = w.s.UpdateBucket(w.ctx, w.service, "absent", hob.BucketPatch{})
	w.want(hob.NotFound, err)
}

func bucketDeletion(w *world) {
	w.newBucket("b")
	w.putFile("b", "x", "blob")
	w.want(hob.Conflict, w.s.DeleteBucket(w.ctx, w.service, "b"))
	_, _, err := w.s.DeleteFiles(w.ctx, w.service, "b", "x")
	w.must(err)
	w.must(w.s.DeleteBucket(w.ctx, w.service, "b"))
	w.want(hob.NotFound, w.s.DeleteBucket(w.ctx, w.service, "b"))
	w.newBucket("b") // the id is free again
}

func bucketRights(w *world) {
	w.newBucket("b")
	w.putFile("b", "x", "blob")
	reader := hob.Principal{Kind: hob.KeyPrincipal, ID: hob.NewUUID(), Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead}}
	_, err := w.s.File(w.ctx, reader, "b", "x")
	w.must(err)
	for who, by := range map[string]hob.Principal{
		"a user": w.alice, "a bound key": w.boundTo(w.agent.ID), "a stranger": w.stranger, "a reader": reader,
	} {
		kind, errs := hob.NotFound, []error{}
		if who == "a reader" {
			kind = hob.Forbidden
		} else {
			list, err := w.s.Buckets(w.ctx, by)
			w.must(err)
			same(w, "buckets that "+who+" sees", len(list), 0)
			_, one := w.s.Bucket(w.ctx, by, "b")
			_, file := w.s.File(w.ctx, by, "b", "x")
			_, files := w.s.Files(w.ctx, by, hob.FileQuery{Bucket: "b"})
			errs = append(errs, one, file, files)
		}
		_, update := w.s.UpdateBucket(w.ctx, by, "b", hob.BucketPatch{Public: point(true)})
		_, put := w.s.PutFile(w.ctx, by, hob.FilePut{File: hob.File{Bucket: "b", Name: "y", Blob: "blob2"}})
		_, move := w.s.MoveFile(w.ctx, by, hob.FileMove{Bucket: "b", Name: "x", ToBucket: "b", ToName: "z"})
		_, copied := w.s.CopyFile(w.ctx, by, hob.FileMove{Bucket: "b", Name: "x", ToBucket: "b", ToName: "z"})
		_, _, deleted := w.s.DeleteFiles(w.ctx, by, "b", "x")
		_, emptied := w.s.EmptyBucket(w.ctx, by, "b")
		errs = append(errs, update, put, move, copied, deleted, emptied, w.s.DeleteBucket(w.ctx, by, "b"))
		for i, err := range errs {
			if hob.KindOf(err) != kind {
				w.t.Errorf("%s, try %d: %v, want %s", who, i, err, kind)
			}
		}
	}
	for who, by := range map[string]hob.Principal{"a user": w.alice, "a bound key": w.boundTo(w.agent.ID), "a reader": reader} {
		if _, err := w.s.CreateBucket(w.ctx, by, hob.Bucket{ID: "mine"}); err == nil {
			w.t.Errorf("%s made a bucket", who)
		}
	}
	_, err = w.s.File(w.ctx, w.service, "b", "x")
	w.must(err)
}

func bucketChecks(w *world) {
	_, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: "b", MaxSize: point(int64(10)), Types: []string{"image/*", "text/plain"}})
	w.must(err)
	w.newBucket("any")
	for name, c := range map[string]struct {
		size int64
		kind string
		want hob.Kind
	}{
		"fits": {10, "image/png", ""}, "parameters": {1, "text/plain; charset=utf-8", ""},
		"large": {11, "image/png", hob.TooLarge}, "type": {1, "text/html", hob.Invalid}, "part of a type": {1, "images/png", hob.Invalid},
		"no type": {1, "", hob.Invalid},
	} {
		_, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "b", Name: name, Blob: name, Size: c.size, Type: c.kind}})
		w.want(c.want, err)
		_, err = w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "any", Name: name, Blob: name, Size: c.size, Type: c.kind}})
		w.must(err)
		_, err = w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "any", Name: name, ToBucket: "b", ToName: "moved " + name})
		w.want(c.want, err)
	}
	// Rules that are changed later do not hold what is there: it can still be renamed, but not copied.
	_, err = w.s.UpdateBucket(w.ctx, w.service, "b", hob.BucketPatch{MaxSize: point(point(int64(1)))})
	w.must(err)
	_, err = w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "fits", ToBucket: "b", ToName: "renamed"})
	w.must(err)
	_, err = w.s.CopyFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "renamed", ToBucket: "b", ToName: "copy"})
	w.want(hob.TooLarge, err)
}
