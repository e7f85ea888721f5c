package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"hob"
	"hob/internal/builtin"
	"hob/internal/seal"
	"hob/internal/storage"
	"hob/internal/store"
)

// depot is a storage with the tools over it.
type depot struct {
	*storage.Files
	store *store.DB
	set   *builtin.Set
}

func newDepot(t *testing.T, s builtin.Settings) *depot {
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
	place, err := storage.OpenLocal(filepath.Join(dir, "files"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(place.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	dp := &depot{store: db, Files: storage.New(storage.Config{
		Store: db, Backend: place, Secret: []byte("a secret of at least thirty-two bytes"), BaseURL: func() string { return "https://hob.example.com/" },
	})}
	dp.set = newSet(t, builtin.Deps{Files: dp.Files, Settings: s})
	dp.must(t, dp.EnsureBucket(t.Context(), everything(), "reports"))
	return dp
}

func everything() hob.Principal { return hob.System(hob.DefaultWorkspace) }

func (dp *depot) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (dp *depot) put(t *testing.T, bucket, name, content string) {
	t.Helper()
	_, _, err := dp.Put(t.Context(), everything(), hob.NewFile{Bucket: bucket, Name: name, Body: strings.NewReader(content), Overwrite: true})
	dp.must(t, err)
}

func (dp *depot) content(t *testing.T, bucket, name string) string {
	t.Helper()
	_, body, err := dp.Open(t.Context(), everything(), bucket, name)
	dp.must(t, err)
	b, err := io.ReadAll(body)
	dp.must(t, errors.Join(err, body.Close()))
	return string(b)
}

func wantError(t *testing.T, what string, r hob.Result, text string) {
	t.Helper()
	var got map[string]string
	if err := json.Unmarshal([]byte(r.Text), &got); err != nil || !r.IsError || len(got) != 1 || !strings.Contains(got["error"], text) {
		t.Errorf("%s: %s (an error: %t), want an error with %q", what, r.Text, r.IsError, text)
	}
}

func fields(t *testing.T, r hob.Result) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.Text), &m); err != nil || r.IsError {
		t.Fatalf("result %s (an error: %t): %v", r.Text, r.IsError, err)
	}
	return m
}

func TestStorageRead_ListsByPrefix(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	for _, name := range []string{"2026/a.txt", "2026/b.txt", "2027/c.txt"} {
		dp.put(t, "reports", name, "x")
	}
	r := one(t, dp.set, assign("storage_read", ""))
	for args, want := range map[string]string{
		`{"operation":"list","bucket":"reports"}`:                                            "2026/a.txt 2026/b.txt 2027/c.txt",
		`{"operation":"list","bucket":"reports","path":"2026/"}`:                             "2026/a.txt 2026/b.txt",
		`{"operation":"list","bucket":"reports","path":"/2026/b"}`:                           "2026/b.txt",
		`{"operation":"list","bucket":"reports","limit":1,"offset":1}`:                       "2026/b.txt",
		`{"operation":"list","bucket":"reports","limit":-4,"offset":-1}`:                     "2026/a.txt",
		`{"operation":"list","bucket":"reports","limit":5000,"offset":2,"path":""}`:          "2027/c.txt",
		`{"operation":"list","bucket":"reports","path":"nothing"}`:                           "",
		`{"operation":"list","bucket":"reports","path":"2026/","limit":null,"offset":99999}`: "",
	} {
		got := fields(t, call(t, r, args))
		objects, ok := got["objects"].([]any)
		if !ok || len(got) != 3 || got["bucket"] != "reports" {
			t.Fatalf("%s: %v", args, got)
		}
		var names []string
		for _, o := range objects {
			row, _ := o.(map[string]any)
			name, _ := row["name"].(string)
			names = append(names, name)
			if row["bucket_id"] != "reports" || row["metadata"] == nil || row["id"] == nil {
				t.Errorf("%s: a row is %v", args, row)
			}
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: %v, want %s", args, names, want)
		}
	}
	if got := fields(t, call(t, r, `{"operation":"list","bucket":"reports","path":"/2026/"}`)); got["prefix"] != "2026/" {
		t.Errorf("prefix %v", got["prefix"])
	}
}

func TestStorageRead_ListIsCutByRows(t *testing.T) {
	t.Parallel()
	const most = 2000
	dp := newDepot(t, builtin.Settings{MaxResult: most})
	for i := range 20 {
		dp.put(t, "reports", fmt.Sprintf("%02d-%s", i, strings.Repeat("é", 30)), "x")
	}
	r := one(t, dp.set, assign("storage_read", ""))
	seen := 0
	for seen < 20 {
		res := call(t, r, fmt.Sprintf(`{"operation":"list","bucket":"reports","offset":%d}`, seen))
		got := fields(t, res)
		objects, _ := got["objects"].([]any)
		if n := utf8.RuneCountInString(res.Text); n > most || len(objects) == 0 {
			t.Fatalf("%d characters, %d objects", n, len(objects))
		}
		seen += len(objects)
		if cut := got["truncated"] == true; cut != (seen < 20) {
			t.Errorf("after %d objects truncated is %v", seen, got["truncated"])
		}
	}
}

func TestStorageRead_ListsAtMostAThousand(t *testing.T) {
	t.Parallel()
	fake := &counting{}
	r := one(t, newSet(t, builtin.Deps{Files: fake, Settings: builtin.Settings{MaxResult: 1 << 20}}), assign("storage_read", ""))
	for args, want := range map[string]int{`{"operation":"list","bucket":"b"}`: 100, `{"operation":"list","bucket":"b","limit":1001}`: 1000} {
		call(t, r, args)
		if fake.limit != want {
			t.Errorf("%s asks for %d objects, want %d", args, fake.limit, want)
		}
	}
}

// counting remembers what was asked for.
type counting struct {
	hob.FileService
	limit int
}

func (c *counting) Bucket(_ context.Context, _ hob.Principal, id string) (hob.Bucket, error) {
	return hob.Bucket{ID: id}, nil
}

func (c *counting) List(_ context.Context, _ hob.Principal, q hob.FileQuery) (hob.Page[hob.File], error) {
	c.limit = q.Limit
	return hob.Page[hob.File]{}, nil
}

func TestStorageRead_DownloadsTextAndLinksTheRest(t *testing.T) {
	t.Parallel()
	const most = 1000
	dp := newDepot(t, builtin.Settings{MaxResult: most})
	r := one(t, dp.set, assign("storage_read", ""))
	download := func(name, content string) (hob.Result, map[string]any) {
		dp.put(t, "reports", name, content)
		raw, _ := json.Marshal(map[string]string{"operation": "download", "bucket": "reports", "path": "/" + name})
		res := call(t, r, string(raw))
		if n := utf8.RuneCountInString(res.Text); n > most || !utf8.ValidString(res.Text) {
			t.Errorf("%s: %d characters", name, n)
		}
		return res, fields(t, res)
	}
	for name, content := range map[string]string{"empty": "", "text": "Größe \"7\"\n\t<b>", "controls": "\x01\x7f\u2028"} {
		res, got := download(name, content)
		if len(got) != 4 || got["bucket"] != "reports" || got["path"] != name || got["encoding"] != "utf-8" || got["content"] != content {
			t.Errorf("%s: %s", name, res.Text)
		}
	}
	for name, content := range map[string]string{"nul": "a\x00b", "invalid": "a\xffb", "large": strings.Repeat("\xff", 100_000), "cut": "aa\xc3"} {
		res, got := download(name, content)
		if len(got) != 4 || got["encoding"] != "binary" || got["content"] != nil {
			t.Errorf("%s: %s", name, res.Text)
		}
		if dp.follow(t, got["signed_url"]) != content {
			t.Errorf("%s: the link %v leads to something else", name, got["signed_url"])
		}
	}
	for name, unit := range map[string]string{"ascii": "x", "accents": "é", "quotes": `"`, "lines": "\n", "controls2": "\x01", "faces": "😀", "mixed": "a\"é\n😀"} {
		content := strings.Repeat(unit, 5000)
		res, got := download(name, content)
		shown, _ := got["content"].(string)
		if got["truncated"] != true || got["size"] != float64(len(content)) || shown == "" || !strings.HasPrefix(content, shown) || len(got) != 7 {
			t.Errorf("%s: %.200s", name, res.Text)
		}
		if n := utf8.RuneCountInString(res.Text); n < most-12 {
			t.Errorf("%s: only %d characters of %d are used", name, n, most)
		}
		if dp.follow(t, got["signed_url"]) != content {
			t.Errorf("%s: the link leads to something else", name)
		}
	}
}

// follow opens a link as anybody outside would.
func (dp *depot) follow(t *testing.T, link any) string {
	t.Helper()
	text, _ := link.(string)
	u, err := url.Parse(text)
	if err != nil || u.Host != "hob.example.com" {
		t.Errorf("link %v: %v", link, err)
		return ""
	}
	path, ok := strings.CutPrefix(u.Path, "/storage/v1/object/sign/reports/")
	if !ok {
		t.Errorf("link %v", link)
	}
	_, body, err := dp.OpenLink(t.Context(), "reports", path, u.Query().Get("token"))
	dp.must(t, err)
	b, err := io.ReadAll(body)
	dp.must(t, errors.Join(err, body.Close()))
	dp.Clock = func() time.Time { return time.Now().Add(time.Hour + time.Second) }
	if _, _, err := dp.OpenLink(t.Context(), "reports", path, u.Query().Get("token")); hob.KindOf(err) != hob.Invalid {
		t.Errorf("the link works for more than an hour: %v", err)
	}
	dp.Clock = hob.SystemClock
	return string(b)
}

func TestStorage_ErrorTexts(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	dp.put(t, "reports", "there", "x")
	tools := map[string]hob.ToolRunner{"r": one(t, dp.set, assign("storage_read", "")), "w": one(t, dp.set, assign("storage_write", ""))}
	for _, c := range []struct{ tool, args, want string }{
		{"r", `{"operation":"delete","bucket":"reports"}`, "Invalid operation: 'delete'. Must be list or download."},
		{"r", `{"operation":"list"}`, "bucket is required"},
		{"r", `{"operation":"list","bucket":""}`, "bucket is required"},
		{"r", `{"operation":"download","bucket":"reports"}`, "path is required for download"},
		{"r", `{"operation":"download","bucket":"reports","path":"/"}`, "path is required for download"},
		{"r", `{"operation":"list","bucket":"absent"}`, `Failed to list objects: there is no bucket "absent"; whoever runs the workspace makes it with POST /storage/v1/bucket {"id":"absent"}`},
		{"r", `{"operation":"download","bucket":"absent","path":"x"}`, `there is no bucket "absent"`},
		{"r", `{"operation":"download","bucket":"reports","path":"x"}`, "Object not found"},
		{"r", `{"operation":"download","bucket":"reports","path":"../x"}`, "cannot be used"},
		{"r", `{"operation":7}`, "operation"},
		{"w", `{"path":"x","content":"y"}`, "bucket is required"},
		{"w", `{"bucket":"reports","content":"y"}`, "path is required"},
		{"w", `{"bucket":"reports","path":"x"}`, "content is required"},
		{"w", `{"bucket":"absent","path":"x","content":"y"}`, `there is no bucket "absent"; whoever runs the workspace makes it`},
		{"w", `{"bucket":"reports","path":"a/../x","content":"y"}`, "cannot be used"},
		{"w", `{"bucket":"reports","path":"x","content":"y","content_type":"nonsense"}`, "content_type"},
		{"w", `{"bucket":"reports","path":"there","content":"y","overwrite":false}`, "may not be replaced"},
	} {
		wantError(t, c.tool+" "+c.args, call(t, tools[c.tool], c.args), c.want)
	}
	if got := dp.content(t, "reports", "there"); got != "x" {
		t.Errorf("a refused write changed it to %q", got)
	}
	if _, err := dp.store.Bucket(t.Context(), everything(), "absent"); hob.KindOf(err) != hob.NotFound {
		t.Errorf("a tool made a bucket: %v", err)
	}
}

func TestStorageWrite_StoresTextOncePerCall(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	r := one(t, dp.set, assign("storage_write", ""))
	write := func(key, args string) hob.Result {
		c := callOf(r, args)
		c.Key, c.Principal = key, hob.Principal{Kind: hob.UserPrincipal, ID: "u1", Workspace: hob.DefaultWorkspace}
		res, err := r.Call(t.Context(), c)
		dp.must(t, err)
		return res
	}
	first := write("run:1", `{"bucket":"reports","path":"/a/größe.txt","content":"Größe"}`)
	if want := `{"path":"reports/a/größe.txt","size":7}`; first.Text != want || first.IsError {
		t.Errorf("result %s, want %s", first.Text, want)
	}
	f, err := dp.store.File(t.Context(), everything(), "reports", "a/größe.txt")
	dp.must(t, err)
	if f.Type != "text/plain" || f.Owner != "user:u1" {
		t.Errorf("stored as %q of %q", f.Type, f.Owner)
	}
	// Another call replaces it; the first one, carried out again after a crash, answers the same and does not.
	if res := write("run:2", `{"bucket":"reports","path":"a/größe.txt","content":"{}","content_type":"application/json"}`); res.IsError {
		t.Errorf("replaced: %s", res.Text)
	}
	if again := write("run:1", `{"bucket":"reports","path":"/a/größe.txt","content":"Größe"}`); again.Text != first.Text {
		t.Errorf("again: %s, first %s", again.Text, first.Text)
	}
	if got := dp.content(t, "reports", "a/größe.txt"); got != "{}" {
		t.Errorf("the content is %q", got)
	}
	// A call that may not overwrite is answered the same again, too, and not with its own file as the obstacle.
	once := `{"bucket":"reports","path":"once","content":"1","overwrite":false}`
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if res := write("run:3", once); res.IsError || res.Text != `{"path":"reports/once","size":1}` {
				t.Errorf("written once: %s", res.Text)
			}
		})
	}
	wg.Wait()
	wantError(t, "another call", write("run:4", once), "may not be replaced")
	if res := write("run:5", `{"bucket":"reports","path":"empty","content":""}`); res.Text != `{"path":"reports/empty","size":0}` {
		t.Errorf("an empty file: %s", res.Text)
	}
}

func TestStorage_AssignmentsBoundBucketsAndPrefixes(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	dp.must(t, dp.EnsureBucket(t.Context(), everything(), "secret"))
	for _, name := range []string{"2026/a", "2027/b", "2027-draft"} {
		dp.put(t, "reports", name, "x")
		dp.put(t, "secret", name, "x")
	}
	const whole, part, two = `{"buckets":["reports"]}`, `{"buckets":{"reports":["2026/"]}}`, `{"buckets":{"reports":["2026/","2027/"]}}`
	const list, get, put = `{"operation":"list","bucket":"%s","path":"%s"}`, `{"operation":"download","bucket":"%s","path":"%s"}`, `{"bucket":"%s","path":"%s","content":"y"}`
	for _, c := range []struct {
		config, args, bucket, path string
		want                       string // of an error; "" = allowed
	}{
		{whole, list, "reports", "", ""},
		{whole, get, "reports", "2027/b", ""},
		{whole, put, "reports", "new", ""},
		{whole, list, "secret", "", `"secret" is not one that this tool may use; it may use reports`},
		{whole, get, "secret", "2026/a", "not one that this tool may use"},
		{whole, put, "secret", "new", "not one that this tool may use"},
		{part, get, "reports", "2026/a", ""},
		{part, get, "reports", "/2026/a", ""},
		{part, put, "reports", "2026/new", ""},
		{part, get, "reports", "2027/b", "only paths that begin with 2026/"},
		{part, put, "reports", "new", "only paths that begin with 2026/"},
		{part, put, "reports", "2026/../x", "cannot be used"},
		{part, list, "reports", "2027/", "only paths that begin with 2026/"},
		{part, list, "reports", "2026/", ""},
		{part, list, "reports", "2026/a", ""},
		{part, list, "reports", "", ""},
		{part, list, "reports", "20", ""},
		{two, list, "reports", "", "only paths that begin with 2026/, 2027/"},
		{two, list, "reports", "2027", ""},
		{`{"buckets":{"reports":["/"]}}`, get, "reports", "2027/b", ""},
	} {
		tool := "storage_read"
		if c.args == put {
			tool = "storage_write"
		}
		res := call(t, one(t, dp.set, assign(tool, c.config)), fmt.Sprintf(c.args, c.bucket, c.path))
		if c.want == "" && res.IsError {
			t.Errorf("%s %s/%s: %s", c.config, c.bucket, c.path, res.Text)
		}
		if c.want != "" {
			wantError(t, c.config+" "+c.bucket+"/"+c.path, res, c.want)
		}
		if strings.Contains(res.Text, `"name":"2027`) && c.config == part {
			t.Errorf("%s: listed what is outside: %s", c.config, res.Text)
		}
	}
}

// What runs of others left is not among "every bucket of the workspace".
func TestStorage_OwnedBucketsMustBeNamed(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	dp.must(t, dp.EnsureOwned(t.Context(), everything(), hob.OutputBucket))
	dp.put(t, hob.OutputBucket, "run_1/c/a", "x")
	for _, c := range []struct{ tool, args string }{
		{"storage_read", `{"operation":"list","bucket":"code-output"}`},
		{"storage_read", `{"operation":"download","bucket":"code-output","path":"run_1/c/a"}`},
		{"storage_write", `{"bucket":"code-output","path":"run_1/c/a","content":"y"}`},
	} {
		for _, config := range []string{"", `{"bucket":"code-output"}`} {
			r := one(t, dp.set, assign(c.tool, config))
			res := call(t, r, c.args)
			wantError(t, c.args, res, "only where config_override.buckets of its assignment names it")
			if !res.Free {
				t.Errorf("%s: the refused call is counted", c.args)
			}
		}
		if res := call(t, one(t, dp.set, assign(c.tool, `{"buckets":["code-output"]}`)), c.args); res.IsError || res.Free {
			t.Errorf("named, %s: %+v", c.args, res)
		}
	}
}

func TestStorage_OverridesAreJudgedWhenAssigned(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	long := make([]string, 101)
	for i := range long {
		long[i] = fmt.Sprint("b", i)
	}
	many, _ := json.Marshal(map[string]any{"buckets": long})
	deep, _ := json.Marshal(map[string]any{"buckets": map[string][]string{"b": long}})
	for _, tool := range []string{"storage_read", "storage_write"} {
		for config, want := range map[string]string{
			`{"buckets":[]}`: "must name 1 to 100 buckets", `{"buckets":{}}`: "must name 1 to 100 buckets", `{"buckets":"reports"}`: "must be a list of buckets",
			`{"buckets":null}`: "must be a list of buckets", `{"buckets":[7]}`: "must be a list of buckets", `{"buckets":{"reports":"2026/"}}`: "must be a list of buckets",
			`{"buckets":{"reports":[]}}`: "must name 1 to 100 prefixes", `{"buckets":{"reports":["../"]}}`: "no name can begin with",
			`{"buckets":["a/b"]}`: "is no bucket's id", `{"buckets":["sign"]}`: "is no bucket's id", string(many): "must name 1 to 100 buckets", string(deep): "must name 1 to 100 prefixes",
		} {
			_, err := dp.set.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, json.RawMessage(config))
			if hob.KindOf(err) != hob.Invalid || !strings.Contains(err.Error(), "config_override.buckets") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %.60s: %v, want %q", tool, config, err, want)
			}
		}
		warning, err := dp.set.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, nil)
		if err != nil || !strings.Contains(warning, tool+" reaches every bucket of the workspace") {
			t.Errorf("%s without buckets: %q, %v", tool, warning, err)
		}
		if warning, err := dp.set.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, json.RawMessage(`{"buckets":["reports"]}`)); err != nil || warning != "" {
			t.Errorf("%s with buckets: %q, %v", tool, warning, err)
		}
	}
	// A bucket that is pinned bounds the tool, too; one that is not there, or not reached, is told.
	dp.must(t, dp.EnsureOwned(t.Context(), everything(), hob.OutputBucket))
	for config, want := range map[string]string{
		`{"bucket":"reports"}`:                       "",
		`{"bucket":"nope"}`:                          `there is no bucket "nope" yet; POST /storage/v1/bucket {"id":"nope"} makes it`,
		`{"buckets":["nope","reports"]}`:             `there is no bucket "nope" yet`,
		`{"buckets":["reports"],"bucket":"nope"}`:    "will not work: config_override.bucket pins a bucket that config_override.buckets does not name",
		`{"bucket":"code-output"}`:                   "will not work: code-output is reached only where config_override.buckets names it",
		`{"buckets":["code-output"]}`:                "reaches the files of every owner in code-output",
		`{"buckets":["reports"],"bucket":"reports"}`: "",
	} {
		for _, tool := range []string{"storage_read", "storage_write"} {
			w, err := dp.set.CheckAssignment(t.Context(), hob.DefaultWorkspace, tool, json.RawMessage(config))
			if err != nil || !strings.Contains(w, want) || (w == "") != (want == "") {
				t.Errorf("%s %s: %q, %v", tool, config, w, err)
			}
		}
	}
	// A pinned argument vanishes from what the model is told.
	r := one(t, dp.set, assign("storage_write", `{"overwrite":false,"bucket":"reports"}`))
	if s := string(r.Spec().Schema); strings.Contains(s, "overwrite") || strings.Contains(s, `"bucket"`) || !slices.Contains([]string{"false"}, string(r.Spec().Pinned["overwrite"])) {
		t.Errorf("schema %s, pinned %v", s, r.Spec().Pinned)
	}
}

func TestStorage_WithoutAStoreSaysSo(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	for tool, args := range map[string]string{
		"storage_read": `{"operation":"list","bucket":"reports"}`, "storage_write": `{"bucket":"reports","path":"x","content":"y"}`,
	} {
		res := call(t, one(t, s, assign(tool, "")), args)
		wantError(t, tool, res, "this server stores no files")
		if !res.Free {
			t.Errorf("%s: the call is counted", tool)
		}
		if why := s.Unavailable(t.Context(), hob.DefaultWorkspace, hob.Tool{Name: tool}); why != "this server stores no files" {
			t.Errorf("%s is unavailable: %q", tool, why)
		}
	}
}

// A store that fails shows nothing of the fault, and a caller that leaves gets its own error.
func TestStorage_FaultsAreNotShown(t *testing.T) {
	t.Parallel()
	dp := newDepot(t, builtin.Settings{})
	read := one(t, dp.set, assign("storage_read", ""))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read.Call(gone, callOf(read, `{"operation":"list","bucket":"reports"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	_ = dp.store.Close()
	for _, args := range []string{`{"operation":"list","bucket":"reports"}`, `{"operation":"download","bucket":"reports","path":"x"}`} {
		res := call(t, read, args)
		if !res.IsError || strings.Contains(res.Text, "sql") || strings.Contains(res.Text, "database") {
			t.Errorf("%s: %s", args, res.Text)
		}
	}
}
