package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"hob"
)

const (
	maxWarned   = 10 // unknown fields named in warnings
	maxNameSeen = 64 // bytes of an unknown field's name shown
	firstRead   = 8 << 10
)

// body is a request's decoded body.
type body struct {
	raw      []byte
	fields   map[string]json.RawMessage // what stood in it, known or not
	known    int                        // how many of them are known
	unknown  []string                   // the names of the others, in order
	warnings []string                   // one per unknown field, bounded
}

// has says whether the body names a field, null or not.
func (b body) has(field string) bool { _, ok := b.fields[field]; return ok }

// null says whether the body gives a field as null.
func (b body) null(field string) bool { return string(bytes.TrimSpace(b.fields[field])) == "null" }

// decode reads the body, which must be a JSON object, into the struct that into points to. Field names count exactly as
// they are written. Unknown fields are ignored and named in warnings. An empty body is Invalid unless optional.
func (c *call) decode(into any, optional bool) (body, error) {
	raw, err := c.content()
	if err != nil {
		return body{}, err
	}
	return decode(raw, into, c.rt.fields, optional)
}

// content is the body as it came. It is read once.
func (c *call) content() ([]byte, error) {
	if c.raw != nil {
		return c.raw, nil
	}
	limit := c.s.Limits.Body
	if c.rt.bigBody {
		limit = c.s.Limits.BigBody
	}
	var err error
	c.raw, err = c.read(limit)
	return c.raw, err
}

// decode is the one decoder of bodies: whatever comes, it answers with a value or an Invalid error. known are the fields
// of into.
func decode(raw []byte, into any, known []string, optional bool) (body, error) {
	b := body{raw: raw}
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 && optional {
		return b, nil
	}
	if len(trimmed) == 0 {
		return b, hob.Errorf(hob.Invalid, "the request needs a JSON object as its body").WithCode("invalid_json")
	}
	if err := hob.CheckJSON(raw); err != nil {
		return b, err
	}
	if holdsNUL(raw) {
		return b, hob.Errorf(hob.Invalid, "text must not hold the character U+0000").WithCode("invalid_json")
	}
	if trimmed[0] != '{' {
		return b, hob.Errorf(hob.Invalid, "the body must be an object").WithCode("invalid_json")
	}
	if err := json.Unmarshal(raw, &b.fields); err != nil {
		return b, hob.FieldError("", err)
	}
	for name := range b.fields {
		if slices.Contains(known, name) {
			b.known++
		} else {
			b.unknown = append(b.unknown, name)
		}
	}
	slices.Sort(b.unknown)
	if b.known < len(b.fields) {
		var err error
		if raw, err = onlyKnown(b.fields, known); err != nil {
			return b, err
		}
		for _, name := range b.unknown[:min(len(b.unknown), maxWarned)] {
			b.warnings = append(b.warnings, "unknown field ignored: "+shown(name))
		}
		if more := len(b.unknown) - maxWarned; more > 0 {
			b.warnings = append(b.warnings, strconv.Itoa(more)+" more unknown fields ignored")
		}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return b, fieldError(err, reflect.TypeOf(into))
	}
	return b, nil
}

// fieldError names the field of a struct as the client knows it: without the Go structs that lend their fields to another.
func fieldError(err error, of reflect.Type) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		lenders := lendersOf(of, nil)
		t.Field = strings.Join(slices.DeleteFunc(strings.Split(t.Field, "."), func(name string) bool {
			return slices.Contains(lenders, name)
		}), ".")
	}
	return hob.FieldError("", err)
}

// lendersOf lists the names of the structs that are embedded in a type, or in the types of its fields.
func lendersOf(t reflect.Type, names []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return names
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" {
			names = append(names, f.Name)
		}
		if f.IsExported() || f.Anonymous {
			names = lendersOf(f.Type, names)
		}
	}
	return names
}

// onlyKnown is the body without the fields that are not known by exactly their name: encoding/json would take them for
// known ones that differ in case.
func onlyKnown(fields map[string]json.RawMessage, known []string) ([]byte, error) {
	kept := make(map[string]json.RawMessage, len(known))
	for _, k := range known {
		if v, ok := fields[k]; ok {
			kept[k] = v
		}
	}
	raw, err := json.Marshal(kept)
	return raw, hob.Wrap("encode the known fields", err)
}

// shown is a client's own name for something, cut to fit an answer.
func shown(name string) string {
	if len(name) > maxNameSeen {
		name = strings.ToValidUTF8(name[:maxNameSeen], "") + "…"
	}
	return strconv.Quote(name)
}

// fieldsOf lists the JSON names of a struct's fields, embedded ones included.
func fieldsOf(t reflect.Type, names []string) []string {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			names = fieldsOf(f.Type, names)
		case name != "":
			names = append(names, name)
		}
	}
	return names
}

// holdsNUL says whether checked JSON has a string with \u0000 in it, which not every store can keep.
func holdsNUL(raw []byte) bool {
	for {
		i := bytes.Index(raw, []byte(`\u0000`))
		if i < 0 {
			return false
		}
		slashes := 1
		for i-slashes >= 0 && raw[i-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 1 { // the backslash is none that another one escapes
			return true
		}
		raw = raw[i+1:]
	}
}

// read reads the body within its size and time. The media type is not asked for, since many clients send none and curl
// calls everything a form; what is a form indeed is told so. A browser cannot send one across origins unasked: every call
// needs the Authorization header.
func (c *call) read(limit int64) ([]byte, error) {
	if e := c.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, hob.Errorf(hob.MediaType, "send the body without Content-Encoding")
	}
	tooLarge := hob.Errorf(hob.TooLarge, "the body must be at most %d bytes", limit).With("limit", limit)
	if c.ContentLength > limit {
		return nil, tooLarge
	}
	var b bytes.Buffer
	if n := c.ContentLength; n > 0 {
		b.Grow(int(min(n, firstRead)) + bytes.MinRead)
	}
	_, err := b.ReadFrom(http.MaxBytesReader(c.w, c.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, hob.Errorf(hob.Invalid, "the body did not come within %s", c.s.Limits.BodyTime).WithCode("body_timeout")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, hob.Errorf(hob.Invalid, "the body ended early").WithCode("invalid_json")
	case err != nil:
		return nil, hob.Errorf(hob.Invalid, "the body could not be read").WithCode("invalid_body")
	}
	_ = c.rc.SetReadDeadline(time.Time{}) // unsupported only in tests
	return b.Bytes(), c.form(b.Bytes())
}

// form refuses a form's body, with the way out.
func (c *call) form(body []byte) error {
	kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	form := err == nil && (kind == "multipart/form-data" || kind == "application/x-www-form-urlencoded")
	if body = bytes.TrimSpace(body); !form || len(body) == 0 || body[0] == '{' || body[0] == '[' {
		return nil
	}
	return hob.Errorf(hob.MediaType, "send the body as application/json, not as %s", kind)
}
