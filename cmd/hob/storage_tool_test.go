package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"hob"
	"hob/client"
)

// files asks a server's object storage.
type files struct {
	t   *testing.T
	url string
	key string
}

func (s *serving) files() *files {
	s.in.t.Helper()
	key, err := os.ReadFile(filepath.Join(s.in.dir, "service.key"))
	if err != nil {
		s.in.t.Fatal(err)
	}
	return &files{s.in.t, s.url, strings.TrimSpace(string(key))}
}

// do sends a request below /storage/v1 and gives its status and answer.
func (f *files) do(method, path string, body io.Reader, size int64) (int, []byte) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+"/storage/v1/"+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.ContentLength = size
	r.Header.Set("Authorization", "Bearer "+f.key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer.StatusCode, b
}

func (f *files) must(method, path, body string) []byte {
	f.t.Helper()
	status, answer := f.do(method, path, strings.NewReader(body), int64(len(body)))
	if status != http.StatusOK {
		f.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

// toolResults are what the model read of its calls, in order.
func toolResults(t *testing.T, c *client.Client, run hob.RunID) []string {
	t.Helper()
	record, err := c.RunRecord(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, raw := range record.Events {
		var e struct {
			Event  hob.EventType `json:"event"`
			Type   hob.EventType `json:"type"`
			Result string        `json:"result"`
		}
		if err := json.Unmarshal(raw, &e); err == nil && (e.Event == hob.EventToolResult || e.Type == hob.EventToolResult) {
			results = append(results, e.Result)
		}
	}
	return results
}

// A run lists, writes, reads and gets a link; whoever has the link reads the file without a key.
func TestStorage_AnAgentListsWritesReadsAndLinks(t *testing.T) {
	t.Parallel()
	s3 := s3Service(t)
	for name, database := range databases(t) {
		for place, storage := range map[string]string{"folder": "", "s3": "s3://hob-files/" + name + "?endpoint=" + s3.URL} {
			t.Run(name+" "+place, func(t *testing.T) {
				t.Parallel()
				env := map[string]string{"HOB_DATABASE_URL": database}
				if database != "" && storage != "" { // one database has one place for its files
					env["HOB_DATABASE_URL"] = databases(t)["postgres"]
				}
				if storage != "" {
					env["HOB_STORAGE_URL"], env["HOB_STORAGE_ACCESS_KEY"], env["HOB_STORAGE_SECRET_KEY"] = storage, "key", "secret"
				}
				s := install(t, env).serve()
				f, c := s.files(), s.client()
				f.must("POST", "bucket", `{"id":"reports"}`)
				f.must("POST", "object/reports/2026/in.bin", "\x00\xffbinary")
				agent := scripted(t, c, `call: storage_write {"bucket":"reports","path":"/2026/out.md","content":"# Größe","content_type":"text/markdown"}
---
call: storage_read {"operation":"list","bucket":"reports","path":"2026/"}
---
call: storage_read {"operation":"download","bucket":"reports","path":"2026/out.md"}
---
call: storage_read {"operation":"download","bucket":"reports","path":"2026/in.bin"}
---
call: storage_read {"operation":"list","bucket":"secret"}
---
text: done
`)
				for _, tool := range []string{"storage_read", "storage_write"} {
					if _, err := c.Assign(t.Context(), agent, client.AssignmentInput{ToolName: tool, ConfigOverride: json.RawMessage(`{"buckets":{"reports":["2026/"]}}`)}); err != nil {
						t.Fatal(err)
					}
				}
				run, err := c.Run(t.Context(), agent, client.RunRequest{Message: "go", Tools: true})
				if err != nil || run.Status != hob.Completed {
					t.Fatalf("%+v, %v", run, err)
				}
				got := toolResults(t, c, run.RunID)
				if len(got) != 5 {
					t.Fatalf("results %q", got)
				}
				if got[0] != `{"path":"reports/2026/out.md","size":9}` {
					t.Errorf("written: %s", got[0])
				}
				mustContain(t, "the list", got[1], `"bucket":"reports","prefix":"2026/","objects":[`, `"name":"2026/in.bin"`, `"name":"2026/out.md"`)
				if got[2] != `{"bucket":"reports","path":"2026/out.md","encoding":"utf-8","content":"# Größe"}` {
					t.Errorf("read: %s", got[2])
				}
				mustContain(t, "another bucket", got[4], `{"error":"Failed to list objects: `, "may use reports")
				var binary struct {
					Encoding string
					Link     string `json:"signed_url"`
				}
				if err := json.Unmarshal([]byte(got[3]), &binary); err != nil || binary.Encoding != "binary" {
					t.Fatalf("binary: %s, %v", got[3], err)
				}
				answer, err := http.Get(binary.Link)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				if b, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || string(b) != "\x00\xffbinary" {
					t.Errorf("the link: %d %q, %v", answer.StatusCode, b, err)
				}
				if out := s.in.run("doctor"); !strings.Contains(out.stdout, "takes files and gives them back") {
					t.Errorf("doctor:\n%s", out.stdout)
				}
			})
		}
	}
}

// s3Service is an S3-compatible service with the bucket hob-files.
func s3Service(t *testing.T) *httptest.Server {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("hob-files"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s.Close)
	return s
}

// pattern is a body of so many bytes that is made as it is read.
type pattern struct{ left, at int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), p.left)
	for i := range n {
		b[i] = byte((p.at + i) * 31 >> 3)
	}
	p.left -= n
	p.at += n
	return int(n), nil
}

// memory is the resident memory of the server, in bytes.
func (s *serving) memory() int64 {
	s.in.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.in.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		s.in.t.Fatal(err)
	}
	return n << 10
}

// The largest upload goes through without being held in memory, and comes back as it was, whole and in parts.
func TestStorage_TheLargestUploadIsStreamed(t *testing.T) {
	t.Parallel()
	s3 := s3Service(t)
	for place, storage := range map[string]string{"folder": "", "s3": "s3://hob-files/large?endpoint=" + s3.URL} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{}
			if storage != "" {
				env = map[string]string{"HOB_STORAGE_URL": storage, "HOB_STORAGE_ACCESS_KEY": "key", "HOB_STORAGE_SECRET_KEY": "secret"}
			}
			s := install(t, env).serve()
			f := s.files()
			f.must("POST", "bucket", `{"id":"large"}`)
			f.must("POST", "object/large/small", "x")
			const size = hob.MaxFileSize
			sum := sha256.New()
			_, _ = io.Copy(sum, &pattern{left: size})
			before := s.memory()
			for i, announced := range []int64{size, -1} { // with a length, and in chunks
				if status, answer := f.do("POST", fmt.Sprint("object/large/x", i), &pattern{left: size}, announced); status != http.StatusOK {
					t.Fatalf("upload: %d %s", status, answer)
				}
			}
			status, got := f.do("GET", "object/large/x1", nil, 0)
			if digest := sha256.Sum256(got); status != http.StatusOK || !bytes.Equal(digest[:], sum.Sum(nil)) {
				t.Errorf("download: %d, %d bytes with the digest %s", status, len(got), hex.EncodeToString(digest[:]))
			}
			if grown := s.memory() - before; grown > 16<<20 {
				t.Errorf("the server grew by %d MB over two uploads and a download of 50 MB", grown>>20)
			}
			for i, announced := range []int64{size + 1, -1} {
				if status, answer := f.do("POST", fmt.Sprint("object/large/y", i), &pattern{left: size + 1}, announced); status != http.StatusRequestEntityTooLarge {
					t.Errorf("one byte more: %d %s", status, answer)
				}
			}
		})
	}
}

// A server that is killed in the midst of uploads has those that it answered, and nothing of the others is ever shown.
func TestStorage_KilledInTheMidstOfUploads(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	f := s.files()
	f.must("POST", "bucket", `{"id":"b"}`)
	f.must("POST", "object/b/whole", strings.Repeat("x", 1<<20))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /storage/v1/object/b/half HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 2000000\r\n\r\n", f.key)
	if _, err := conn.Write(bytes.Repeat([]byte("y"), 1_000_000)); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(in.dir, "files", "*", "*.part")
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if found, _ := filepath.Glob(part); len(found) == 1 {
			break
		}
	}
	s.kill()
	left, _ := filepath.Glob(part)
	if len(left) != 1 {
		t.Fatalf("half an upload left %v", left)
	}
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(left[0], old, old); err != nil {
		t.Fatal(err)
	}
	in.env["HOB_ADDR"] = "127.0.0.1:0"
	s = in.serve()
	f = s.files()
	if got := f.must("GET", "object/b/whole", ""); len(got) != 1<<20 {
		t.Errorf("what was answered has %d bytes", len(got))
	}
	if list := string(f.must("POST", "object/list/b", "{}")); strings.Contains(list, "half") {
		t.Errorf("half an upload is listed: %s", list)
	}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if left, _ = filepath.Glob(part); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("what the crash left is still there: %v\n%s", left, s.logs())
	}
}

// A backup has the bytes of files in the data folder, and a restore puts them back.
func TestBackup_HasTheFiles(t *testing.T) {
	t.Parallel()
	in := install(t, nil)
	s := in.serve()
	f := s.files()
	f.must("POST", "bucket", `{"id":"b","public":true}`)
	for i := range 3 {
		f.must("POST", fmt.Sprint("object/b/x", i), strings.Repeat(fmt.Sprint(i), 1000*(i+1)))
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	mustContain(t, "the backup", in.must("backup", file), "3 files: 6.0 KB")
	if held, _ := filepath.Glob(filepath.Join(in.dir, "files", ".held-*")); len(held) != 0 {
		t.Errorf("left behind: %v", held)
	}
	there := in.elsewhere("")
	mustContain(t, "the restore", there.must("restore", file), "3 files put back: 6.0 KB")
	back := there.serve()
	for i := range 3 {
		if got := back.files().must("GET", fmt.Sprint("object/b/x", i), ""); string(got) != strings.Repeat(fmt.Sprint(i), 1000*(i+1)) {
			t.Errorf("x%d has %d bytes", i, len(got))
		}
	}
	back.files().must("DELETE", "object/b/x0", "") // the restored store owns its files
	if blobs, _ := filepath.Glob(filepath.Join(there.dir, "files", "*", "*")); len(blobs) != 2 {
		t.Errorf("after a deletion: %v", blobs)
	}
}

// Of files in S3 a backup has the names. A restored copy reads them, and deletes none of them.
func TestBackup_OfFilesInS3LeavesThemThere(t *testing.T) {
	t.Parallel()
	s3 := s3Service(t)
	in := install(t, map[string]string{
		"HOB_STORAGE_URL": "s3://hob-files/eu?endpoint=" + s3.URL, "HOB_STORAGE_ACCESS_KEY": "key", "HOB_STORAGE_SECRET_KEY": "secret",
	})
	s := in.serve()
	s.files().must("POST", "bucket", `{"id":"b"}`)
	s.files().must("POST", "object/b/x", "kept")
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	mustContain(t, "the backup", in.must("backup", file), "files: NOT in it; their bytes lie in s3://hob-files/eu")
	there := in.elsewhere("")
	mustContain(t, "the restore", there.must("restore", file), "they lie in s3://hob-files/eu")
	back := there.serve()
	if got := back.files().must("GET", "object/b/x", ""); string(got) != "kept" {
		t.Errorf("the copy reads %q", got)
	}
	back.files().must("DELETE", "object/b/x", "")
	if got := s.files().must("GET", "object/b/x", ""); string(got) != "kept" {
		t.Errorf("after the copy deleted it the first one reads %q", got)
	}
	mustContain(t, "the copy's log", back.logs(), "the files belong to another database")
}
