package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"mime"
	"strings"

	"hob"
)

//go:embed storage_write.md
var storageWriteText string

// plainText is what a written file is where the model names no type.
const plainText = "text/plain"

func init() {
	add(builtin{
		name:        "storage_write",
		description: strings.TrimSpace(storageWriteText),
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"bucket":{"type":"string","description":"The bucket's id"},` +
			`"path":{"type":"string","description":"The file's name in the bucket"},` +
			`"content":{"type":"string","description":"The whole text of the file"},` +
			`"content_type":{"type":"string","default":"text/plain"},` +
			`"overwrite":{"type":"boolean","default":true,"description":"false: a file of the name is left as it is, and the call fails"}` +
			`},"required":["bucket","path","content"],"additionalProperties":false}`),
		effect: hob.EffectWrite, recovery: hob.RecoverLocal,
		keys:        []string{bucketsKey},
		options:     readBuckets,
		check:       checkBuckets("storage_write"),
		unavailable: noFiles,
		open: func(o opening) (hob.ToolRunner, string) {
			return &storageWrite{
				files: o.set.deps.Files, by: hob.System(o.grant.Agent.Workspace), spec: o.spec,
				buckets: o.options.(bucketGrant), //nolint:forcetypeassert // readBuckets gives nothing else
			}, ""
		},
	})
}

// storageWrite stores text as files of a workspace. It acts for the workspace, and what it stores is its run's owner's. A
// write is kept with its call's key in one transaction, so a call that is carried out again writes nothing again.
type storageWrite struct {
	files   hob.FileService
	by      hob.Principal
	spec    hob.ToolSpec
	buckets bucketGrant
}

// Spec describes the tool.
func (t *storageWrite) Spec() hob.ToolSpec { return t.spec }

// Call stores one file. The error is that of a cancelled ctx.
func (t *storageWrite) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	in := struct {
		Bucket      string  `json:"bucket"`
		Path        string  `json:"path"`
		Content     *string `json:"content"`
		ContentType string  `json:"content_type"`
		Overwrite   *bool   `json:"overwrite"`
	}{}
	if err := decode(c.Arguments, &in); err != nil {
		return refused("%s", messageOf(err)), nil
	}
	switch {
	case t.files == nil:
		return noStorage(), nil
	case in.Bucket == "":
		return refused("bucket is required"), nil
	case strings.Trim(in.Path, "/") == "":
		return refused("path is required"), nil
	case in.Content == nil:
		return refused("content is required"), nil
	}
	name, err := hob.CleanFileName(in.Path)
	if err != nil {
		return refused("%s", messageOf(err)), nil
	}
	why := t.buckets.allows(in.Bucket, name)
	if why == "" {
		why, err = t.buckets.closed(ctx, t.files, t.by, in.Bucket)
	}
	if gone := cancelled(ctx, t.spec.Name); gone != nil && err != nil {
		return hob.Result{}, gone
	}
	switch {
	case err != nil:
		return refused("%s", storageText(err, in.Bucket)), nil
	case why != "":
		return refused("%s", why), nil
	}
	kind, ok := fileType(in.ContentType)
	if !ok {
		return refused("content_type %q cannot be read; it is as text/csv or application/json", shorten(in.ContentType)), nil
	}
	f, _, err := t.files.Put(ctx, t.by, hob.NewFile{
		Bucket: in.Bucket, Name: name, Owner: c.Principal.Owner(), Type: kind, Overwrite: in.Overwrite == nil || *in.Overwrite,
		Body: strings.NewReader(*in.Content), Size: int64(len(*in.Content)), Key: c.Key,
	})
	if gone := cancelled(ctx, t.spec.Name); gone != nil && err != nil {
		return hob.Result{}, gone
	}
	if err != nil {
		return refused("%s", storageText(err, in.Bucket)), nil
	}
	return hob.Result{Text: string(encode(struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
	}{f.Bucket + "/" + f.Name, f.Size}))}, nil
}

// fileType reads the type of a file that a model names.
func fileType(given string) (string, bool) {
	if given = strings.TrimSpace(given); given == "" {
		return plainText, true
	}
	media, params, err := mime.ParseMediaType(given)
	if err != nil || len(given) > hob.MaxContentType || !strings.Contains(media, "/") {
		return "", false
	}
	return mime.FormatMediaType(media, params), true
}
