package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/api"
	"hob/internal/storage"
)

// files asks below /storage/v1 with the service key. Headers are pairs.
func (w *world) storage(method, path, body string, header ...string) reply {
	w.t.Helper()
	h := map[string]string{}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return w.do(ask{method, "/storage/v1/" + path, w.service, body, h})
}

func (w *world) bucket(body string) {
	w.t.Helper()
	if r := w.storage("POST", "bucket", body); r.status != 200 {
		w.t.Fatalf("create a bucket: %d %s", r.status, r.body)
	}
}

func (w *world) upload(path, content string, header ...string) {
	w.t.Helper()
	if r := w.storage("POST", "object/"+path, content, header...); r.status != 200 {
		w.t.Fatalf("upload %s: %d %s", path, r.status, r.body)
	}
}

// storageFault is the body of an error below /storage/v1.
type storageFault struct{ StatusCode, Error, Message, Code string }

func wantStorageFault(t *testing.T, r reply, status int, kind, code string) {
	t.Helper()
	f := as[storageFault](t, r, status)
	if f.StatusCode != strconv.Itoa(status) || f.Error != kind || f.Code != code || f.Message == "" {
		t.Errorf("the answer is %s, want %d %s %s", r.body, status, kind, code)
	}
}

func TestStorage_BucketsHaveTheFormOfTheReference(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	r := w.storage("POST", "bucket", `{"id":"reports","name":"reports","public":true,"file_size_limit":"2MB","allowed_mime_types":["Image/*","text/plain"]}`)
	if got := string(bytes.TrimSpace(r.body)); r.status != 200 || got != `{"name":"reports"}` {
		t.Errorf("created: %d %s", r.status, got)
	}
	w.bucket(`{"name":"by-name"}`)
	list := as[[]map[string]any](t, w.storage("GET", "bucket", ""), 200)
	keys := []string{"allowed_mime_types", "created_at", "file_size_limit", "id", "name", "owner", "public", "updated_at"}
	for _, b := range list {
		if got := sortedKeys(b); !slices.Equal(got, keys) {
			t.Errorf("a bucket has %v, want %v", got, keys)
		}
	}
	if len(list) != 2 || list[0]["id"] != "by-name" || list[1]["file_size_limit"] != 2097152.0 || fmt.Sprint(list[1]["allowed_mime_types"]) != "[image/* text/plain]" {
		t.Errorf("buckets: %v", list)
	}
	wantStorageFault(t, w.storage("POST", "bucket", `{"id":"reports"}`), 409, "Duplicate", "bucket_exists")
	for _, body := range []string{
		`{}`, `{"id":"a/b"}`, `{"id":"sign"}`, `{"id":".."}`, `{"id":7}`, `{"id":"x","file_size_limit":-1}`, `{"id":"x","file_size_limit":"many"}`,
		`{"id":"x","allowed_mime_types":["png"]}`, `{"id":"x","allowed_mime_types":"image/png"}`, `{"id":"x","public":"yes"}`,
		`{"id":"x","allowed_mime_types":["a/b"` + strings.Repeat(`,"a/b"`, hob.MaxBucketTypes) + `]}`, `[]`, ``,
	} {
		if f := as[storageFault](t, w.storage("POST", "bucket", body), 400); f.StatusCode != "400" {
			t.Errorf("%s: %+v", body, f)
		}
	}
	if r := w.storage("PUT", "bucket/reports", `{"file_size_limit":null,"allowed_mime_types":null}`); string(bytes.TrimSpace(r.body)) != `{"message":"Successfully updated"}` {
		t.Errorf("updated: %d %s", r.status, r.body)
	}
	b := as[hob.Bucket](t, w.storage("GET", "bucket/reports", ""), 200)
	if !b.Public || b.MaxSize != nil || b.Types != nil {
		t.Errorf("after the change: %+v", b)
	}
	w.upload("reports/x", "x")
	wantStorageFault(t, w.storage("DELETE", "bucket/reports", ""), 409, "conflict", "bucket_not_empty")
	for _, step := range []struct{ method, path, want string }{
		{"POST", "bucket/reports/empty", `{"message":"Successfully emptied"}`}, {"DELETE", "bucket/reports", `{"message":"Successfully deleted"}`},
	} {
		if r := w.storage(step.method, step.path, ""); r.status != 200 || string(bytes.TrimSpace(r.body)) != step.want {
			t.Errorf("%s: %d %s", step.path, r.status, r.body)
		}
	}
	wantStorageFault(t, w.storage("GET", "bucket/reports", ""), 404, "not_found", "bucket_not_found")
	wantStorageFault(t, w.do(ask{"GET", "/storage/v1/bucket", "", "", nil}), 401, "unauthorized", "authorization_required")
	wantStorageFault(t, w.storage("GET", "nothing", ""), 404, "not_found", "not_found")
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestStorage_ObjectsGoThroughTheirLife(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	const content = "Größe: 7\n"
	r := w.storage("POST", "object/b/2026/a%20b.txt", content, "Content-Type", "text/plain; charset=utf-8")
	key := as[map[string]string](t, r, 200)
	if key["Key"] != "b/2026/a b.txt" || !hob.IsUUID(key["Id"]) || len(key) != 2 {
		t.Errorf("uploaded: %s", r.body)
	}
	wantStorageFault(t, w.storage("POST", "object/b/2026/a%20b.txt", "other"), 409, "Duplicate", "object_exists")
	for _, path := range []string{"object/b/2026/a%20b.txt", "object/authenticated/b/2026/a%20b.txt", "object/b/2026%2Fa%20b.txt", "object/b/%2F2026/a%20b.txt"} {
		r = w.storage("GET", path, "")
		if r.status != 200 || string(r.body) != content || r.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %q %v", path, r.status, r.body, r.header)
		}
	}
	w.upload("b/2026/c.html", "<!DOCTYPE html><script>alert(1)</script>")
	rows := as[[]map[string]any](t, w.storage("POST", "object/list/b", `{"prefix":"2026/","limit":100,"offset":0,"sortBy":{"column":"name","order":"asc"}}`), 200)
	keys := []string{"bucket_id", "created_at", "id", "last_accessed_at", "metadata", "name", "owner", "updated_at"}
	if len(rows) != 2 || !slices.Equal(sortedKeys(rows[0]), keys) || rows[0]["name"] != "2026/a b.txt" || rows[0]["bucket_id"] != "b" {
		t.Errorf("rows: %v", rows)
	}
	meta, _ := rows[0]["metadata"].(map[string]any)
	if meta["size"] != float64(len(content)) || meta["mimetype"] != "text/plain; charset=utf-8" {
		t.Errorf("metadata: %v", meta)
	}
	info := as[map[string]any](t, w.storage("GET", "object/info/b/2026/a%20b.txt", ""), 200)
	if d := cmp.Diff(rows[0], info); d != "" {
		t.Errorf("-row +info:\n%s", d)
	}
	for _, c := range []struct{ body, want string }{
		{`{"limit":1}`, "2026/a b.txt"},
		{`{"limit":1,"offset":1}`, "2026/c.html"},
		{`{"search":"c.h"}`, "2026/c.html"},
		{`{"search":"%"}`, ""},
		{`{"sortBy":{"column":"created_at","order":"desc"},"limit":1}`, "2026/c.html"},
		{`{"prefix":"2027"}`, ""},
	} {
		var names []string
		for _, o := range as[[]hob.File](t, w.storage("POST", "object/list/b", c.body), 200) {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, ","); got != c.want {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
	if r := w.storage("POST", "object/list/b", ""); len(as[[]hob.File](t, r, 200)) != 2 {
		t.Errorf("a list without a body: %s", r.body)
	}
	for _, bad := range []string{`{"sortBy":{"column":"blob"}}`, `{"sortBy":{"order":"up"}}`, `{"limit":"x"}`} {
		as[storageFault](t, w.storage("POST", "object/list/b", bad), 400)
	}
	// Replaced, copied, moved, deleted.
	w.upload("b/2026/a%20b.txt", "new", "x-upsert", "true")
	if r := w.storage("PUT", "object/b/2026/a%20b.txt", "newer", "Content-Type", "text/csv"); r.status != 200 {
		t.Errorf("PUT: %d %s", r.status, r.body)
	}
	w.bucket(`{"id":"c"}`)
	r = w.storage("POST", "object/copy", `{"bucketId":"b","sourceKey":"2026/a b.txt","destinationBucket":"c","destinationKey":"copy"}`)
	if k := as[map[string]string](t, r, 200); k["Key"] != "c/copy" {
		t.Errorf("copied: %s", r.body)
	}
	wantStorageFault(t, w.storage("POST", "object/copy", `{"bucketId":"b","sourceKey":"2026/c.html","destinationBucket":"c","destinationKey":"copy"}`), 409, "Duplicate", "object_exists")
	if r := w.storage("POST", "object/copy", `{"bucketId":"b","sourceKey":"2026/c.html","destinationBucket":"c","destinationKey":"copy"}`, "x-upsert", "true"); r.status != 200 {
		t.Errorf("copied over another: %d %s", r.status, r.body)
	}
	if r := w.storage("POST", "object/move", `{"bucketId":"c","sourceKey":"copy","destinationKey":"moved/it"}`); string(bytes.TrimSpace(r.body)) != `{"message":"Successfully moved"}` {
		t.Errorf("moved: %d %s", r.status, r.body)
	}
	wantStorageFault(t, w.storage("POST", "object/move", `{"bucketId":"c","sourceKey":"copy","destinationKey":"x"}`), 404, "not_found", "object_not_found")
	if r := w.storage("DELETE", "object/c/moved/it", ""); string(bytes.TrimSpace(r.body)) != `{"message":"Successfully deleted"}` {
		t.Errorf("deleted: %d %s", r.status, r.body)
	}
	wantStorageFault(t, w.storage("DELETE", "object/c/moved/it", ""), 404, "not_found", "object_not_found")
	if r := w.storage("GET", "object/b/2026/a%20b.txt", ""); string(r.body) != "newer" || r.header.Get("Content-Type") != "text/csv" {
		t.Errorf("after all: %s", r.body)
	}
	gone := as[[]hob.File](t, w.storage("DELETE", "object/b", `{"prefixes":["2026/a b.txt","absent","2026/c.html"]}`), 200)
	if len(gone) != 2 {
		t.Errorf("deleted: %v", gone)
	}
	for _, bad := range []string{`{}`, `{"prefixes":[]}`, `{"prefixes":["../x"]}`, `{"prefixes":["a"` + strings.Repeat(`,"a"`, hob.MaxFilesDeleted) + `]}`} {
		as[storageFault](t, w.storage("DELETE", "object/b", bad), 400)
	}
	if n := w.blobs(); n != 0 {
		t.Errorf("%d files are left on the disk", n)
	}
}

// blobs is how many files lie on the disk, whole or not.
func (w *world) blobs() int {
	w.t.Helper()
	n := 0
	err := filepath.WalkDir(w.filesDir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "owner" {
			n++
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Names that could mean another place are refused, in whatever spelling, and so are odd buckets.
func TestStorage_NamesThatCouldMeanAnotherPlaceAreRefused(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	for _, name := range []string{
		"%2e%2e/x", "%2e%2e%2fx", "a/%2e%2e/x", "a%2f..%2fx", "..%2f..%2fetc%2fpasswd", "a%00b", "a%5cb", "..%5cx", "%2e", "a/%2e/b", "a%2f%2fb", "x%2f",
		"a%0ab", "%ff", strings.Repeat("x", hob.MaxFileName+1), "%2f",
	} {
		for _, method := range []string{"POST", "PUT", "GET", "DELETE"} {
			r := w.storage(method, "object/b/"+name, "x")
			if r.status != 400 {
				t.Errorf("%s %s: %d %s", method, name, r.status, r.body)
			}
		}
		for _, place := range []string{"info", "public", "sign", "authenticated"} {
			if r := w.storage("GET", "object/"+place+"/b/"+name+"?token=x.y", ""); r.status != 400 && r.status != 404 {
				t.Errorf("%s %s: %d %s", place, name, r.status, r.body)
			}
		}
		plain, err := url.PathUnescape(name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(plain)
		if err != nil || name == "%ff" { // JSON makes text of it
			continue
		}
		for _, op := range []string{"copy", "move"} {
			if r := w.storage("POST", "object/"+op, `{"bucketId":"b","sourceKey":"x","destinationKey":`+string(raw)+`}`); r.status != 400 {
				t.Errorf("%s to %s: %d %s", op, name, r.status, r.body)
			}
		}
	}
	for _, path := range []string{"object/b/../x", "object/b//x", "object/b/./x"} { // as they stand, nothing is there
		if r := w.storage("GET", path, ""); r.status != 404 {
			t.Errorf("%s: %d", path, r.status)
		}
	}
	for _, bucket := range []string{"%2e%2e", "a%2fb", "%00", "absent"} {
		wantStorageFault(t, w.storage("POST", "object/"+bucket+"/x", "x"), 404, "not_found", "bucket_not_found")
	}
	w.upload("b/"+strings.Repeat("x", hob.MaxFileName), "x")
	if n := w.blobs(); n != 1 {
		t.Errorf("%d files lie on the disk", n)
	}
}

func TestStorage_DownloadsAreNobodysPages(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b","public":true}`)
	png := "\x89PNG\r\n\x1a\n rest"
	for _, c := range []struct{ name, kind, query, disposition string }{
		{"x.html", "text/html", "", "attachment; filename=x.html"},
		{"x.svg", "image/svg+xml", "", "attachment; filename=x.svg"},
		{"x.txt", "text/plain", "", "attachment; filename=x.txt"},
		{"x.pdf", "application/pdf", "", "attachment; filename=x.pdf"},
		{"d/x.png", "image/png", "", "inline"},
		{"d/y.png", "image/png", "?download", "attachment; filename=y.png"},
		{"d/z.png", "image/png", "?download=a%20name.png", `attachment; filename="a name.png"`},
		{"d/w.png", "image/png", "?download=..%2F..%2Fevil%22%0d%0aX-Y:z", "attachment; filename=w.png"},
		{"d/v.png", "image/png", "?download=..%2F..%2Fevil.exe", "attachment; filename=evil.exe"},
		{"größe.txt", "text/plain", "", "attachment; filename*=utf-8''gr%C3%B6%C3%9Fe.txt"},
	} {
		w.upload("b/"+url.PathEscape(c.name), png, "Content-Type", c.kind)
		r := w.do(ask{"GET", "/storage/v1/object/public/b/" + url.PathEscape(c.name) + c.query, "", "", nil})
		h := r.header
		if r.status != 200 || h.Get("Content-Disposition") != c.disposition || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("Content-Type") != c.kind || h.Get("X-Y") != "" {
			t.Errorf("%s%s: %d %v, want %s", c.name, c.query, r.status, h, c.disposition)
		}
	}
	// Without a type the bytes tell it; what curl says of every body is none.
	for _, kind := range []string{"", "application/x-www-form-urlencoded"} {
		w.upload("b/sniffed", png, "Content-Type", kind, "x-upsert", "true")
		if r := w.storage("GET", "object/b/sniffed", ""); r.header.Get("Content-Type") != "image/png" || r.header.Get("Content-Disposition") != "inline" {
			t.Errorf("type %q: %v", kind, r.header)
		}
	}
	for _, kind := range []string{"nonsense", "text/plain; =", strings.Repeat("a", 300) + "/b"} {
		wantStorageFault(t, w.storage("POST", "object/b/typed", "x", "Content-Type", kind), 400, "invalid_request", "invalid_mime_type")
	}
	if r := w.storage("POST", "object/b/typed", "x", "Content-Encoding", "gzip"); r.status != 415 {
		t.Errorf("an encoded body: %d %s", r.status, r.body)
	}
}

func TestStorage_RangesHeadAndRevalidation(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	w.upload("b/x", "0123456789", "Content-Type", "text/plain")
	whole := w.storage("GET", "object/b/x", "")
	sum := sha256.Sum256([]byte("0123456789"))
	if tag := whole.header.Get("ETag"); tag != `"`+hex.EncodeToString(sum[:])+`"` || whole.header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("headers: %v", whole.header)
	}
	for _, c := range []struct {
		header string
		status int
		body   string
	}{
		{"bytes=2-4", 206, "234"},
		{"bytes=-3", 206, "789"},
		{"bytes=5-", 206, "56789"},
		{"bytes=0-99", 206, "0123456789"},
		{"bytes=10-", 416, ""},
		{"bytes=x", 416, ""},
	} {
		r := w.storage("GET", "object/b/x", "", "Range", c.header)
		if r.status != c.status || c.body != "" && string(r.body) != c.body {
			t.Errorf("%s: %d %q", c.header, r.status, r.body)
		}
	}
	if r := w.storage("HEAD", "object/b/x", ""); r.status != 200 || r.header.Get("Content-Length") != "10" || len(r.body) != 0 {
		t.Errorf("HEAD: %d %v", r.status, r.header)
	}
	tag := whole.header.Get("ETag")
	if r := w.storage("GET", "object/b/x", "", "If-None-Match", tag); r.status != 304 || len(r.body) != 0 {
		t.Errorf("unchanged: %d", r.status)
	}
	w.upload("b/x", "changed", "x-upsert", "true")
	if r := w.storage("GET", "object/b/x", "", "If-None-Match", tag); r.status != 200 || string(r.body) != "changed" {
		t.Errorf("changed: %d %s", r.status, r.body)
	}
	if r := w.storage("GET", "object/b/x", "", "Range", "bytes=0-1", "If-Range", tag); r.status != 200 {
		t.Errorf("a range of what has changed: %d", r.status)
	}
	wantStorageFault(t, w.storage("GET", "object/b/absent", ""), 404, "not_found", "object_not_found")
	w.upload("b/empty", "")
	if r := w.storage("GET", "object/b/empty", ""); r.status != 200 || len(r.body) != 0 {
		t.Errorf("an empty object: %d %q", r.status, r.body)
	}
}

func TestStorage_SizeAndTypeAreBounded(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.Upload = 1000 })
	w.bucket(`{"id":"b"}`)
	w.bucket(`{"id":"small","file_size_limit":10,"allowed_mime_types":["text/plain","image/*"]}`)
	w.upload("b/most", strings.Repeat("x", 1000))
	wantStorageFault(t, w.storage("POST", "object/b/more", strings.Repeat("x", 1001)), 413, "too_large", "too_large")
	w.upload("small/most", strings.Repeat("x", 10), "Content-Type", "text/plain")
	wantStorageFault(t, w.storage("POST", "object/small/more", strings.Repeat("x", 11), "Content-Type", "text/plain"), 413, "too_large", "too_large")
	wantStorageFault(t, w.storage("POST", "object/small/type", "x", "Content-Type", "text/html"), 400, "invalid_request", "invalid_mime_type")
	wantStorageFault(t, w.storage("POST", "object/move", `{"bucketId":"b","sourceKey":"most","destinationBucket":"small","destinationKey":"x"}`), 413, "too_large", "too_large")
	// A body of unknown size is bounded as well.
	for size, want := range map[int]int{1000: 200, 1001: 413, 5000: 413} {
		r := w.request(ask{"POST", "/storage/v1/object/b/chunked" + strconv.Itoa(size), w.service, "", nil})
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", size))), -1
		answer, err := w.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%d bytes in chunks: %d, want %d", size, answer.StatusCode, want)
		}
	}
	if n := w.blobs(); n != 3 {
		t.Errorf("%d files lie on the disk, want those of 3 objects", n)
	}
}

func TestStorage_DefaultBoundIs50MB(t *testing.T) {
	t.Parallel()
	if l := api.DefaultLimits(); l.Upload != 50<<20 || l.UploadTime != 30*time.Minute {
		t.Errorf("limits %+v", l)
	}
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	r := w.request(ask{"POST", "/storage/v1/object/b/x", w.service, "", nil})
	r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 50<<20+1)), 50<<20+1
	answer, err := w.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != 413 {
		t.Errorf("one byte more than 50 MB: %d", answer.StatusCode)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestStorage_FormsAreTakenAsClientsSendThem(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.Upload = 1000 })
	w.bucket(`{"id":"b"}`)
	form := func(size int, part textproto.MIMEHeader) (string, string) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		if err := m.WriteField("cacheControl", "3600"); err != nil {
			t.Fatal(err)
		}
		if part != nil {
			p, err := m.CreatePart(part)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = p.Write(bytes.Repeat([]byte("x"), size))
		}
		_ = m.Close()
		return b.String(), m.FormDataContentType()
	}
	for name, head := range map[string]textproto.MIMEHeader{
		"blob":  {"Content-Disposition": {`form-data; name=""; filename="blob"`}, "Content-Type": {"image/webp"}},
		"named": {"Content-Disposition": {`form-data; name="file"; filename="../../x"`}, "Content-Type": {"image/webp"}},
	} {
		body, kind := form(1000, head)
		w.upload("b/"+name, body, "Content-Type", kind)
		r := w.storage("GET", "object/b/"+name, "")
		if len(r.body) != 1000 || r.header.Get("Content-Type") != "image/webp" {
			t.Errorf("%s: %d bytes, %v", name, len(r.body), r.header)
		}
		body, kind = form(1001, head)
		if r := w.storage("POST", "object/b/large", body, "Content-Type", kind); r.status != 413 {
			t.Errorf("%s: one byte too many: %d %s", name, r.status, r.body)
		}
		if r := w.storage("POST", "object/b/cut", body[:len(body)-700], "Content-Type", kind); r.status != 400 {
			t.Errorf("%s: a form that is cut: %d %s", name, r.status, r.body)
		}
	}
	body, kind := form(0, nil)
	wantStorageFault(t, w.storage("POST", "object/b/none", body, "Content-Type", kind), 400, "invalid_request", "invalid_body")
	wantStorageFault(t, w.storage("POST", "object/b/none", "x", "Content-Type", "multipart/form-data"), 400, "invalid_request", "invalid_body")
	if n := w.blobs(); n != 2 {
		t.Errorf("%d files lie on the disk", n)
	}
}

func TestStorage_SignedLinksOpenOneObjectForAWhile(t *testing.T) {
	t.Parallel()
	at := &steppedClock{now: time.Now()}
	w := begin(t, nil)
	w.files.Clock = at.read
	w.bucket(`{"id":"b"}`)
	w.upload("b/a%20b/x.txt", "secret")
	w.upload("b/other", "secret")
	sign := func(body string) string {
		s := as[map[string]string](t, w.storage("POST", "object/sign/b/a%20b/x.txt", body), 200)
		if !strings.HasPrefix(s["signedURL"], "/object/sign/b/a%20b/x.txt?token=") || len(s) != 1 {
			t.Errorf("signed: %v", s)
		}
		return s["signedURL"]
	}
	get := func(link string) reply { return w.do(ask{"GET", "/storage/v1" + link, "", "", nil}) }
	link := sign(`{"expiresIn":10}`)
	if r := get(link); r.status != 200 || string(r.body) != "secret" || r.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("the link: %d %s", r.status, r.body)
	}
	if r := w.do(ask{"HEAD", "/storage/v1" + link, "", "", nil}); r.status != 200 {
		t.Errorf("HEAD: %d", r.status)
	}
	_, token, _ := strings.Cut(link, "?token=")
	head, mac, _ := strings.Cut(token, ".")
	other := sign(`{"expiresIn":604800}`)
	_, otherToken, _ := strings.Cut(other, "?token=")
	otherHead, _, _ := strings.Cut(otherToken, ".")
	for what, bad := range map[string]string{
		"another object": "/object/sign/b/other?token=" + token, "another bucket": "/object/sign/c/a%20b/x.txt?token=" + token,
		"no token": "/object/sign/b/a%20b/x.txt", "an empty one": "/object/sign/b/a%20b/x.txt?token=", "a later end": "/object/sign/b/a%20b/x.txt?token=" + otherHead + "." + mac,
		"no signature": "/object/sign/b/a%20b/x.txt?token=" + head + ".", "a changed one": "/object/sign/b/a%20b/x.txt?token=" + token[:len(token)-2] + "AA",
		"a long one": "/object/sign/b/a%20b/x.txt?token=" + token + strings.Repeat("A", 5000), "garbage": "/object/sign/b/a%20b/x.txt?token=%00",
	} {
		if r := get(bad); r.status != 400 || strings.Contains(string(r.body), "secret") {
			t.Errorf("%s: %d %s", what, r.status, r.body)
		}
	}
	if r := w.do(ask{"DELETE", "/storage/v1" + link, "", "", nil}); r.status != 401 && r.status != 405 {
		t.Errorf("DELETE by a link: %d", r.status)
	}
	at.add(10 * time.Second)
	wantStorageFault(t, get(link), 400, "invalid_request", "link_expired")
	if r := get(other); r.status != 200 {
		t.Errorf("the longest link: %d", r.status)
	}
	at.add(hob.MaxLinkTime)
	wantStorageFault(t, get(other), 400, "invalid_request", "link_expired")
	for _, body := range []string{`{"expiresIn":0}`, `{"expiresIn":-1}`, `{"expiresIn":604801}`, `{"expiresIn":1.5}`, `{"expiresIn":"60"}`} {
		as[storageFault](t, w.storage("POST", "object/sign/b/a%20b/x.txt", body), 400)
	}
	short := sign(``) // a minute
	at.add(59 * time.Second)
	if r := get(short); r.status != 200 {
		t.Errorf("within its minute: %d", r.status)
	}
	at.add(time.Second)
	if r := get(short); r.status != 400 {
		t.Errorf("after its minute: %d", r.status)
	}
	wantStorageFault(t, w.storage("POST", "object/sign/b/absent", `{}`), 404, "not_found", "object_not_found")
	link = sign(`{}`)
	if r := w.storage("DELETE", "object/b/a%20b/x.txt", ""); r.status != 200 {
		t.Fatal(r.status)
	}
	wantStorageFault(t, get(link), 404, "not_found", "object_not_found")
}

type steppedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *steppedClock) read() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *steppedClock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

func TestStorage_OnlyPublicBucketsAreForEverybody(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"private"}`)
	w.upload("private/x", "secret")
	get := func(path string) reply { return w.do(ask{"GET", "/storage/v1/object/" + path, "", "", nil}) }
	wantStorageFault(t, get("public/private/x"), 404, "not_found", "bucket_not_found")
	absent := get("public/absent/x")
	if hidden := get("public/private/x"); string(absent.body) != string(hidden.body) {
		t.Errorf("hidden %s, absent %s", hidden.body, absent.body)
	}
	for _, path := range []string{"private/x", "authenticated/private/x", "info/private/x"} {
		if r := get(path); r.status != 401 {
			t.Errorf("%s without a key: %d", path, r.status)
		}
		if r := w.do(ask{"GET", "/storage/v1/object/" + path, user(t, "u"), "", nil}); r.status != 404 {
			t.Errorf("%s as a user: %d", path, r.status)
		}
	}
	if list := as[[]hob.Bucket](t, w.do(ask{"GET", "/storage/v1/bucket", user(t, "u"), "", nil}), 200); len(list) != 0 {
		t.Errorf("a user sees %v", list)
	}
	if r := w.storage("PUT", "bucket/private", `{"public":true}`); r.status != 200 {
		t.Fatal(r.status)
	}
	if r := get("public/private/x"); r.status != 200 || string(r.body) != "secret" {
		t.Errorf("made public: %d", r.status)
	}
	if r := w.storage("PUT", "bucket/private", `{"public":false}`); r.status != 200 {
		t.Fatal(r.status)
	}
	wantStorageFault(t, get("public/private/x"), 404, "not_found", "bucket_not_found")
}

// An upload that stands still, breaks off or takes too long leaves nothing; one that is slow and goes on is taken.
func TestStorage_SlowAndBrokenUploads(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.BodyTime, c.Limits.UploadTime = 300*time.Millisecond, 2*time.Second })
	w.bucket(`{"id":"b"}`)
	send := func(name string, announced int, pieces int, pause time.Duration, cut bool) string {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /storage/v1/object/b/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", name, w.service, announced)
		for range pieces {
			time.Sleep(pause)
			if _, err := conn.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
				break
			}
		}
		if cut {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, _ := io.ReadAll(conn)
		return string(answer)
	}
	var wg sync.WaitGroup
	for _, c := range []struct {
		name              string
		announced, pieces int
		pause             time.Duration
		cut               bool
		want              string
	}{
		{"slow", 1000, 10, 100 * time.Millisecond, false, " 200 "}, // a second in all, more than BodyTime
		{"still", 1000, 5, 0, false, "body_timeout"},
		{"endless", 100_000, 60, 50 * time.Millisecond, false, "body_timeout"},
		{"cut", 1000, 9, 0, true, " 400 "},
		{"cut-early", 1000, 1, 0, true, " 400 "},
	} {
		wg.Go(func() {
			if got := send(c.name, c.announced, c.pieces, c.pause, c.cut); !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		})
	}
	wg.Wait()
	if list := as[[]hob.File](t, w.storage("POST", "object/list/b", ""), 200); len(list) != 1 || list[0].Name != "slow" {
		t.Errorf("objects: %v", list)
	}
	if n := w.blobs(); n != 1 {
		t.Errorf("%d files lie on the disk", n)
	}
}

func TestStorage_WithoutAPlaceForFilesIsUnavailable(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Files = nil })
	w.bucket(`{"id":"b"}`)
	for _, r := range []reply{w.storage("POST", "object/b/x", "x"), w.storage("GET", "object/b/x", ""), w.storage("GET", "object/public/b/x", ""), w.storage("POST", "bucket/b/empty", "")} {
		wantStorageFault(t, r, 503, "unavailable", "unavailable")
	}
}

func TestStorage_FaultsOfOursHaveItsForm(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	w.upload("b/x", "x")
	w.files.Backend = storage.Backend(brokenPlace{})
	wantStorageFault(t, w.storage("GET", "object/b/x", ""), 503, "unavailable", "storage_unavailable")
	wantStorageFault(t, w.storage("POST", "object/b/y", "x"), 503, "unavailable", "storage_unavailable")
	if strings.Contains(string(w.storage("GET", "object/b/x", "").body), "inner detail") {
		t.Error("the fault's cause is shown")
	}
	_ = w.store.Close()
	f := as[storageFault](t, w.storage("GET", "bucket/b", ""), 500)
	if f.StatusCode != "500" || f.Code != "internal" || !strings.Contains(f.Message, "went wrong") {
		t.Errorf("the answer is %+v", f)
	}
}
