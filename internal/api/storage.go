package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"hob"
)

// storagePath is where object storage is served, in the form that clients of Supabase Storage know.
const storagePath = "/storage/v1/"

// tagStorage is the group of the reference.
const tagStorage = "Storage"

// Files is what the API does with files beside their rows, which are the store's. Names are as clients gave them.
type Files interface {
	Put(ctx context.Context, by hob.Principal, f hob.NewFile) (file hob.File, replayed bool, err error)
	// Open, OpenPublic and OpenLink give bytes, which the caller closes: to a principal, to anybody where the bucket is
	// public, and to whoever has the token of a signed link.
	Open(ctx context.Context, by hob.Principal, bucket, name string) (hob.File, io.ReadSeekCloser, error)
	OpenPublic(ctx context.Context, bucket, name string) (hob.File, io.ReadSeekCloser, error)
	OpenLink(ctx context.Context, bucket, name, token string) (hob.File, io.ReadSeekCloser, error)
	// Sign gives the address of a signed link, relative to storagePath without its final slash.
	Sign(ctx context.Context, by hob.Principal, bucket, name string, d time.Duration) (string, error)
	Copy(ctx context.Context, by hob.Principal, m hob.FileMove) (hob.File, error)
	Remove(ctx context.Context, by hob.Principal, bucket string, names ...string) ([]hob.File, error)
	Empty(ctx context.Context, by hob.Principal, bucket string) error
}

// storageRoutes are the routes of object storage. None has create: a bucket's id and an object's name are the client's, so
// a request that is sent again meets what the first one made, and is a conflict or, with x-upsert, the same once more; and
// the body of an upload is not kept in memory, as the digest of a remembered request needs.
func storageRoutes() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	const read, configure = hob.ScopeRead, hob.ScopeConfigure
	list := []route{
		{method: get, path: "bucket", handle: listBuckets, scope: read, summary: "List buckets", out: bucketList{}},
		{method: post, path: "bucket", handle: createBucket, scope: configure, summary: "Create a bucket", in: bucketInput{}, out: bucketMade{}, errors: []int{409}},
		{method: get, path: "bucket/{bucket}", handle: getBucket, scope: read, summary: "Get a bucket", out: hob.Bucket{}, errors: []int{404}},
		{method: put, path: "bucket/{bucket}", handle: updateBucket, scope: configure, summary: "Change a bucket: what is given; objects that are there stay", in: bucketChange{}, out: doneAnswer{}, errors: []int{404}},
		{method: del, path: "bucket/{bucket}", handle: deleteBucket, scope: configure, summary: "Delete an empty bucket", out: doneAnswer{}, errors: []int{404, 409}},
		{method: post, path: "bucket/{bucket}/empty", handle: emptyBucket, scope: configure, summary: "Delete all objects of a bucket", out: doneAnswer{}, errors: []int{404}},

		{method: post, path: "object/{bucket}/{path...}", handle: upload, upload: true, scope: configure, summary: "Upload an object: the body, or the file of a form, up to 50 MB", out: objectKey{}, errors: []int{400, 404, 409, 413, 503}, query: uploadHeaders()},
		{method: put, path: "object/{bucket}/{path...}", handle: upload, upload: true, scope: configure, summary: "Upload an object, in the place of the one of its name where there is one", out: objectKey{}, errors: []int{400, 404, 413, 503}},
		{method: get, path: "object/{bucket}/{path...}", handle: download, download: true, scope: read, summary: "Download an object; ranges, HEAD and If-None-Match work", errors: []int{404, 503}, query: downloadQuery()},
		{method: del, path: "object/{bucket}/{path...}", handle: deleteObject, scope: configure, summary: "Delete an object", out: doneAnswer{}, errors: []int{404}},
		{method: get, path: "object/authenticated/{bucket}/{path...}", handle: download, download: true, scope: read, summary: "Download an object, under its other address", errors: []int{404, 503}, query: downloadQuery()},
		{method: get, path: "object/public/{bucket}/{path...}", handle: downloadPublic, download: true, open: true, summary: "Download an object of a public bucket", errors: []int{404, 503}, query: downloadQuery()},
		{method: get, path: "object/sign/{bucket}/{path...}", handle: downloadSigned, download: true, open: true, summary: "Download an object by a signed link", errors: []int{400, 404, 503}, query: append(downloadQuery(), param{"token", "string", requiredMark + "what the link carries"})},
		{method: post, path: "object/sign/{bucket}/{path...}", handle: signObject, scope: read, summary: "Make a link to an object that anybody can read for a while", in: signInput{}, bodyless: true, out: signedAnswer{}, errors: []int{404}},
		{method: post, path: "object/sign/{bucket}", handle: signObjects, scope: read, summary: "Make links to several objects of a bucket", in: signManyInput{}, out: signedList{}, errors: []int{404}},
		{method: get, path: "object/info/{bucket}/{path...}", handle: objectInfo, scope: read, summary: "Get what is known of an object", out: objectRow{}, errors: []int{404}},
		{method: post, path: "object/list/{bucket}", handle: listObjects, scope: read, summary: "List the objects whose names begin with a prefix, those in folders below it included", in: listInput{}, bodyless: true, out: objectList{}, errors: []int{404}},
		{method: del, path: "object/{bucket}", handle: deleteObjects, scope: configure, summary: "Delete objects by their names; those that are not there are left out of the answer", in: prefixesInput{}, out: objectList{}, errors: []int{404}},
		{method: post, path: "object/copy", handle: copyObject, scope: configure, summary: "Copy an object", in: moveInput{}, out: objectKey{}, errors: []int{404, 409}, query: uploadHeaders()},
		{method: post, path: "object/move", handle: moveObject, scope: configure, summary: "Move an object, also into another bucket", in: moveInput{}, out: doneAnswer{}, errors: []int{404, 409}},
	}
	for i := range list {
		list[i].path, list[i].tag, list[i].status = storagePath+list[i].path, tagStorage, http.StatusOK
	}
	return list
}

func uploadHeaders() []param {
	return []param{{upsertHeader, "header", "true: an object of the name is replaced; else it is a conflict"}}
}

func downloadQuery() []param {
	return []param{{"download", "string", "save it instead of showing it, under this file name where one is given"}}
}

// storageFault is the body of errors below storagePath, in the form that clients of Supabase Storage read.
type storageFault struct {
	StatusCode string         `json:"statusCode"`
	Error      string         `json:"error"` // the kind, but for Duplicate
	Message    string         `json:"message"`
	Code       string         `json:"code"`
	Details    map[string]any `json:"details,omitempty"`
}

// duplicate is what those clients ask for where something of the name is there already.
const duplicate = "Duplicate"

// faultFor gives an error's answer the form that holds at its path.
func faultFor(path string, status int, e *hob.Error, a errorAnswer) any {
	if !strings.HasPrefix(path, storagePath) {
		return a
	}
	f := storageFault{StatusCode: strconv.Itoa(status), Error: string(e.Kind), Message: a.Message, Code: a.Code, Details: a.Details}
	if strings.HasSuffix(a.Code, "_exists") {
		f.Error = duplicate
	}
	return f
}

// internalAt is internalBody in the form that holds at a path.
func internalAt(path, id string) []byte {
	body := internalBody(id)
	if !strings.HasPrefix(path, storagePath) {
		return body
	}
	var a errorAnswer
	if json.Unmarshal(body, &a) != nil {
		return body
	}
	fault, err := marshal(faultFor(path, http.StatusInternalServerError, &hob.Error{Kind: hob.Internal}, a))
	if err != nil {
		return body
	}
	return fault
}

type (
	bucketList  []hob.Bucket
	bucketInput struct {
		ID   string `json:"id" jsonschema:"1 to 100 letters, digits, dots, hyphens and underscores"`
		Name string `json:"name,omitempty" jsonschema:"the id where left out"`
		bucketRules
	}
	bucketRules struct {
		Public  *bool           `json:"public,omitempty" jsonschema:"its objects can be read without a key; false where left out"`
		MaxSize json.RawMessage `json:"file_size_limit,omitempty" jsonschema:"bytes of one object, or a text as 20MB; null: 50 MB as everywhere"`
		Types   *[]string       `json:"allowed_mime_types,omitempty" jsonschema:"what may be put in, as image/png or image/*; null: anything"`
	}
	bucketChange struct{ bucketRules }
	bucketMade   struct {
		Name string `json:"name"`
	}
	doneAnswer struct {
		Message string `json:"message"`
	}
)

// listOrNull is the schema of a list that may be null.
func listOrNull(s *jsonschema.Schema) { s.Type, s.Types = "", []string{"null", "array"} }

func (c *call) files() (Files, error) {
	if c.s.Files == nil {
		return nil, hob.Errorf(hob.Unavailable, "this server stores no files")
	}
	return c.s.Files, nil
}

func listBuckets(c *call) error {
	list, err := c.s.Store.Buckets(c.Context(), c.by)
	if err != nil {
		return err
	}
	if list == nil {
		list = bucketList{}
	}
	return c.reply(http.StatusOK, list)
}

func createBucket(c *call) error {
	var in bucketInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	if in.ID == "" {
		in.ID = in.Name
	}
	if in.ID == "" {
		return b.hint(hob.Errorf(hob.Invalid, "id is required").With("field", "id"))
	}
	if in.Name != "" && !plainText(in.Name, hob.MaxBucketID) {
		return hob.Errorf(hob.Invalid, "name must have at most %d bytes and no control characters", hob.MaxBucketID).With("field", "name")
	}
	if err := hob.CheckBucketID(in.ID); err != nil {
		return err
	}
	rules, err := in.patch(b)
	if err != nil {
		return err
	}
	bucket := hob.Bucket{ID: in.ID, Name: in.Name, Public: in.Public != nil && *in.Public}
	if rules.MaxSize != nil {
		bucket.MaxSize = *rules.MaxSize
	}
	if rules.Types != nil {
		bucket.Types = *rules.Types
	}
	made, err := c.s.Store.CreateBucket(c.Context(), c.by, bucket)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, bucketMade{made.ID})
}

var (
	sizeText = regexp.MustCompile(`^([0-9]{1,12})(?i:(b|kb|mb|gb))?$`)
	mimeRule = regexp.MustCompile(`^(\*/\*|[a-z0-9][a-z0-9.+_-]{0,60}/(\*|[a-z0-9][a-z0-9.+_-]{0,100}))$`)
)

// patch reads the rules of a bucket that a body names.
func (r bucketRules) patch(b body) (hob.BucketPatch, error) {
	p := hob.BucketPatch{Public: r.Public}
	if b.has("file_size_limit") {
		size, err := readSize(r.MaxSize)
		if err != nil {
			return p, err
		}
		p.MaxSize = &size
	}
	if !b.has("allowed_mime_types") {
		return p, nil
	}
	var types []string // none given is any taken
	if r.Types != nil {
		types = *r.Types
	}
	if len(types) > hob.MaxBucketTypes {
		return p, hob.Errorf(hob.Invalid, "allowed_mime_types may name at most %d types", hob.MaxBucketTypes).With("field", "allowed_mime_types")
	}
	kept := make([]string, len(types))
	for i, t := range types {
		if kept[i] = strings.ToLower(strings.TrimSpace(t)); !mimeRule.MatchString(kept[i]) {
			return p, hob.Errorf(hob.Invalid, "allowed_mime_types: %s is not of the form image/png or image/*", shown(t)).With("field", "allowed_mime_types")
		}
	}
	if len(kept) == 0 {
		kept = nil
	}
	p.Types = &kept
	return p, nil
}

// readSize reads a number of bytes, also with a unit of 1024, or null.
func readSize(raw json.RawMessage) (*int64, error) {
	text := strings.Trim(strings.TrimSpace(string(raw)), `"`)
	if text == "null" {
		return nil, nil //nolint:nilnil // no bound is a value here
	}
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return nil, hob.Errorf(hob.Invalid, "file_size_limit must be a number of bytes, a text as 20MB, or null").With("field", "file_size_limit")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return nil, hob.Wrap("read a size", err)
	}
	n <<= map[string]int{"kb": 10, "mb": 20, "gb": 30}[strings.ToLower(m[2])]
	return &n, nil
}

func getBucket(c *call) error {
	b, err := c.s.Store.Bucket(c.Context(), c.by, c.PathValue("bucket"))
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, b)
}

func updateBucket(c *call) error {
	var in bucketChange
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	p, err := in.patch(b)
	if err != nil {
		return err
	}
	if _, err := c.s.Store.UpdateBucket(c.Context(), c.by, c.PathValue("bucket"), p); err != nil {
		return err
	}
	return c.reply(http.StatusOK, doneAnswer{"Successfully updated"})
}

func deleteBucket(c *call) error {
	if err := c.s.Store.DeleteBucket(c.Context(), c.by, c.PathValue("bucket")); err != nil {
		return err
	}
	return c.reply(http.StatusOK, doneAnswer{"Successfully deleted"})
}

func emptyBucket(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	if err := files.Empty(c.Context(), c.by, c.PathValue("bucket")); err != nil {
		return err
	}
	return c.reply(http.StatusOK, doneAnswer{"Successfully emptied"})
}
