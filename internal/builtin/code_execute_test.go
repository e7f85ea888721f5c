package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
)

// box is a sandbox of this machine whose answers are set.
type box struct {
	off    string
	asked  builtin.CodeRequest
	result builtin.CodeResult
	err    error
}

func (b *box) Unavailable(context.Context) string { return b.off }

func (b *box) Run(_ context.Context, r builtin.CodeRequest) (builtin.CodeResult, error) {
	b.asked = r
	return b.result, b.err
}

// drawer keeps files in memory; refuse makes storing fail.
type drawer struct {
	hob.FileService
	buckets []string
	files   map[string]string
	put     hob.NewFile // the last one
	by      []hob.Principal
	refuse  error
}

func (s *drawer) EnsureOwned(_ context.Context, _ hob.Principal, id string) error {
	s.buckets = append(s.buckets, id)
	return s.refuse
}

func (s *drawer) Put(_ context.Context, by hob.Principal, f hob.NewFile) (hob.File, bool, error) {
	s.put, s.by = f, append(s.by, by)
	b, err := io.ReadAll(f.Body)
	if err != nil {
		return hob.File{}, false, err
	}
	if s.files == nil {
		s.files = map[string]string{}
	}
	s.files[f.Bucket+"/"+f.Name] = string(b)
	return hob.File{Bucket: f.Bucket, Name: f.Name}, false, nil
}

func (s *drawer) Link(_ context.Context, by hob.Principal, bucket, name string, d time.Duration) (string, error) {
	s.by = append(s.by, by)
	return "https://files.test/" + bucket + "/" + name + "?for=" + d.String(), nil
}

// The run's own principal may see no bucket, as those of users and of keys bound to an agent: the files are theirs all the
// same.
func TestCodeExecute_KeepsFilesForWhoeverRuns(t *testing.T) {
	t.Parallel()
	files := &drawer{}
	b := &box{result: builtin.CodeResult{Files: []builtin.CodeFile{{Name: "a.txt", Data: []byte("x")}}}}
	r := one(t, newSet(t, builtin.Deps{Code: b, Files: files}), assign("code_execute", ""))
	for _, session := range []hob.SessionID{"s", ""} {
		c := callOf(r, python)
		c.Session, c.Principal = session, hob.Principal{Kind: hob.UserPrincipal, ID: "u1", Workspace: hob.DefaultWorkspace}
		files.by = nil
		if res, err := r.Call(t.Context(), c); err != nil || res.IsError || !strings.Contains(res.Text, `"url":"https://files.test/code-output/run_1/`) {
			t.Fatalf("%v %s", err, res.Text)
		}
		for _, by := range files.by {
			if by.Kind != hob.SystemPrincipal || by.Workspace != hob.DefaultWorkspace {
				t.Errorf("stored and linked as %+v", by)
			}
		}
		want := map[hob.SessionID]hob.RunID{"s": "run_1", "": ""}[session] // the test console has no run that could be gone
		if files.put.Owner != "user:u1" || files.put.Run != want {
			t.Errorf("owned by %q, of run %q", files.put.Owner, files.put.Run)
		}
	}
}

const python = `{"language":"python","code":"print(1)"}`

func TestCodeExecute_GivesOutputAndLinksToFiles(t *testing.T) {
	t.Parallel()
	b := &box{result: builtin.CodeResult{
		Stdout: "1\n", Stderr: "warned", ExitCode: 0, Files: []builtin.CodeFile{{Name: "sub/a.csv", Data: []byte("1,2")}, {Name: "b", Data: []byte{0, 1}}},
	}}
	files := &drawer{}
	r := one(t, newSet(t, builtin.Deps{Code: b, Files: files}), assign("code_execute", ""))
	res := call(t, r, python)
	want := `{"stdout":"1\n","stderr":"warned","exit_code":0,"files":[` +
		`{"name":"sub/a.csv","size":3,"type":"text/csv","url":"https://files.test/code-output/run_1/call_1/sub/a.csv?for=1h0m0s"},` +
		`{"name":"b","size":2,"type":"application/octet-stream","url":"https://files.test/code-output/run_1/call_1/b?for=1h0m0s"}]}`
	if diff := cmp.Diff(want, res.Text); diff != "" || res.IsError || res.Free || res.Action != hob.ActionCodeExecute {
		t.Errorf("%+v\n%s", res, diff)
	}
	if diff := cmp.Diff(map[string]string{"code-output/run_1/call_1/sub/a.csv": "1,2", "code-output/run_1/call_1/b": "\x00\x01"}, files.files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(builtin.CodeRequest{Language: "python", Code: "print(1)", Timeout: 30 * time.Second}, b.asked); diff != "" {
		t.Error(diff)
	}
}

func TestCodeExecute_SaysThatFilesCannotBeKept(t *testing.T) {
	t.Parallel()
	result := builtin.CodeResult{Files: []builtin.CodeFile{{Name: "a.txt", Data: []byte("x")}}}
	for name, d := range map[string]builtin.Deps{
		"no storage": {Code: &box{result: result}},
		"refused":    {Code: &box{result: result}, Files: &drawer{refuse: hob.Errorf(hob.Unavailable, "the place is full")}},
	} {
		res := call(t, one(t, newSet(t, d), assign("code_execute", "")), python)
		if !strings.Contains(res.Text, `"name":"a.txt"`) || strings.Contains(res.Text, `"url"`) || !strings.Contains(res.Text, `"error":"the files cannot be downloaded: `) {
			t.Errorf("%s: %s", name, res.Text)
		}
	}
}

func TestCodeExecute_TellsOfLimitsAndFailures(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		box  box
		want []string
		free bool
	}{
		"exit code": {box{result: builtin.CodeResult{ExitCode: 3}}, []string{`"exit_code":3`}, false},
		"timeout":   {box{result: builtin.CodeResult{ExitCode: 137, TimedOut: true, Limits: []string{"the program was ended after 1s"}}}, []string{`"timed_out":true`, `"error":"the program was ended after 1s"`}, false},
		"skipped":   {box{result: builtin.CodeResult{ExitCode: 1, Truncated: true, Skipped: []string{"a: too long"}}}, []string{`"truncated":true`, `"skipped_files":["a: too long"]`}, false},
		"busy":      {box{err: hob.Errorf(hob.Unavailable, "too many")}, []string{`{"error":"Sandbox unavailable: too many"}`}, true},
		"fault":     {box{err: errors.New("secret detail")}, []string{`{"error":"Sandbox unavailable: the program could not be run"}`}, true},
		"language":  {box{err: hob.Errorf(hob.Invalid, "Unsupported language: python: not installed; allowed: javascript")}, []string{`{"error":"Unsupported language: python: not installed; allowed: javascript"}`}, true},
		"a wall":    {box{off: "this machine lacks a wall (landlock)"}, []string{`{"error":"Code sandbox is not configured: this machine lacks a wall (landlock)"}`}, true},
	}
	for name, tt := range tests {
		res := call(t, one(t, newSet(t, builtin.Deps{Code: &tt.box}), assign("code_execute", "")), python)
		for _, w := range tt.want {
			if !strings.Contains(res.Text, w) {
				t.Errorf("%s: %s lacks %s", name, res.Text, w)
			}
		}
		if !res.IsError || res.Free != tt.free || res.Action != hob.ActionCodeExecute || !json.Valid([]byte(res.Text)) {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func TestCodeExecute_WithoutASandboxIsOfferedAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{})
	res := call(t, one(t, s, assign("code_execute", "")), python)
	if res.Text != `{"error":"Code sandbox is not configured"}` || !res.IsError || !res.Free {
		t.Errorf("%+v", res)
	}
	if got := s.Unavailable(t.Context(), hob.DefaultWorkspace, hob.Tool{Name: "code_execute"}); !strings.HasPrefix(got, "Code sandbox is not configured: ") || !strings.Contains(got, "HOB_SANDBOX=auto") {
		t.Errorf("unavailable because %q", got)
	}
}

func TestCodeExecute_JudgesItsArguments(t *testing.T) {
	t.Parallel()
	b := &box{}
	s := newSet(t, builtin.Deps{Code: b})
	only := one(t, s, assign("code_execute", `{"languages":["python"],"timeout":5}`))
	if !strings.Contains(only.Spec().Description, "Only python is allowed here.") || strings.Contains(string(only.Spec().Schema), "timeout") {
		t.Errorf("%s\n%s", only.Spec().Description, only.Spec().Schema)
	}
	all := one(t, s, assign("code_execute", ""))
	for _, tt := range []struct {
		tool       hob.ToolRunner
		args, want string
	}{
		{all, `{"language":"ruby","code":"1"}`, `{"error":"Unsupported language: ruby. Allowed: python, javascript"}`},
		{only, `{"language":"javascript","code":"1"}`, `{"error":"Unsupported language: javascript. Allowed: python"}`},
		{all, `{"language":"python","code":" "}`, `{"error":"code is required"}`},
		{all, `{"language":"python","code":"` + strings.Repeat("x", 256<<10+1) + `"}`, `{"error":"code has 262145 bytes, at most 262144 are allowed"}`},
	} {
		if res := call(t, tt.tool, tt.args); res.Text != tt.want || !res.IsError || !res.Free {
			t.Errorf("%.60s: %s", tt.args, res.Text)
		}
	}
	for asked, want := range map[string]time.Duration{"-4": time.Second, "0": time.Second, "7": 7 * time.Second, "9000": 300 * time.Second} {
		call(t, all, `{"language":"python","code":"1","timeout":`+asked+`}`)
		if b.asked.Timeout != want {
			t.Errorf("timeout %s became %s", asked, b.asked.Timeout)
		}
	}
	for _, bad := range []string{`[]`, `"python"`, `["ruby"]`} {
		if _, warnings := load(t, s, assign("code_execute", `{"languages":`+bad+`}`)); len(warnings) != 1 || !strings.Contains(warnings[0], "config_override.languages") {
			t.Errorf("%s: %q", bad, warnings)
		}
	}
}

func TestCodeExecute_LongOutputStaysJSON(t *testing.T) {
	t.Parallel()
	b := &box{result: builtin.CodeResult{Stdout: strings.Repeat("\"\n", 60_000), Stderr: "kept"}}
	res := call(t, one(t, newSet(t, builtin.Deps{Code: b}), assign("code_execute", "")), python)
	if len(res.Text) > builtin.DefaultMaxResult || !json.Valid([]byte(res.Text)) || !strings.Contains(res.Text, `"truncated":true`) || !strings.Contains(res.Text, `"stderr":"kept"`) {
		t.Errorf("%d characters: %.100s", len(res.Text), res.Text)
	}
}

// elsewhere is a sandbox elsewhere, which answers as it is told.
func elsewhere(t *testing.T, status int, body string) (*httptest.Server, *http.Request, *string) {
	t.Helper()
	var got http.Request
	var text string
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, text = *r, string(b)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	return srv, &got, &text
}

func TestCodeExecute_ElsewhereIsPassedOn(t *testing.T) {
	t.Parallel()
	const answer = `{"stdout":"1\n","stderr":"","exit_code":0,"files":[],"own":{"x":[1]}}`
	srv, got, body := elsewhere(t, 200, answer)
	s := newSet(t, builtin.Deps{CodeService: builtin.Service{Key: "sandbox-key-123", BaseURL: srv.URL + "/run"}, Code: &box{off: "not asked"}})
	res := call(t, one(t, s, assign("code_execute", "")), `{"language":"javascript","code":"1","timeout":7}`)
	if res.Text != answer || res.IsError || res.Free || res.Action != hob.ActionCodeExecute {
		t.Errorf("%+v", res)
	}
	if *body != `{"language":"javascript","code":"1","timeout":7}` || got.Method != http.MethodPost || got.URL.Path != "/run" ||
		got.Header.Get("Authorization") != "Bearer sandbox-key-123" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %v\n%s", got.Method, got.URL, got.Header, *body)
	}
	if why := s.Unavailable(t.Context(), hob.DefaultWorkspace, hob.Tool{Name: "code_execute"}); why != "" {
		t.Errorf("unavailable because %q", why)
	}
}

func TestCodeExecute_FaultsElsewhereAreTold(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status     int
		body, want string
		free       bool
	}{
		"server":  {500, "broken: sandbox-key-123", `{"error":"Sandbox returned status 500: broken: ` + hob.Mask + `"}`, true},
		"caller":  {422, strings.Repeat("é", 600), `{"error":"Sandbox returned status 422: ` + strings.Repeat("é", 500) + `"}`, false},
		"busy":    {429, "later", `{"error":"Sandbox returned status 429: later"}`, true},
		"no JSON": {200, "<html>", `{"error":"Sandbox unavailable: its answer is no JSON object"}`, true},
		"a list":  {200, "[1]", `{"error":"Sandbox unavailable: its answer is no JSON object"}`, true},
	}
	for name, tt := range tests {
		srv, _, _ := elsewhere(t, tt.status, tt.body)
		s := newSet(t, builtin.Deps{CodeService: builtin.Service{Key: "sandbox-key-123", BaseURL: srv.URL}})
		res := call(t, one(t, s, assign("code_execute", "")), python)
		if res.Text != tt.want || !res.IsError || res.Free != tt.free {
			t.Errorf("%s: %+v\nwant %s", name, res, tt.want)
		}
	}
	gone := serve(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	s := newSet(t, builtin.Deps{CodeService: builtin.Service{BaseURL: gone.URL}})
	if res := call(t, one(t, s, assign("code_execute", "")), python); res.Text != `{"error":"Sandbox unavailable: The sandbox could not be reached; the server's log says why"}` || !res.Free || res.Note == "" {
		t.Errorf("nobody there: %+v", res)
	}
	srv, _, _ := elsewhere(t, 200, `{"stdout":"`+strings.Repeat("x", 200_000)+`","exit_code":0}`)
	s = newSet(t, builtin.Deps{CodeService: builtin.Service{BaseURL: srv.URL}})
	if res := call(t, one(t, s, assign("code_execute", "")), python); len(res.Text) > builtin.DefaultMaxResult || !json.Valid([]byte(res.Text)) ||
		!strings.Contains(res.Text, `"truncated":true`) || !strings.Contains(res.Text, `"exit_code":0`) {
		t.Errorf("a long answer: %d characters, %.80s", len(res.Text), res.Text)
	}
}
