package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"hob"
)

type (
	signManyInput struct {
		ExpiresIn *int64   `json:"expiresIn,omitempty" jsonschema:"seconds that the links hold for; 60 where left out, at most 7 days"`
		Paths     []string `json:"paths" jsonschema:"the whole names of 1 to 1000 objects"`
	}
	signedList []signedRow
	// signedRow is a link, or why there is none.
	signedRow struct {
		Path  string  `json:"path"`
		URL   *string `json:"signedURL" jsonschema:"to be put behind /storage/v1; null where there is none"`
		Error *string `json:"error" jsonschema:"why there is none; null where there is one"`
	}
)

// linkTime is how long a link is to hold.
func linkTime(asked *int64) (time.Duration, error) {
	seconds := int64(defaultLink)
	if asked != nil {
		most := int64(hob.MaxLinkTime / time.Second)
		if seconds = *asked; seconds < 1 || seconds > most {
			return 0, hob.Errorf(hob.Invalid, "expiresIn must be a whole number of seconds from 1 to %d", most).With("field", "expiresIn")
		}
	}
	return time.Duration(seconds) * time.Second, nil
}

// signObjects makes links to several objects of a bucket. One that cannot be linked does not keep the others from it.
func signObjects(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	var in signManyInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	if len(in.Paths) == 0 || len(in.Paths) > maxObjects {
		return b.hint(hob.Errorf(hob.Invalid, "paths must be the names of 1 to %d objects", maxObjects).With("field", "paths"))
	}
	d, err := linkTime(in.ExpiresIn)
	if err != nil {
		return err
	}
	bucket := c.PathValue("bucket")
	if _, err := c.s.Store.Bucket(c.Context(), c.by, bucket); err != nil {
		return err
	}
	answer := make(signedList, 0, len(in.Paths))
	var signed []string
	for _, path := range in.Paths {
		link, err := files.Sign(c.Context(), c.by, bucket, path, d)
		var e *hob.Error
		switch {
		case err == nil:
			answer = append(answer, signedRow{Path: path, URL: &link})
			signed = append(signed, path)
		case errors.As(err, &e) && (e.Kind == hob.NotFound || e.Kind == hob.Invalid):
			answer = append(answer, signedRow{Path: path, Error: &e.Message})
		default:
			return err
		}
	}
	if err := c.noteSigned(bucket, d, signed...); err != nil {
		return err
	}
	return c.reply(http.StatusOK, answer)
}

// maxNotedNames is how many bytes of names an entry of the audit log keeps of links to several objects.
const maxNotedNames = 2048

// noteSigned notes links before they are handed out: whoever has one needs no key, so that nothing tells of its use. Those of
// one request share an entry.
func (c *call) noteSigned(bucket string, d time.Duration, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	e := hob.AuditEntry{Action: "file.sign", Kind: "file", Object: bucket + "/" + names[0]}
	detail := struct {
		Seconds int64    `json:"seconds"`
		Names   []string `json:"names,omitempty"`
		More    int      `json:"more,omitempty"`
	}{Seconds: int64(d / time.Second)}
	if len(names) > 1 {
		e.Object = bucket
		for i, bytes := 0, 0; i < len(names); i++ {
			if bytes += len(names[i]); bytes > maxNotedNames {
				detail.More = len(names) - i
				break
			}
			detail.Names = append(detail.Names, names[i])
		}
	}
	var err error
	if e.Detail, err = json.Marshal(detail); err != nil {
		return hob.Wrap("note a link", err)
	}
	return c.s.Store.NoteAudit(c.Context(), c.by, e)
}

// postedOnly tells of a bucket that is not there, as none can be of its name: that is a request which only POST makes.
func postedOnly(bucket string, err error) error {
	var e *hob.Error
	if !errors.As(err, &e) || e.Code != "bucket_not_found" {
		return err
	}
	switch bucket {
	case "list", "copy", "move":
		return hob.Errorf(hob.NotFound, "%s; /object/%s is a request to be made with POST", e.Message, bucket).WithCode(e.Code)
	case "upload":
		return hob.Errorf(hob.NotFound, "%s; signed uploads (/object/upload/sign) are not available, upload with POST /object/{bucket}/{path}", e.Message).WithCode(e.Code)
	}
	return err
}
