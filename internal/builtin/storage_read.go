package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

//go:embed storage_read.md
var storageReadText string

const (
	// linkTime is how long a link to a file works that a model is given.
	linkTime = time.Hour
	// defaultListed and maxListed are how many objects a list has.
	defaultListed = 100
	maxListed     = 1000
)

func init() {
	add(builtin{
		name:        "storage_read",
		description: strings.TrimSpace(storageReadText),
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"operation":{"type":"string","enum":["list","download"]},` +
			`"bucket":{"type":"string","description":"The bucket's id"},` +
			`"path":{"type":"string","default":"","description":"For list the beginning of the names, for download the file's name"},` +
			`"limit":{"type":"integer","default":100,"description":"For list: how many objects, 1 to 1000"},` +
			`"offset":{"type":"integer","default":0,"description":"For list: how many objects to skip"}` +
			`},"required":["operation","bucket"],"additionalProperties":false}`),
		effect: hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		keys:        []string{bucketsKey},
		options:     readBuckets,
		check:       checkBuckets("storage_read"),
		unavailable: noFiles,
		open: func(o opening) (hob.ToolRunner, string) {
			return &storageRead{
				files: o.set.deps.Files, by: hob.System(o.grant.Agent.Workspace), spec: o.spec,
				buckets: o.options.(bucketGrant), most: o.numbers.MaxResult, //nolint:forcetypeassert // readBuckets gives nothing else
			}, ""
		},
	})
}

func noFiles(_ context.Context, s *Set, _ hob.WorkspaceID) string {
	if s.deps.Files == nil {
		return filesOff
	}
	return ""
}

// noStorage is the result of a storage tool on a server without storage.
func noStorage() hob.Result {
	return *free("%s", filesOff)
}

// storageRead lists and reads the files of a workspace. It acts for the workspace: the assignment is what lets an agent in.
type storageRead struct {
	files   hob.FileService
	by      hob.Principal
	spec    hob.ToolSpec
	buckets bucketGrant
	most    int // characters of a result
}

// Spec describes the tool.
func (t *storageRead) Spec() hob.ToolSpec { return t.spec }

type storageReadInput struct {
	Operation string `json:"operation"`
	Bucket    string `json:"bucket"`
	Path      string `json:"path"`
	Limit     *int   `json:"limit"`
	Offset    int    `json:"offset"`
}

// Call lists or reads. The error is that of a cancelled ctx.
func (t *storageRead) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	var in storageReadInput
	if err := decode(c.Arguments, &in); err != nil {
		return refused("%s", messageOf(err)), nil
	}
	if t.files == nil {
		return noStorage(), nil
	}
	var res hob.Result
	switch {
	case in.Operation != "list" && in.Operation != "download":
		res = refused("Invalid operation: '%s'. Must be list or download.", shorten(in.Operation))
	case in.Bucket == "":
		res = refused("bucket is required")
	case in.Operation == "list":
		res = t.list(ctx, in)
	case strings.Trim(in.Path, "/") == "":
		res = refused("path is required for download")
	default:
		res = t.download(ctx, in)
	}
	if err := cancelled(ctx, t.spec.Name); err != nil {
		return hob.Result{}, err
	}
	return res, nil
}

// fileList is the result of a list.
type fileList struct {
	Bucket    string            `json:"bucket"`
	Prefix    string            `json:"prefix"`
	Objects   []json.RawMessage `json:"objects"`
	Truncated bool              `json:"truncated,omitempty"`
}

func (t *storageRead) list(ctx context.Context, in storageReadInput) hob.Result {
	prefix, why := t.buckets.narrow(in.Bucket, strings.TrimLeft(in.Path, "/"))
	if why != "" {
		return refused("Failed to list objects: %s", why)
	}
	switch why, err := t.buckets.closed(ctx, t.files, t.by, in.Bucket); {
	case err != nil:
		return unread("Failed to list objects: ", err, in.Bucket)
	case why != "":
		return refused("Failed to list objects: %s", why)
	}
	q := hob.FileQuery{Bucket: in.Bucket, Prefix: prefix, Limit: defaultListed, Offset: max(in.Offset, 0)}
	if in.Limit != nil {
		q.Limit = min(max(*in.Limit, 1), maxListed)
	}
	page, err := t.files.List(ctx, t.by, q)
	if err != nil {
		return unread("Failed to list objects: ", err, in.Bucket)
	}
	list := fileList{Bucket: in.Bucket, Prefix: prefix, Objects: []json.RawMessage{}, Truncated: true}
	size := utf8.RuneCount(encode(list))
	for _, f := range page.Items {
		row := encode(fileRow{f, map[string]any{"size": f.Size, "mimetype": f.Type, "eTag": `"` + f.Digest + `"`}})
		if size += utf8.RuneCount(row) + len(","); size > t.most { // the model goes on with offset
			return hob.Result{Text: string(encode(list))}
		}
		list.Objects = append(list.Objects, row)
	}
	list.Truncated = false
	return hob.Result{Text: string(encode(list))}
}

// fileRow is an object as the lists of the API have it.
type fileRow struct {
	hob.File
	Metadata map[string]any `json:"metadata"`
}

// readFile is the result of a download.
type readFile struct {
	Bucket    string  `json:"bucket"`
	Path      string  `json:"path"`
	Encoding  string  `json:"encoding"`
	Content   *string `json:"content,omitempty"`
	SignedURL string  `json:"signed_url,omitempty"`
	Truncated bool    `json:"truncated,omitempty"`
	Size      int64   `json:"size,omitempty"` // of the whole file, where it is cut
}

func (t *storageRead) download(ctx context.Context, in storageReadInput) hob.Result {
	name, err := hob.CleanFileName(in.Path)
	if err != nil {
		return refused("%s", messageOf(err))
	}
	why := t.buckets.allows(in.Bucket, name)
	if why == "" {
		if why, err = t.buckets.closed(ctx, t.files, t.by, in.Bucket); err != nil {
			return unread("", err, in.Bucket)
		}
	}
	if why != "" {
		return refused("%s", why)
	}
	f, text, isText, err := t.read(ctx, in.Bucket, name)
	if err != nil {
		return unread("", err, in.Bucket)
	}
	res := readFile{Bucket: in.Bucket, Path: name, Encoding: "utf-8", Content: &text}
	if isText && int64(len(text)) == f.Size {
		if whole := encode(res); utf8.RuneCount(whole) <= t.most {
			return hob.Result{Text: string(whole)}
		}
	}
	if res.SignedURL, err = t.files.Link(ctx, t.by, in.Bucket, name, linkTime); err != nil {
		return unread("", err, in.Bucket)
	}
	if !isText {
		res.Encoding, res.Content = "binary", nil
		return hob.Result{Text: string(encode(res))}
	}
	res.Truncated, res.Size = true, f.Size
	empty := ""
	res.Content = &empty
	text = fitJSON(text, t.most-utf8.RuneCount(encode(res)))
	res.Content = &text
	return hob.Result{Text: string(encode(res))}
}

// unread is the result of a read that came to nothing. That the object is not there is an answer, which counts; that
// nothing could be looked at is the platform's doing.
func unread(before string, err error, bucket string) hob.Result {
	r := errorJSON("%s%s", before, storageText(err, bucket))
	switch hob.KindOf(err) {
	case hob.NotFound, hob.Conflict:
	default:
		r.Free = true
	}
	return r
}

// read gives the beginning of a file as text, as much as can be shown at most; isText is false for what is none. A large
// file is not fetched whole.
func (t *storageRead) read(ctx context.Context, bucket, name string) (f hob.File, text string, isText bool, err error) {
	f, body, err := t.files.Open(ctx, t.by, bucket, name)
	if err != nil {
		return f, "", false, err
	}
	b, err := io.ReadAll(io.LimitReader(body, min(f.Size, int64(t.most)*utf8.UTFMax)))
	if err = errors.Join(err, body.Close()); err != nil {
		return f, "", false, err
	}
	if int64(len(b)) < f.Size { // a character may be cut in two
		for range utf8.UTFMax - 1 {
			if r, size := utf8.DecodeLastRune(b); r != utf8.RuneError || size > 1 {
				break
			}
			b = b[:len(b)-1]
		}
	}
	return f, string(b), utf8.Valid(b) && !strings.ContainsRune(string(b), 0), nil
}

// fitJSON cuts a text so that it takes at most n characters between the quotes of a JSON string.
func fitJSON(s string, n int) string {
	for i, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t' || r == '\b' || r == '\f':
			n -= len(`\n`)
		case r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029':
			n -= len(`\u0000`)
		default:
			n--
		}
		if n < 0 {
			return s[:i]
		}
	}
	return s
}
