package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"hob"
	"hob/internal/egress"
)

// cut returns the first n characters of valid UTF-8 text and whether there were more.
func cut(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}

// readCap is how many bytes of a response are read in order to show n characters of it: enough for n of the longest,
// and some more so that a secret which straddles the cut is still recognised whole.
func readCap(n int) int64 { return min(maxRead, int64(n)*utf8.UTFMax+4096) }

// bodyText is a response's body as valid UTF-8. What is no text (images, archives, UTF-16) becomes a short note with
// its type and size, and ok is false.
func bodyText(r *egress.Response) (text string, ok bool) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind, params = "", nil
	}
	declared := isTextType(kind)
	switch {
	case len(r.Body) == 0:
		return "", true
	case isMediaType(kind) && !declared, bytes.IndexByte(r.Body, 0) >= 0:
		return binaryNote(kind, r), false
	}
	switch strings.ToLower(params["charset"]) {
	case "iso-8859-1", "latin1", "windows-1252", "us-ascii":
		// Browsers read all of them as windows-1252, and so do the authors of such pages.
		if b, err := charmap.Windows1252.NewDecoder().Bytes(r.Body); err == nil && !utf8.Valid(r.Body) {
			return string(b), true
		}
	}
	body := bytes.TrimPrefix(r.Body, []byte("\ufeff"))
	if utf8.Valid(body) {
		return string(body), true
	}
	if !declared {
		return binaryNote(kind, r), false
	}
	return strings.ToValidUTF8(string(body), "\ufffd"), true
}

// isTextType says whether a media type promises text.
func isTextType(kind string) bool {
	switch kind {
	case "application/json", "application/xml", "application/javascript", "application/x-www-form-urlencoded",
		"application/yaml", "application/x-ndjson", "application/graphql":
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml")
}

// isMediaType says whether a media type is that of something to look at or listen to.
func isMediaType(kind string) bool {
	for _, p := range [...]string{"image/", "audio/", "video/", "font/"} {
		if strings.HasPrefix(kind, p) {
			return true
		}
	}
	return false
}

func binaryNote(kind string, r *egress.Response) string {
	if kind == "" {
		kind = "unknown type"
	}
	size := fmt.Sprintf("%d bytes", len(r.Body))
	if r.Truncated {
		size = "more than " + size
	}
	return fmt.Sprintf("[binary content not shown: %s, %s]", kind, size)
}

// errorJSON is the result of a builtin that failed.
func errorJSON(format string, args ...any) hob.Result {
	return hob.Result{Text: string(encode(map[string]string{"error": fmt.Sprintf(format, args...)})), IsError: true}
}

// refused is the result of a call that was refused before anything was done: an error that is not counted.
func refused(format string, args ...any) hob.Result {
	r := errorJSON(format, args...)
	r.Free = true
	return r
}

// transportText is what a model may read about an exchange that came to no answer. A request that writes and whose
// answer was lost may have been carried out, and the model must know.
func transportText(err error, method string) string {
	var e *egress.Error
	if !errors.As(err, &e) {
		return "the request could not be carried out"
	}
	if unanswered(err, method) {
		return e.Message + "; the request may have been carried out nevertheless"
	}
	return e.Message
}

// noteOf tells an administrator why an exchange came to no answer, which models do not read. hide takes secrets out.
func noteOf(err error, hide func(string) string) string {
	var e *egress.Error
	switch {
	case !errors.As(err, &e):
		return ""
	case e.Refusal != nil:
		return e.Refusal.Explain()
	}
	return hide(e.Detail())
}

func asItIs(text string) string { return text }

// unsent says whether nothing of a request was sent: the guard refused it, or no connection came about. The two are alike
// here as in their texts, lest the ledger tells what the guard hides.
func unsent(err error) bool {
	var e *egress.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case egress.Refused, egress.Unreachable, egress.BadURL, egress.BadRequest, egress.Busy, egress.Late, egress.Closed:
		return true
	default:
		return false
	}
}

// unanswered says whether a request that writes may have been carried out although no whole answer came.
func unanswered(err error, method string) bool {
	var e *egress.Error
	if !errors.As(err, &e) || method == http.MethodGet || method == http.MethodHead {
		return false
	}
	switch e.Kind {
	case egress.Timeout, egress.BadResponse, egress.TooLarge, egress.Canceled:
		return true
	default:
		return false
	}
}

// cancelled is the error of a call whose caller has gone; nil while it has not. A deadline is no such case: the model
// reads of it as a result.
func cancelled(ctx context.Context, name string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("call %s: %w", name, context.Cause(ctx))
	}
	return nil
}
