package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"hob"
)

func fileCases() map[string]func(*world) {
	return map[string]func(*world){
		"BucketIsKeptAsGiven":                 bucketKept,
		"BucketIdsAreTakenPerWorkspace":       bucketTaken,
		"BucketPatchChangesWhatIsSet":         bucketPatch,
		"BucketIsDeletedWhenEmpty":            bucketDeletion,
		"BucketsAreNotForUsersAndBoundKeys":   bucketRights,
		"BucketTakesWhatItSays":               bucketChecks,
		"FileIsKeptAsGiven":                   fileKept,
		"FileIsReplacedOnlyWhenAsked":         fileReplaced,
		"FileIsWrittenOncePerKey":             fileOnce,
		"FileIsWrittenOnceByManyAtATime":      fileTogether,
		"FilesOfOneNameAtATimeLeaveOne":       filesRace,
		"FilesAreListedByPrefixAndSearch":     filesListed,
		"FilesAreSortedAndPaged":              filesSorted,
		"FileMovesAlsoIntoAnotherBucket":      fileMoved,
		"FileCopiesShareTheirBytes":           fileCopied,
		"FilesDeletedFreeWhatNothingNames":    filesDeleted,
		"BucketIsEmptiedHoweverMuchThereIs":   bucketEmptied,
		"StorageIsNamedOnce":                  storageNamed,
		"BlobsOfACopyAndItsSourceAreNotFreed": copyAgainstDeletion,
		"OwnedFilesAreTheirOwnersAlone":       ownedFiles,
		"OwnedBucketIsChangedByThoseWhoSeeIt": ownedBucket,
		"BucketBecomesAnOwnedOne":             bucketOwned,
		"OutputsGoWithTheirSession":           outputsGo,
		"OutputsAreNotKeptForADeletedRun":     outputsOfNoRun,
	}
}

func (w *world) putFile(bucket, name, blob string) hob.File {
	w.t.Helper()
	kept, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: bucket, Name: name, Blob: blob, Size: 3, Type: "text/plain"}})
	w.must(err)
	return kept.File
}

func fileKept(w *world) {
	w.newBucket("b")
	file := hob.File{
		Bucket: "b", Name: "a/ü 日本.txt", Owner: w.key.Owner(), Blob: "blob", Size: 1 << 40, Type: "text/plain; charset=utf-8",
		Digest: strings.Repeat("ab", 32),
	}
	kept, err := w.s.PutFile(w.ctx, w.key, hob.FilePut{File: file})
	w.must(err)
	if kept.Replayed || kept.Freed != nil || !hob.IsUUID(kept.File.ID) {
		w.t.Fatalf("kept %+v", kept)
	}
	got, err := w.s.File(w.ctx, w.service, "b", file.Name)
	w.must(err)
	if d := cmp.Diff(kept.File, got); d != "" {
		w.t.Fatalf("-kept +read:\n%s", d)
	}
	file.ID, file.Workspace, file.CreatedAt, file.UpdatedAt, file.AccessedAt = got.ID, hob.DefaultWorkspace, got.CreatedAt, got.CreatedAt, got.CreatedAt
	if d := cmp.Diff(file, got); d != "" {
		w.t.Fatalf("-given +read:\n%s", d)
	}
	_, err = w.s.File(w.ctx, w.service, "b", "a")
	w.want(hob.NotFound, err)
	_, err = w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "absent", Name: "x", Blob: "y"}})
	w.want(hob.NotFound, err)
}

func fileReplaced(w *world) {
	w.newBucket("b")
	first := w.putFile("b", "x", "one")
	_, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: "two"}})
	w.want(hob.Conflict, err)
	kept, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: "two", Type: "a/b", Size: 9}, Overwrite: true})
	w.must(err)
	same(w, "freed", fmt.Sprint(kept.Freed), "[one]")
	got, err := w.s.File(w.ctx, w.service, "b", "x")
	w.must(err)
	if got.ID != first.ID || !got.CreatedAt.Equal(first.CreatedAt.Time) || got.Blob != "two" || got.Type != "a/b" || got.Size != 9 {
		w.t.Fatalf("replaced: %+v", got)
	}
	named, err := w.s.Blobs(w.ctx, []string{"one", "two"})
	w.must(err)
	same(w, "named", fmt.Sprint(named), "map[two:true]")
}

func fileOnce(w *world) {
	w.newBucket("b")
	put := func(blob string) hob.KeptFile {
		kept, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{
			File: hob.File{Bucket: "b", Name: "x", Blob: blob, Size: int64(len(blob)), Type: "a/" + blob, Digest: blob}, Overwrite: true, Key: "run:call",
		})
		w.must(err)
		return kept
	}
	first := put("one")
	again := put("second")
	same(w, "freed", fmt.Sprint(again.Replayed, again.Freed), "true [second]")
	if d := cmp.Diff(first.File, again.File); d != "" {
		w.t.Fatalf("-first +again:\n%s", d)
	}
	// Somebody else's write in between stays, and the object as it was then is given.
	_, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: "others"}, Overwrite: true})
	w.must(err)
	third := put("third")
	same(w, "replayed", fmt.Sprintln(third.Replayed, third.File.Blob, third.Freed), "true one [third]\n")
	got, err := w.s.File(w.ctx, w.service, "b", "x")
	w.must(err)
	same(w, "blob", got.Blob, "others")
	// A refused write leaves nothing under its key.
	refused := hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: "r"}, Key: "refused"}
	_, err = w.s.PutFile(w.ctx, w.service, refused)
	w.want(hob.Conflict, err)
	refused.File.Name = "free"
	kept, err := w.s.PutFile(w.ctx, w.service, refused)
	w.must(err)
	same(w, "replayed", kept.Replayed, false)
	// A key is of one workspace and kind of write.
	_, err = w.s.PutFile(w.ctx, w.stranger, hob.FilePut{File: hob.File{Bucket: "b", Name: "x"}, Key: "run:call"})
	w.want(hob.NotFound, err)
}

// atOnce runs a function many times at the same time.
func (w *world) atOnce(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

func fileTogether(w *world) {
	w.newBucket("b")
	var fresh, freed atomic.Int64
	w.atOnce(8, func(i int) {
		kept, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{
			File: hob.File{Bucket: "b", Name: "x", Blob: fmt.Sprintf("blob%d", i)}, Overwrite: true, Key: "k",
		})
		if err != nil {
			w.t.Error(err)
		}
		if !kept.Replayed {
			fresh.Add(1)
		}
		freed.Add(int64(len(kept.Freed)))
	})
	same(w, "writes and freed blobs", fmt.Sprint(fresh.Load(), freed.Load()), "1 7")
}

func filesRace(w *world) {
	w.newBucket("b")
	var mu sync.Mutex
	var freed []string
	w.atOnce(8, func(i int) {
		kept, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: fmt.Sprintf("blob%d", i)}, Overwrite: true})
		if err != nil {
			w.t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		freed = append(freed, kept.Freed...)
	})
	got, err := w.s.File(w.ctx, w.service, "b", "x")
	w.must(err)
	if slices.Contains(freed, got.Blob) || len(freed) != 7 {
		w.t.Fatalf("the object names %s; freed %v", got.Blob, freed)
	}
}

func (w *world) names(q hob.FileQuery) string {
	w.t.Helper()
	page, err := w.s.Files(w.ctx, w.service, q)
	w.must(err)
	var names []string
	for _, f := range page.Items {
		names = append(names, f.Name)
	}
	return fmt.Sprintf("%s (%d)", strings.Join(names, " "), page.Total)
}

func filesListed(w *world) {
	w.newBucket("b")
	w.newBucket("other")
	w.putFile("other", "a/elsewhere", "e")
	for i, name := range []string{"a/1", "a/2", "ab", "B", "a_b%c", "\U0010FFFF", "\U0010FFFFx", "\uD7FF", "\uE000", "z"} {
		w.putFile("b", name, fmt.Sprint("blob", i))
	}
	for _, c := range []struct{ prefix, search, want string }{
		{"a/", "", "a/1 a/2 (2)"},
		{"a", "", "a/1 a/2 a_b%c ab (4)"},
		{"a/2", "", "a/2 (1)"},
		{"c", "", " (0)"},
		{"a_", "", "a_b%c (1)"},
		{"\uD7FF", "", "\uD7FF (1)"},
		{"\U0010FFFF", "", "\U0010FFFF \U0010FFFFx (2)"},
		{"", "b%", "a_b%c (1)"},
		{"", "_", "a_b%c (1)"},
		{"a", "b", "a_b%c ab (2)"},
		{"", "B", "B a_b%c ab (3)"},
		{"", `\`, " (0)"},
	} {
		if got := w.names(hob.FileQuery{Bucket: "b", Prefix: c.prefix, Search: c.search}); got != c.want {
			w.t.Errorf("prefix %q, search %q: %s, want %s", c.prefix, c.search, got, c.want)
		}
	}
	_, err := w.s.Files(w.ctx, w.service, hob.FileQuery{Bucket: "absent"})
	w.want(hob.NotFound, err)
}

func filesSorted(w *world) {
	w.newBucket("b")
	for _, name := range []string{"c", "a", "b"} {
		w.putFile("b", name, "blob "+name)
	}
	_, err := w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: "b", Name: "a", Blob: "new"}, Overwrite: true})
	w.must(err)
	for _, c := range []struct {
		q    hob.FileQuery
		want string
	}{
		{hob.FileQuery{}, "a b c (3)"},
		{hob.FileQuery{Descending: true}, "c b a (3)"},
		{hob.FileQuery{SortBy: "created_at"}, "c a b (3)"},
		{hob.FileQuery{SortBy: "updated_at", Descending: true}, "a b c (3)"},
		{hob.FileQuery{SortBy: "last_accessed_at"}, "c b a (3)"},
		{hob.FileQuery{Limit: 1, Offset: 1}, "b (3)"},
		{hob.FileQuery{Limit: 2, Offset: 2}, "c (3)"},
		{hob.FileQuery{Offset: 3}, " (3)"},
	} {
		c.q.Bucket = "b"
		same(w, fmt.Sprintf("%+v", c.q), w.names(c.q), c.want)
	}
	_, err = w.s.Files(w.ctx, w.service, hob.FileQuery{Bucket: "b", SortBy: "blob"})
	w.want(hob.Invalid, err)
}

func fileMoved(w *world) {
	w.newBucket("b")
	w.newBucket("c")
	made := w.putFile("b", "x", "one")
	w.putFile("b", "taken", "two")
	_, err := w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "x", ToBucket: "b", ToName: "taken"})
	w.want(hob.Conflict, err)
	_, err = w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "absent", ToBucket: "b", ToName: "y"})
	w.want(hob.NotFound, err)
	_, err = w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "x", ToBucket: "absent", ToName: "y"})
	w.want(hob.NotFound, err)
	moved, err := w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "x", ToBucket: "c", ToName: "d/y"})
	w.must(err)
	got, err := w.s.File(w.ctx, w.service, "c", "d/y")
	w.must(err)
	if d := cmp.Diff(moved, got); d != "" || got.ID != made.ID || got.Blob != "one" {
		w.t.Fatalf("-moved +read:\n%s", d)
	}
	same(w, "what is left", w.names(hob.FileQuery{Bucket: "b"}), "taken (1)")
}

func fileCopied(w *world) {
	w.newBucket("b")
	w.putFile("b", "x", "one")
	w.putFile("b", "taken", "two")
	copyTo := func(name string, overwrite bool) (hob.KeptFile, error) {
		return w.s.CopyFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "x", ToBucket: "b", ToName: name, Owner: "key:k", Overwrite: overwrite})
	}
	kept, err := copyTo("y", false)
	w.must(err)
	same(w, "copy", fmt.Sprintln(kept.File.Blob, kept.File.Owner, kept.Freed), "one key:k []\n")
	_, err = copyTo("taken", false)
	w.want(hob.Conflict, err)
	kept, err = copyTo("taken", true)
	w.must(err)
	same(w, "freed by the copy over another", fmt.Sprint(kept.Freed), "[two]")
	kept, err = copyTo("x", true) // onto itself
	w.must(err)
	same(w, "freed by the copy onto itself", len(kept.Freed), 0)
	_, freed, err := w.s.DeleteFiles(w.ctx, w.service, "b", "x", "taken")
	w.must(err)
	same(w, "freed while a copy is left", len(freed), 0)
	_, freed, err = w.s.DeleteFiles(w.ctx, w.service, "b", "y")
	w.must(err)
	same(w, "freed with the last one", fmt.Sprint(freed), "[one]")
}

func filesDeleted(w *world) {
	w.newBucket("b")
	var names []string
	for i := range 600 { // more than one statement looks up
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	for _, i := range []int{0, 1, 599} {
		w.putFile("b", names[i], "blob "+names[i])
	}
	w.putFile("b", "kept", "kept")
	deleted, freed, err := w.s.DeleteFiles(w.ctx, w.service, "b", names...)
	w.must(err)
	slices.Sort(freed)
	same(w, "deleted and freed", fmt.Sprint(len(deleted), freed), "3 [blob n000 blob n001 blob n599]")
	deleted, freed, err = w.s.DeleteFiles(w.ctx, w.service, "b", names...)
	w.must(err)
	same(w, "deleted again", len(deleted)+len(freed), 0)
	same(w, "left", w.names(hob.FileQuery{Bucket: "b"}), "kept (1)")
}

func bucketEmptied(w *world) {
	w.newBucket("b")
	w.newBucket("other")
	w.putFile("other", "x", "others")
	const many = 520 // more than one transaction deletes
	for i := range many {
		w.putFile("b", fmt.Sprint("n", i), fmt.Sprint("blob", i))
	}
	_, err := w.s.CopyFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: "n1", ToBucket: "other", ToName: "copy"})
	w.must(err)
	freed, err := w.s.EmptyBucket(w.ctx, w.service, "b")
	w.must(err)
	slices.Sort(freed)
	same(w, "freed", len(slices.Compact(freed)), many-1)
	same(w, "left", w.names(hob.FileQuery{Bucket: "b"})+w.names(hob.FileQuery{Bucket: "other"}), " (0)copy x (2)")
	w.must(w.s.DeleteBucket(w.ctx, w.service, "b"))
}

// A copy is made while its source is deleted: either there is a copy and its blob is not free, or there is none.
func copyAgainstDeletion(w *world) {
	w.newBucket("b")
	for i := range 20 {
		source, target, blob := fmt.Sprint("s", i), fmt.Sprint("t", i), fmt.Sprint("blob", i)
		w.putFile("b", source, blob)
		var freed []string
		var copied error
		w.atOnce(2, func(i int) {
			if i == 0 {
				var err error
				if _, freed, err = w.s.DeleteFiles(w.ctx, w.service, "b", source); err != nil {
					w.t.Error(err)
				}
				return
			}
			_, copied = w.s.CopyFile(w.ctx, w.service, hob.FileMove{Bucket: "b", Name: source, ToBucket: "b", ToName: target})
		})
		if (copied == nil) == (len(freed) == 1) || copied != nil && hob.KindOf(copied) != hob.NotFound {
			w.t.Fatalf("try %d: the copy %v, freed %v", i, copied, freed)
		}
	}
}

func storageNamed(w *world) {
	var mu sync.Mutex
	ids := map[string]bool{}
	w.atOnce(8, func(int) {
		id, err := w.s.StorageID(w.ctx)
		if err != nil || len(id) != 32 {
			w.t.Errorf("id %q, %v", id, err)
		}
		mu.Lock()
		defer mu.Unlock()
		ids[id] = true
	})
	same(w, "names", len(ids), 1)
}
