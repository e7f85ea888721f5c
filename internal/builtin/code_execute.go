package builtin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

//go:embed code_execute.md
var codeExecuteText string

// Bounds of a call of code_execute, whoever runs the code.
const (
	defaultCodeTimeout = 30 // seconds
	minCodeTimeout     = 1
	maxCodeTimeout     = 300
	maxCode            = 256 << 10 // bytes of a program
	// sandboxGrace is what an outside sandbox may take beyond the program's own time.
	sandboxGrace = 10 * time.Second
	// codeWait is how long a call may wait for its turn on this machine.
	codeWait = 60 * time.Second
	// codeLinkTime is how long the link to a result file holds.
	codeLinkTime = time.Hour
	// codeStoreTime bounds keeping the result files of a call.
	codeStoreTime = 60 * time.Second
)

const (
	noSandbox = "Code sandbox is not configured"
	// sandboxOff continues it for whoever can do something about it.
	sandboxOff   = ": the server runs with HOB_SANDBOX=off; its operator sets HOB_SANDBOX=auto, or CODE_SANDBOX_URL"
	languagesKey = "languages"
)

// codeLanguages are those of the argument, which every sandbox is asked for.
var codeLanguages = []string{"python", "javascript"}

// CodeSandbox runs programs on this machine, behind walls. It enforces every limit; the tool in front of it speaks with
// the model and keeps the files.
type CodeSandbox interface {
	// Unavailable says why nothing can be run, "" where it can. It may try the walls, which takes a moment.
	Unavailable(ctx context.Context) string
	// Run runs a program to its end or its limits. An error that is a *hob.Error may be shown: Invalid is the caller's
	// doing, any other the machine's.
	Run(ctx context.Context, r CodeRequest) (CodeResult, error)
}

// CodeRequest is one program.
type CodeRequest struct {
	Workspace hob.WorkspaceID
	Language  string
	Code      string
	Timeout   time.Duration
}

// CodeResult is how it ended.
type CodeResult struct {
	Stdout, Stderr string
	ExitCode       int
	Files          []CodeFile
	Skipped        []string // files that were left out, and why
	Limits         []string // that were met, in words
	TimedOut       bool
	Truncated      bool // output is missing
}

// CodeFile is a file that the program left.
type CodeFile struct {
	Name string // its path below /output
	Data []byte
}

func init() {
	add(builtin{
		name:        "code_execute",
		description: codeExecuteText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"language":{"type":"string","enum":["python","javascript"],"description":"What the program is written in"},` +
			`"code":{"type":"string","description":"The whole program; print what should come back"},` +
			`"timeout":{"type":"integer","default":30,"description":"Seconds it may run, 1 to 300"}` +
			`},"required":["language","code"],"additionalProperties":false}`),
		effect: hob.EffectExternal, recovery: hob.RecoverOnce,
		keys:    []string{languagesKey},
		options: func(_ *Set, keys map[string]json.RawMessage) (any, error) { return readLanguages(keys) },
		unavailable: func(ctx context.Context, s *Set, _ hob.WorkspaceID) string {
			why := s.noCode(ctx)
			if why == noSandbox {
				return why + sandboxOff
			}
			return why
		},
		open: func(o opening) (hob.ToolRunner, string) {
			languages := o.options.([]string)
			if len(languages) < len(codeLanguages) {
				o.spec.Description += "\n- Only " + strings.Join(languages, " and ") + " is allowed here."
			}
			o.spec.Timeout = codeWait + maxCodeTimeout*time.Second + codeStoreTime + callGrace
			o.spec.Vouched = o.set.deps.CodeService.BaseURL != "" // whose answer is passed on
			return &codeExecute{
				set: o.set, by: hob.System(o.grant.Agent.Workspace), spec: o.spec, languages: languages, most: o.numbers.MaxResult,
			}, ""
		},
	})
}

// readLanguages reads the languages that an assignment allows; all where it names none.
func readLanguages(keys map[string]json.RawMessage) ([]string, error) {
	raw, ok := keys[languagesKey]
	if !ok {
		return codeLanguages, nil
	}
	var list []string
	unknown := func(l string) bool { return !slices.Contains(codeLanguages, l) }
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || slices.ContainsFunc(list, unknown) {
		return nil, badKey(languagesKey, `must be a list of at least one of %s, like ["python"]`, strings.Join(codeLanguages, ", "))
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// noCode says why no code can be run.
func (s *Set) noCode(ctx context.Context) string {
	switch {
	case s.deps.CodeService.BaseURL != "":
		return ""
	case s.deps.Code == nil:
		return noSandbox
	}
	if why := s.deps.Code.Unavailable(ctx); why != "" {
		return noSandbox + ": " + why
	}
	return ""
}

// codeExecute runs programs, elsewhere where the operator named a sandbox and else on this machine.
type codeExecute struct {
	set       *Set
	by        hob.Principal // keeps files: the run's own may not see buckets
	spec      hob.ToolSpec
	languages []string
	most      int // characters of a result
}

type codeInput struct {
	Language string   `json:"language"`
	Code     string   `json:"code"`
	Timeout  *float64 `json:"timeout"`
}

// seconds is the timeout, brought into its bounds.
func (in codeInput) seconds() int {
	if in.Timeout == nil {
		return defaultCodeTimeout
	}
	return int(min(max(*in.Timeout, minCodeTimeout), maxCodeTimeout))
}

// Spec describes the tool.
func (t *codeExecute) Spec() hob.ToolSpec { return t.spec }

// Call runs the program. The error is that of a cancelled ctx.
func (t *codeExecute) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	res, err := t.call(ctx, c)
	res.Action = hob.ActionCodeExecute
	return res, err
}

func (t *codeExecute) call(ctx context.Context, c hob.Call) (hob.Result, error) {
	var in codeInput
	if err := decode(c.Arguments, &in); err != nil {
		return refused("%s", messageOf(err)), nil
	}
	switch {
	case !slices.Contains(t.languages, in.Language):
		return refused("Unsupported language: %s. Allowed: %s", shorten(in.Language), strings.Join(t.languages, ", ")), nil
	case strings.TrimSpace(in.Code) == "":
		return refused("code is required"), nil
	case len(in.Code) > maxCode:
		return refused("code has %d bytes, at most %d are allowed", len(in.Code), maxCode), nil
	}
	if t.set.deps.CodeService.BaseURL != "" {
		return t.elsewhere(ctx, c, in)
	}
	if why := t.set.noCode(ctx); why != "" {
		if gone := cancelled(ctx, c.Name); gone != nil {
			return hob.Result{}, gone
		}
		return *free("%s", why), nil
	}
	return t.here(ctx, c, in)
}

// elsewhere gives the program to the operator's sandbox, whose answer is passed on as it is.
func (t *codeExecute) elsewhere(ctx context.Context, c hob.Call, in codeInput) (hob.Result, error) {
	at := t.set.deps.CodeService
	seconds := in.seconds()
	r := serviceRequest{
		service: service{name: "The sandbox", base: at.BaseURL, key: string(at.Key), operator: true},
		timeout: time.Duration(seconds)*time.Second + sandboxGrace,
		header: func(h http.Header) {
			if at.Key != "" {
				h.Set("Authorization", "Bearer "+string(at.Key))
			}
		},
	}
	payload := encode(struct {
		Language string `json:"language"`
		Code     string `json:"code"`
		Timeout  int    `json:"timeout"`
	}{in.Language, in.Code, seconds})
	if !c.BeginBy.IsZero() && !t.set.deps.Clock().Before(c.BeginBy) {
		return *free("Sandbox unavailable: the time to begin was over"), nil
	}
	a, err := t.set.send(ctx, r, payload)
	if err != nil {
		_, fault, gone := t.set.broken(ctx, c, r, err)
		if gone != nil {
			return hob.Result{}, gone
		}
		var told struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal([]byte(fault.Text), &told) // it was just made
		res := free("Sandbox unavailable: %s", told.Error)
		res.Note = fault.Note
		return *res, nil
	}
	if a.status/100 != 2 {
		text, _ := cut(r.hide(strings.ToValidUTF8(strings.TrimSpace(string(a.body)), "\ufffd")), maxErrorBody)
		res := errorJSON("Sandbox returned status %d: %s", a.status, text)
		res.Free = a.status < 400 || a.status >= 500 || a.status == http.StatusTooManyRequests ||
			a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
		return res, nil
	}
	return t.passOn(r, a.body), nil
}

// passOn judges what an outside sandbox answered. It must be an object; what is too long of it is cut inside its texts.
func (t *codeExecute) passOn(r serviceRequest, body []byte) hob.Result {
	if len(body) > maxServiceBody {
		return *free("Sandbox unavailable: it answered with more than %d bytes", maxServiceBody)
	}
	body = []byte(strings.ToValidUTF8(r.hide(string(body)), "\ufffd"))
	var answer map[string]json.RawMessage
	if hob.CheckJSON(body) != nil || json.Unmarshal(body, &answer) != nil || answer == nil {
		return *free("Sandbox unavailable: its answer is no JSON object")
	}
	for utf8.RuneCount(body) > t.most {
		if !halveLongest(answer) {
			return errorJSON("the answer of the sandbox is too long to be shown")
		}
		answer["truncated"] = json.RawMessage("true")
		body = encode(answer)
	}
	return hob.Result{Text: string(body)}
}

// halveLongest cuts the longest text of an object in half, and says whether there was one to cut.
func halveLongest(object map[string]json.RawMessage) bool {
	longest, text := "", ""
	for key, raw := range object {
		var s string
		if json.Unmarshal(raw, &s) == nil && (len(s) > len(text) || len(s) == len(text) && key < longest) {
			longest, text = key, s
		}
	}
	if len(text) < 2 {
		return false
	}
	text, _ = cut(text, utf8.RuneCountInString(text)/2)
	object[longest] = encode(text)
	return true
}

// codeAnswer is the result of a program that was run here.
type codeAnswer struct {
	Stdout    string      `json:"stdout"`
	Stderr    string      `json:"stderr"`
	ExitCode  int         `json:"exit_code"`
	Files     []codeFiled `json:"files"`
	TimedOut  bool        `json:"timed_out,omitempty"`
	Truncated bool        `json:"truncated,omitempty"`
	Error     string      `json:"error,omitempty"`
	Skipped   []string    `json:"skipped_files,omitempty"`
}

type codeFiled struct {
	Name string `json:"name"`
	Size int    `json:"size"`
	Type string `json:"type"`
	URL  string `json:"url,omitempty"`
}

// here runs the program on this machine.
func (t *codeExecute) here(ctx context.Context, c hob.Call, in codeInput) (hob.Result, error) {
	got, err := t.set.deps.Code.Run(ctx, CodeRequest{
		Workspace: c.Principal.Workspace, Language: in.Language, Code: in.Code, Timeout: time.Duration(in.seconds()) * time.Second,
	})
	if err != nil {
		if gone := cancelled(ctx, c.Name); gone != nil {
			return hob.Result{}, gone
		}
		var e *hob.Error
		switch {
		case errors.As(err, &e) && e.Kind == hob.Invalid:
			return refused("%s", e.Message), nil
		case errors.As(err, &e):
			return *free("Sandbox unavailable: %s", e.Message), nil
		}
		return *free("Sandbox unavailable: the program could not be run"), nil
	}
	a := codeAnswer{
		Stdout: got.Stdout, Stderr: got.Stderr, ExitCode: got.ExitCode, Files: []codeFiled{},
		TimedOut: got.TimedOut, Truncated: got.Truncated, Skipped: got.Skipped,
	}
	faults := got.Limits
	if len(got.Files) > 0 {
		var why string
		if a.Files, why = t.keep(ctx, c, got.Files); why != "" {
			faults = append(faults, why)
		}
	}
	a.Error = strings.Join(faults, "; ")
	return hob.Result{Text: t.fit(a), IsError: got.ExitCode != 0 || len(got.Limits) > 0}, nil
}

// keep stores the files and links them. What cannot be stored is listed without a link, and the text says why.
func (t *codeExecute) keep(ctx context.Context, c hob.Call, files []CodeFile) (kept []codeFiled, why string) {
	ctx, cancel := context.WithTimeout(ctx, codeStoreTime)
	defer cancel()
	store := t.set.deps.Files
	var err error
	if store == nil {
		why = "the files cannot be downloaded: this server has no storage"
	} else if err = store.EnsureOwned(ctx, t.by, hob.OutputBucket); err != nil {
		why = "the files cannot be downloaded: " + messageOf(err)
	}
	kept = make([]codeFiled, 0, len(files))
	for _, f := range files {
		k := codeFiled{Name: f.Name, Size: len(f.Data), Type: typeOf(f)}
		if why == "" {
			if k.URL, err = t.keepOne(ctx, c, f, k.Type); err != nil {
				why = fmt.Sprintf("%s and what follows it cannot be downloaded: %s", f.Name, messageOf(err))
			}
		}
		kept = append(kept, k)
	}
	return kept, why
}

func (t *codeExecute) keepOne(ctx context.Context, c hob.Call, f CodeFile, kind string) (url string, err error) {
	n := hob.NewFile{
		Bucket: hob.OutputBucket, Name: hob.OutputName(c, f.Name), Owner: c.Principal.Owner(), Type: kind, Overwrite: true,
		Body: strings.NewReader(string(f.Data)), Key: c.Key + ":" + f.Name,
	}
	if c.Session != "" { // a call of the test console has a run's id and no run
		n.Run = c.Run
	}
	file, _, err := t.set.deps.Files.Put(ctx, t.by, n)
	if err != nil {
		return "", err
	}
	return t.set.deps.Files.Link(ctx, t.by, hob.OutputBucket, file.Name, codeLinkTime)
}

// typeOf is a file's content type, by its name or else by its bytes.
func typeOf(f CodeFile) string {
	kind := cmp.Or(mime.TypeByExtension(path.Ext(f.Name)), http.DetectContentType(f.Data))
	media, _, err := mime.ParseMediaType(kind)
	if err != nil {
		return "application/octet-stream"
	}
	return media
}

// fit makes the answer fit under the cap of results and stay whole JSON: first the longer of the texts gets shorter.
func (t *codeExecute) fit(a codeAnswer) string {
	out := encode(a)
	for utf8.RuneCount(out) > t.most && a.Stdout+a.Stderr != "" {
		longer := &a.Stdout
		if len(a.Stderr) > len(a.Stdout) {
			longer = &a.Stderr
		}
		*longer, _ = cut(*longer, utf8.RuneCountInString(*longer)/2)
		a.Truncated = true
		out = encode(a)
	}
	return string(out)
}
