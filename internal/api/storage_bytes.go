package api

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"hob"
)

const (
	upsertHeader = "X-Upsert"
	// formRoom is how much longer than its file a form may be.
	formRoom = 1 << 20
	// formType is what curl calls every body that it is given no type for.
	formType = "application/x-www-form-urlencoded"
)

func (c *call) upsert() bool {
	return c.Method == http.MethodPut || strings.EqualFold(c.Header.Get(upsertHeader), "true")
}

// upload streams a body into an object. Nothing of it is held in memory, and nothing is left of one that breaks off.
func upload(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	if e := c.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return hob.Errorf(hob.MediaType, "send the body without Content-Encoding")
	}
	leave, err := c.s.uploads.enter(c.by)
	if err != nil {
		return err
	}
	defer leave()
	n := hob.NewFile{
		Bucket: c.PathValue("bucket"), Name: c.PathValue("path"), Owner: c.by.Owner(), Overwrite: c.upsert(), MaxSize: c.s.Limits.Upload,
	}
	in := &uploading{c: c, until: socketTime(c.s.Limits.UploadTime)}
	in.extend()
	kind := c.Header.Get("Content-Type")
	if media, params, err := mime.ParseMediaType(kind); err == nil && media == "multipart/form-data" {
		in.from = http.MaxBytesReader(c.w, c.Body, c.s.Limits.Upload+formRoom)
		part, err := filePart(in, params["boundary"])
		if err != nil {
			return err
		}
		n.Body, kind = part, part.Header.Get("Content-Type")
	} else {
		in.from, n.Body, n.Size = c.Body, in, max(c.ContentLength, 0)
	}
	if n.Type, err = contentType(kind); err != nil {
		return err
	}
	f, _, err := files.Put(c.Context(), c.by, n)
	if err != nil {
		return in.told(err)
	}
	_ = c.rc.SetReadDeadline(time.Time{}) // unsupported only in tests
	return c.reply(http.StatusOK, keyOf(f))
}

// contentType reads a file's type; "" where its bytes are to tell it.
func contentType(given string) (string, error) {
	given = strings.TrimSpace(given)
	if given == "" || strings.HasPrefix(strings.ToLower(given), formType) {
		return "", nil
	}
	media, params, err := mime.ParseMediaType(given)
	if err != nil || len(given) > hob.MaxContentType || !strings.Contains(media, "/") {
		return "", hob.Errorf(hob.Invalid, "the Content-Type cannot be read; it is as image/png or text/plain; charset=utf-8").
			With("field", "Content-Type").WithCode("invalid_mime_type")
	}
	return mime.FormatMediaType(media, params), nil
}

// filePart finds the file in a form: the first part that has a file name, or no name of its own.
func filePart(r io.Reader, boundary string) (*multipart.Part, error) {
	none := hob.Errorf(hob.Invalid, "the form holds no file").With("field", "file").WithCode("invalid_body")
	if boundary == "" {
		return nil, none
	}
	form := multipart.NewReader(r, boundary)
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, none
		}
		if err != nil {
			return nil, bodyFault(err)
		}
		if part.FileName() != "" || part.FormName() == "" {
			return part, nil
		}
	}
}

// uploading is a body on its way. It may take its time, but not stand still for Limits.BodyTime, nor take longer than
// Limits.UploadTime as a whole.
type uploading struct {
	c     *call
	from  io.Reader
	until time.Time
	err   error
}

func (u *uploading) extend() {
	next := socketTime(u.c.s.Limits.BodyTime)
	if next.After(u.until) {
		next = u.until
	}
	_ = u.c.rc.SetReadDeadline(next) // unsupported only in tests
}

// Read gives the next bytes.
func (u *uploading) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	if n > 0 {
		u.extend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = bodyFault(err)
		err = u.err
	}
	return n, err
}

// told is the error of an upload: the body's own where that broke off, whatever became of it on the way.
func (u *uploading) told(err error) error {
	if u.err != nil {
		return u.err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return bodyFault(err)
	}
	return err
}

// bodyFault is the error for a body that could not be read to its end.
func bodyFault(err error) error {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return hob.Errorf(hob.TooLarge, "The object exceeded the maximum allowed size: the form has more than %d bytes", over.Limit).With("limit", over.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hob.Errorf(hob.Invalid, "the body did not come in time; send it without pauses").WithCode("body_timeout")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return hob.Errorf(hob.Invalid, "the body ended early").WithCode("invalid_body")
	}
	return hob.Errorf(hob.Invalid, "the body could not be read").WithCode("invalid_body")
}

func download(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	f, body, err := files.Open(c.Context(), c.by, c.PathValue("bucket"), c.PathValue("path"))
	return c.send(f, body, postedOnly(c.PathValue("bucket"), err))
}

func downloadPublic(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	f, body, err := files.OpenPublic(c.Context(), c.PathValue("bucket"), c.PathValue("path"))
	return c.send(f, body, err)
}

func downloadSigned(c *call) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	f, body, err := files.OpenLink(c.Context(), c.PathValue("bucket"), c.PathValue("path"), c.queryValue("token"))
	return c.send(f, body, err)
}

// shownTypes are the pictures that a browser may show by itself. SVG is none of them: it is a program.
func shownTypes() []string {
	return []string{"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"}
}

// filePolicy is what a browser may do with a file that it opens as a page: show it, and nothing else.
const filePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

func etag(f hob.File) string { return `"` + f.Digest + `"` }

// send answers with an object's bytes. They are somebody's: a browser must not take them for this server's own pages.
func (c *call) send(f hob.File, body io.ReadSeekCloser, err error) error {
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	h := c.w.Header()
	h.Set("Content-Type", f.Type)
	h.Set("Content-Disposition", disposition(c, f))
	h.Set("Content-Security-Policy", filePolicy)
	h.Set("ETag", etag(f))
	h.Set("Cache-Control", "no-cache") // kept, and asked for each time whether it still holds
	if !c.rt.open {
		h.Set("Cache-Control", "private, no-cache")
	}
	if nothing := emptyRange(c.Header.Get("Range")); nothing && c.Header.Get("If-Range") == "" {
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(f.Size, 10))
		return c.refuseBytes(http.StatusRequestedRangeNotSatisfiable)
	}
	p := &paced{c: c}
	http.ServeContent(p, c.Request, "", f.UpdatedAt.Time, body)
	if p.fault != 0 {
		return c.refuseBytes(p.fault)
	}
	return nil
}

// emptyRange says whether a Range asks for the last 0 bytes, which net/http takes for a part of the object.
func emptyRange(header string) bool {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return false
	}
	for part := range strings.SplitSeq(spec, ",") {
		if n, suffix := strings.CutPrefix(strings.TrimSpace(part), "-"); !suffix || strings.Trim(n, "0") != "" || n == "" {
			return false
		}
	}
	return true
}

// refuseBytes answers in the place of an object's bytes where the request's own conditions keep them.
func (c *call) refuseBytes(status int) error {
	a := errorAnswer{Code: "range_not_satisfiable", Message: "the object has no such range of bytes"}
	if status != http.StatusRequestedRangeNotSatisfiable {
		a = errorAnswer{Code: "precondition_failed", Message: "the object is not as the request's If-Match or If-Unmodified-Since asks for"}
	}
	body, err := marshal(faultFor(c.URL.Path, status, &hob.Error{Kind: hob.Kind(a.Code)}, a))
	if err != nil {
		return hob.Wrap("encode the answer", err)
	}
	h := c.w.Header()
	for _, name := range []string{"Content-Disposition", "Content-Length", "ETag", "Last-Modified", "Accept-Ranges"} {
		h.Del(name)
	}
	c.s.write(c.w, status, body)
	return nil
}

// disposition says whether a file is to be saved, and under which name.
func disposition(c *call, f hob.File) string {
	query := c.URL.Query()
	media, _, _ := mime.ParseMediaType(f.Type)
	if !query.Has("download") && slices.Contains(shownTypes(), media) {
		return "inline"
	}
	name := path.Base(f.Name)
	if asked := query.Get("download"); plainText(asked, maxNameSeen*4) && asked != "true" {
		name = path.Base(strings.ReplaceAll(asked, `\`, "/"))
	}
	if text := mime.FormatMediaType("attachment", map[string]string{"filename": name}); text != "" {
		return text
	}
	return "attachment"
}

// paced gives each piece of an answer its time. An answer of net/http's own that tells of a fault is kept back.
type paced struct {
	c     *call
	fault int // its status
}

// Header gives the answer's header.
func (p *paced) Header() http.Header { return p.c.w.Header() }

// WriteHeader sends the status.
func (p *paced) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		p.fault = status
		return
	}
	p.c.w.WriteHeader(status)
}

// Write sends a piece.
func (p *paced) Write(b []byte) (int, error) {
	if p.fault != 0 {
		return len(b), nil
	}
	_ = p.c.rc.SetWriteDeadline(socketTime(p.c.s.Limits.WriteTime)) // unsupported only in tests
	return p.c.w.Write(b)
}
