package storetest

import (
	"fmt"

	"hob"
)

// keyHolder is a key with all scopes but admin.
func keyHolder(id string) hob.Principal {
	return hob.Principal{
		Kind: hob.KeyPrincipal, ID: id, Workspace: hob.DefaultWorkspace, Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeConfigure},
	}
}

// newOwned makes an owned bucket with an object of each of two keys, and one of the workspace.
func (w *world) newOwned(id string) (one, two hob.Principal) {
	w.t.Helper()
	_, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: id, Owned: true})
	w.must(err)
	one, two = keyHolder("k1"), keyHolder("k2")
	for name, owner := range map[string]string{"one": one.Owner(), "two": two.Owner(), "all": ""} {
		_, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: id, Name: name, Owner: owner, Blob: "blob " + name, Type: "text/plain"}})
		w.must(err)
	}
	return one, two
}

func (w *world) namesFor(by hob.Principal, bucket string) string {
	w.t.Helper()
	page, err := w.s.Files(w.ctx, by, hob.FileQuery{Bucket: bucket})
	w.must(err)
	names := []string{}
	for _, f := range page.Items {
		names = append(names, f.Name)
	}
	return fmt.Sprint(names, page.Total)
}

func ownedFiles(w *world) {
	one, two := w.newOwned("o")
	w.newBucket("b")
	same(w, "what the first sees", w.namesFor(one, "o"), "[one] 1")
	same(w, "what the second sees", w.namesFor(two, "o"), "[two] 1")
	same(w, "what the workspace sees", w.namesFor(w.service, "o"), "[all one two] 3")
	_, err := w.s.File(w.ctx, one, "o", "one")
	w.must(err)
	for _, name := range []string{"two", "all", "absent"} { // which read alike
		_, read := w.s.File(w.ctx, one, "o", name)
		_, moved := w.s.MoveFile(w.ctx, one, hob.FileMove{Bucket: "o", Name: name, ToBucket: "b", ToName: "x"})
		_, copied := w.s.CopyFile(w.ctx, one, hob.FileMove{Bucket: "o", Name: name, ToBucket: "b", ToName: "x", Owner: one.Owner()})
		for i, err := range []error{read, moved, copied} {
			if hob.KindOf(err) != hob.NotFound || err.Error() != "Object not found" {
				w.t.Errorf("%s, try %d: %v", name, i, err)
			}
		}
		// What is another's is not replaced, by no way.
		if name == "absent" {
			continue
		}
		_, put := w.s.PutFile(w.ctx, one, hob.FilePut{File: hob.File{Bucket: "o", Name: name, Owner: one.Owner(), Blob: "mine"}, Overwrite: true})
		_, copied = w.s.CopyFile(w.ctx, one, hob.FileMove{Bucket: "o", Name: "one", ToBucket: "o", ToName: name, Owner: one.Owner(), Overwrite: true})
		_, moved = w.s.MoveFile(w.ctx, one, hob.FileMove{Bucket: "o", Name: "one", ToBucket: "o", ToName: name})
		for i, err := range []error{put, copied, moved} {
			if hob.KindOf(err) != hob.Conflict {
				w.t.Errorf("over %s, try %d: %v", name, i, err)
			}
		}
	}
	deleted, freed, err := w.s.DeleteFiles(w.ctx, one, "o", "all", "two")
	w.must(err)
	same(w, "deleted of others", len(deleted)+len(freed), 0)
	kept, err := w.s.PutFile(w.ctx, one, hob.FilePut{File: hob.File{Bucket: "o", Name: "new", Owner: two.Owner(), Blob: "n"}})
	w.must(err)
	same(w, "owner of what was put in another's name", kept.File.Owner, one.Owner())
	freed, err = w.s.EmptyBucket(w.ctx, one, "o")
	w.must(err)
	same(w, "freed by emptying", len(freed), 2)
	same(w, "what emptying leaves", w.namesFor(w.service, "o"), "[all two] 2")
}

func ownedBucket(w *world) {
	one, _ := w.newOwned("o")
	_, err := w.s.CreateBucket(w.ctx, one, hob.Bucket{ID: "p", Owned: true})
	w.want(hob.Forbidden, err)
	_, err = w.s.UpdateBucket(w.ctx, one, "o", hob.BucketPatch{Types: point([]string{"a/b"})})
	w.want(hob.Forbidden, err)
	w.want(hob.Forbidden, w.s.DeleteBucket(w.ctx, one, "o"))
	_, err = w.s.UpdateBucket(w.ctx, w.service, "o", hob.BucketPatch{Public: point(true)})
	w.want(hob.Invalid, err)
	_, err = w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: "p", Owned: true, Public: true})
	w.want(hob.Invalid, err)
	b, err := w.s.Bucket(w.ctx, one, "o")
	w.must(err)
	same(w, "owned and not public", b.Owned && !b.Public, true)
}

// bucketOwned: whoever makes the bucket first does not get to read what is put into it.
func bucketOwned(w *world) {
	maker := keyHolder("k1")
	_, err := w.s.CreateBucket(w.ctx, maker, hob.Bucket{ID: "o", Public: true})
	w.must(err)
	w.putFile("o", "x", "blob")
	w.want(hob.Forbidden, w.s.OwnBucket(w.ctx, maker, "o"))
	w.must(w.s.OwnBucket(w.ctx, w.service, "o"))
	w.must(w.s.OwnBucket(w.ctx, w.service, "o"))
	w.want(hob.NotFound, w.s.OwnBucket(w.ctx, w.service, "absent"))
	b, err := w.s.Bucket(w.ctx, maker, "o")
	w.must(err)
	same(w, "owned and not public", b.Owned && !b.Public, true)
	same(w, "what its maker sees", w.namesFor(maker, "o"), "[] 0")
}

func outputsGo(w *world) {
	_, err := w.s.CreateBucket(w.ctx, w.service, hob.Bucket{ID: hob.OutputBucket, Owned: true})
	w.must(err)
	w.newBucket("b")
	gone, stays := w.begin(w.alice, "s-gone"), w.begin(w.alice, "s-stays")
	leave := func(bucket string, r hob.RunID, name string) {
		_, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{
			File: hob.File{Bucket: bucket, Name: hob.OutputName(hob.Call{Run: r, ID: "c"}, name), Owner: w.alice.Owner(), Blob: hob.NewUUID()}, Run: r,
		})
		w.must(err)
	}
	leave(hob.OutputBucket, gone.ID, "a")
	leave(hob.OutputBucket, gone.ID, "d/b")
	leave("b", gone.ID, "a") // somebody's own copy
	leave(hob.OutputBucket, stays.ID, "a")
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s-gone"))
	same(w, "what is left of the others", w.namesFor(w.service, hob.OutputBucket), fmt.Sprintf("[%s/c/a] 1", stays.ID))
	same(w, "what lies elsewhere", w.namesFor(w.service, "b"), fmt.Sprintf("[%s/c/a] 1", gone.ID))
}

func outputsOfNoRun(w *world) {
	w.newBucket("b")
	run := w.begin(w.alice, "s")
	put := hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: "x"}, Run: run.ID, Overwrite: true}
	_, err := w.s.PutFile(w.ctx, w.service, put)
	w.must(err)
	w.must(w.s.DeleteSession(w.ctx, w.alice, "", "s"))
	_, err = w.s.PutFile(w.ctx, w.service, put)
	w.want(hob.NotFound, err)
}
