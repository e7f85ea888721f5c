package api

import (
	"net/http"
	"strings"

	"hob"
)

const (
	defaultObjects = 100
	maxObjects     = 1000
	defaultLink    = 60 // seconds
)

type (
	// objectRow is an object as lists have it.
	objectRow struct {
		hob.File
		Metadata objectMetadata `json:"metadata"`
	}
	objectMetadata struct {
		ETag          string   `json:"eTag"`
		Size          int64    `json:"size"`
		MimeType      string   `json:"mimetype"`
		ContentLength int64    `json:"contentLength"`
		LastModified  hob.Time `json:"lastModified"`
	}
	objectList []objectRow
	objectKey  struct {
		ID  string `json:"Id"`
		Key string `json:"Key" jsonschema:"bucket/path"`
	}
	listInput struct {
		Prefix string `json:"prefix,omitempty" jsonschema:"how the names begin; all where left out"`
		Limit  *int   `json:"limit,omitempty" jsonschema:"how many: 100 where left out, at most 1000"`
		Offset *int   `json:"offset,omitempty" jsonschema:"how many to skip"`
		Search string `json:"search,omitempty" jsonschema:"a part of the name"`
		SortBy *struct {
			Column string `json:"column,omitempty" jsonschema:"name (default), created_at, updated_at or last_accessed_at"`
			Order  string `json:"order,omitempty" jsonschema:"asc (default) or desc"`
		} `json:"sortBy,omitempty"`
	}
	prefixesInput struct {
		Prefixes []string `json:"prefixes" jsonschema:"the whole names of 1 to 1000 objects"`
	}
	moveInput struct {
		Bucket     string `json:"bucketId"`
		Source     string `json:"sourceKey"`
		ToBucket   string `json:"destinationBucket,omitempty" jsonschema:"the same bucket where left out"`
		TargetName string `json:"destinationKey"`
	}
	signInput struct {
		ExpiresIn *int64 `json:"expiresIn,omitempty" jsonschema:"seconds: 60 where left out, 1 to 604800"`
	}
	signedAnswer struct {
		SignedURL string `json:"signedURL" jsonschema:"relative to /storage/v1"`
	}
)

func rowOf(f hob.File) objectRow {
	return objectRow{f, objectMetadata{ETag: etag(f), Size: f.Size, MimeType: f.Type, ContentLength: f.Size, LastModified: f.UpdatedAt}}
}

func rowsOf(files []hob.File) objectList {
	rows := make(objectList, len(files))
	for i, f := range files {
		rows[i] = rowOf(f)
	}
	return rows
}

func objectInfo(c *call) error {
	name, err := hob.CleanFileName(c.PathValue("path"))
	if err != nil {
		return err
	}
	f, err := c.s.Store.File(c.Context(), c.by, c.PathValue("bucket"), name)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, rowOf(f))
}

func listObjects(c *call) error {
	var in listInput
	if _, err := c.decode(&in, true); err != nil {
		return err
	}
	q := hob.FileQuery{Bucket: c.PathValue("bucket"), Prefix: strings.TrimLeft(in.Prefix, "/"), Search: in.Search, Limit: defaultObjects}
	if in.Limit != nil {
		if q.Limit = min(*in.Limit, maxObjects); q.Limit < 1 {
			return hob.Errorf(hob.Invalid, "limit must be a whole number from 1 to %d", maxObjects).With("field", "limit")
		}
	}
	if in.Offset != nil {
		if q.Offset = min(*in.Offset, maxListedOffset); q.Offset < 0 {
			return hob.Errorf(hob.Invalid, "offset must be a whole number from 0 up").With("field", "offset")
		}
	}
	if in.SortBy != nil {
		q.SortBy = in.SortBy.Column
		switch strings.ToLower(in.SortBy.Order) {
		case "", "asc":
		case "desc":
			q.Descending = true
		default:
			return hob.Errorf(hob.Invalid, "sortBy.order must be asc or desc").With("field", "sortBy.order")
		}
	}
	page, err := c.s.Store.Files(c.Context(), c.by, q)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, rowsOf(page.Items))
}

func deleteObject(c *call) error {
	deleted, err := c.remove(c.PathValue("path"))
	if err != nil {
		return err
	}
	if len(deleted) == 0 {
		return hob.Errorf(hob.NotFound, "Object not found").WithCode("object_not_found")
	}
	return c.reply(http.StatusOK, doneAnswer{"Successfully deleted"})
}

func deleteObjects(c *call) error {
	var in prefixesInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	if n := len(in.Prefixes); n < 1 || n > hob.MaxFilesDeleted {
		return b.hint(hob.Errorf(hob.Invalid, "prefixes must name 1 to %d objects", hob.MaxFilesDeleted).With("field", "prefixes"))
	}
	deleted, err := c.remove(in.Prefixes...)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, rowsOf(deleted))
}

// remove deletes objects of the path's bucket.
func (c *call) remove(given ...string) ([]hob.File, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(given))
	for i, g := range given {
		if names[i], err = hob.CleanFileName(g); err != nil {
			return nil, err
		}
	}
	return files.Remove(c.Context(), c.by, c.PathValue("bucket"), names...)
}

// move reads what is to be moved or copied.
func (c *call) move() (hob.FileMove, error) {
	var in moveInput
	b, err := c.decode(&in, false)
	if err != nil {
		return hob.FileMove{}, err
	}
	m := hob.FileMove{Bucket: in.Bucket, ToBucket: in.ToBucket, Owner: c.by.Owner()}
	if m.ToBucket == "" {
		m.ToBucket = m.Bucket
	}
	for _, f := range []struct {
		name, value string
		to          *string
	}{{"sourceKey", in.Source, &m.Name}, {"destinationKey", in.TargetName, &m.ToName}} {
		if f.value == "" || m.Bucket == "" {
			return m, b.hint(hob.Errorf(hob.Invalid, "bucketId, sourceKey and destinationKey are required").With("field", f.name))
		}
		if *f.to, err = hob.CleanFileName(f.value); err != nil {
			return m, err
		}
	}
	return m, nil
}

func copyObject(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	m, err := c.move()
	if err != nil {
		return err
	}
	m.Overwrite = c.upsert()
	f, err := files.Copy(c.Context(), c.by, m)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, keyOf(f))
}

func keyOf(f hob.File) objectKey { return objectKey{f.ID, f.Bucket + "/" + f.Name} }

func moveObject(c *call) error {
	m, err := c.move()
	if err != nil {
		return err
	}
	if _, err := c.s.Store.MoveFile(c.Context(), c.by, m); err != nil {
		return err
	}
	return c.reply(http.StatusOK, doneAnswer{"Successfully moved"})
}

func signObject(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	var in signInput
	if _, err := c.decode(&in, true); err != nil {
		return err
	}
	d, err := linkTime(in.ExpiresIn)
	if err != nil {
		return err
	}
	link, err := files.Sign(c.Context(), c.by, c.PathValue("bucket"), c.PathValue("path"), d)
	if err == nil {
		err = c.noteSigned(c.PathValue("bucket"), d, c.PathValue("path"))
	}
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, signedAnswer{link})
}
