package builtin

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
	"hob/internal/egress"
)

//go:embed http_request.md
var httpRequestText string

// maxHeaderShown bounds the value of one response header, in characters.
const maxHeaderShown = 512

func init() {
	add(builtin{
		name:        "http_request",
		description: httpRequestText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"url":{"type":"string","description":"Absolute http or https URL"},` +
			`"method":{"type":"string","enum":["GET","POST","PUT","DELETE","PATCH","HEAD"],"default":"GET"},` +
			`"headers":{"type":"object","additionalProperties":{"type":"string"},"description":"Request headers such as Accept"},` +
			`"body":{"description":"Request body, sent as JSON; not for GET and HEAD. Text is sent as it is when headers name another Content-Type"}` +
			`},"required":["url"],"additionalProperties":false}`),
		effect: hob.EffectExternal, recovery: hob.RecoverOnce,
		keys:    []string{allowedHostsKey, methodsKey, timeoutKey, maxCharsKey, maxCallsKey, recoveryKey, resultKey},
		options: func(_ *Set, keys map[string]json.RawMessage) (any, error) { return readLimits(keys) },
		open: func(o opening) (hob.ToolRunner, string) {
			t := &httpRequest{set: o.set, spec: o.spec, numbers: o.numbers, limits: o.options.(*limits), pool: poolName(o.grant, o.spec.Ref)}
			t.timeout = orDefault(t.limits.timeout, o.numbers.HTTPTimeout)
			t.spec.Recovery = cmp.Or(t.limits.recovery, hob.RecoverOnce)
			t.spec.Timeout = t.timeout + callGrace
			return t, ""
		},
	})
}

// httpRequest sends the request a model describes.
type httpRequest struct {
	set     *Set
	spec    hob.ToolSpec
	numbers *Settings // of the workspace
	limits  *limits
	timeout time.Duration
	pool    string
}

// httpAnswer is the result the model reads where the assignment asks for all of it.
type httpAnswer struct {
	Status    int               `json:"status"`
	URL       string            `json:"url,omitempty"` // where redirects led
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Truncated bool              `json:"truncated"`
}

// httpFault is the result of an answer that is none the model asked for.
type httpFault struct {
	Error     string `json:"error"`
	Status    int    `json:"status"`
	Location  string `json:"location,omitempty"`
	Body      string `json:"body,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Spec describes the tool.
func (t *httpRequest) Spec() hob.ToolSpec { return t.spec }

// Call sends the request. Its result is the body of a 2xx as it is, and an httpFault for any other status; or, where the
// assignment says so, an httpAnswer whatever the status. Without an answer it is {"error"}. A status of 400 and above is an
// error. The error is that of a cancelled ctx.
func (t *httpRequest) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	req, err := t.request(c)
	if err != nil {
		return refused("%s", messageOf(err)), nil
	}
	if !t.set.calls.take(c, t.limits.maxCalls) {
		return refused("%s", t.limits.spent(c.Name)), nil
	}
	res, err := t.set.deps.Egress.Do(ctx, req)
	if err != nil {
		if gone := cancelled(ctx, t.spec.Name); gone != nil {
			return hob.Result{}, gone
		}
		t.set.noAnswer(c, err, asItIs)
		r := errorJSON("%s", transportText(err, req.Method))
		r.Unknown, r.Free, r.Note = unanswered(err, req.Method), unsent(err), noteOf(err, asItIs)
		return r, nil
	}
	if t.limits.full || req.Method == http.MethodHead { // whose answer is its headers
		return t.whole(req, res), nil
	}
	return t.body(req, res), nil
}

func (t *httpRequest) request(c hob.Call) (egress.Request, error) {
	var in struct {
		URL     string            `json:"url"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
	}
	if err := decode(c.Arguments, &in); err != nil {
		return egress.Request{}, err
	}
	method := strings.ToUpper(cmp.Or(in.Method, http.MethodGet))
	switch {
	case in.URL == "":
		return egress.Request{}, hob.Errorf(hob.Invalid, "url is required")
	case !isMethod(method):
		return egress.Request{}, hob.Errorf(hob.Invalid, "method must be GET, POST, PUT, DELETE, PATCH or HEAD")
	case !t.limits.allows(method):
		return egress.Request{}, hob.Errorf(hob.Invalid, "the method %s is not allowed here; use %s", method, strings.Join(t.limits.methods, ", "))
	}
	header := make(http.Header, len(in.Headers)+2)
	for name, value := range in.Headers {
		if _, twice := header[http.CanonicalHeaderKey(name)]; twice {
			return egress.Request{}, hob.Errorf(hob.Invalid, "the header %q stands twice in headers", http.CanonicalHeaderKey(name))
		}
		header.Set(name, value)
	}
	body, err := requestBody(method, in.Body, header)
	if err != nil {
		return egress.Request{}, err
	}
	header.Set("Idempotency-Key", c.Key) // ours: equal on every try, which a model cannot promise
	_, adminWrote := t.spec.Pinned["headers"]
	return egress.Request{
		Pool: t.pool, Method: method, URL: in.URL, Header: header, Body: body,
		Timeout: t.timeout, MaxBody: readCap(t.most()),
		Redirects: redirectsFor(method), AllowedHosts: t.limits.hosts, ModelHeaders: !adminWrote,
		Once: t.spec.Recovery == hob.RecoverOnce, BeginBy: c.BeginBy,
	}, nil
}

func isMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// requestBody is the body to send and sets its Content-Type. Any JSON value is sent as JSON. Text goes out as it is when
// the headers name another type than JSON, or when it is itself a JSON object or list: models often write a body as
// text. GET and HEAD have no body; models send them an empty one, which is left out.
func requestBody(method string, raw json.RawMessage, header http.Header) ([]byte, error) {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null":
		return nil, nil
	case "{}", `""`:
		if redirectsFor(method) > 0 {
			return nil, nil
		}
	}
	if method == http.MethodGet || method == http.MethodHead {
		return nil, hob.Errorf(hob.Invalid, "a %s request has no body; put the values into the url or use POST", method)
	}
	kind := header.Get("Content-Type")
	if kind == "" {
		header.Set("Content-Type", "application/json")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if !isJSONType(kind) || isJSONText(text) {
			return []byte(text), nil
		}
	}
	return raw, nil
}

// isJSONType says whether a Content-Type is JSON; none counts as such.
func isJSONType(kind string) bool {
	if kind == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(kind)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

func isJSONText(s string) bool {
	s = strings.TrimSpace(s)
	return s != "" && (s[0] == '{' || s[0] == '[') && json.Valid([]byte(s))
}

// most is how many characters of a body are shown.
func (t *httpRequest) most() int { return t.limits.chars(t.numbers.MaxOutput) }

// body is the result that is the body alone.
func (t *httpRequest) body(req egress.Request, res *egress.Response) hob.Result {
	text, readable := bodyText(res)
	switch {
	case res.Status >= 400:
		f := httpFault{
			Error: fmt.Sprintf("HTTP %d: %s", res.Status, cmp.Or(http.StatusText(res.Status), "no further information")), Status: res.Status,
		}
		out := t.fitting(strings.TrimSpace(text), res.Truncated, func(body string, cut bool) any {
			f.Body, f.Truncated = body, cut
			return f
		})
		return hob.Result{Text: string(out), IsError: true}
	case res.Status >= 300:
		location, _ := cut(strings.ToValidUTF8(res.Header.Get("Location"), "\ufffd"), maxHeaderShown)
		return hob.Result{IsError: true, Text: string(encode(httpFault{
			Error:  fmt.Sprintf("HTTP %d: the server answered with a redirect, which is not followed for %s", res.Status, req.Method),
			Status: res.Status, Location: location,
		}))}
	}
	return hob.Result{Text: shownBody(res, text, readable, t.most(), t.numbers.MaxResult)}
}

// fitting encodes an answer with as much of its body as may be shown. JSON may need several characters for one of the body;
// it must stay whole JSON below the cap of all results.
func (t *httpRequest) fitting(body string, truncated bool, with func(body string, truncated bool) any) json.RawMessage {
	body, more := cut(body, t.most())
	out := encode(with(body, truncated || more))
	for runes(out) > t.numbers.MaxResult && body != "" {
		body, _ = cut(body, utf8.RuneCountInString(body)/2)
		out = encode(with(body, true))
	}
	return out
}

// shownBody is the text of a 2xx, marked where it is cut.
func shownBody(res *egress.Response, text string, readable bool, most, maxResult int) string {
	if text == "" {
		return string(encode(emptyAnswer{true, res.Status}))
	}
	most = max(1, min(most, maxResult-len(cutNote(maxResult))))
	short, more := cut(text, most)
	if !more && (!readable || !res.Truncated) {
		return text
	}
	return short + cutNote(most)
}

// emptyAnswer is the result of a 2xx without a body.
type emptyAnswer struct {
	OK     bool `json:"ok"`
	Status int  `json:"status"`
}

// cutNote marks a body that is shown in part.
func cutNote(n int) string {
	return fmt.Sprintf("\n[truncated: only the first %d characters are shown]", n)
}

// whole is the result that tells all of the answer.
func (t *httpRequest) whole(req egress.Request, res *egress.Response) hob.Result {
	text, _ := bodyText(res)
	a := httpAnswer{Status: res.Status, Headers: shownHeaders(res.Header)}
	if redirected(req.URL, res.URL) {
		a.URL = res.URL
	}
	out := t.fitting(text, res.Truncated, func(body string, cut bool) any {
		a.Body, a.Truncated = body, cut
		return a
	})
	return hob.Result{Text: string(out), IsError: res.Status >= 400}
}

// redirected says whether the answer came from elsewhere; the guard spells the same URL in its own way.
func redirected(asked, answered string) bool {
	trim := func(s string) string { s, _, _ = strings.Cut(s, "#"); return strings.TrimSuffix(s, "/") }
	return !strings.EqualFold(trim(asked), trim(answered))
}

// shownHeaders are the response headers that help a model: what the body is, where to go on, when to come back. Cookies
// and the many headers about caches and security would only cost tokens.
func shownHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	for name, values := range h {
		if !isShown(name) {
			continue
		}
		text, _ := cut(strings.ToValidUTF8(strings.Join(values, ", "), "\ufffd"), maxHeaderShown)
		out[strings.ToLower(name)] = text
	}
	return out
}

func isShown(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Content-Range", "Content-Disposition", "Location", "Etag", "Last-Modified",
		"Retry-After", "Link", "Allow", "Www-Authenticate", "X-Request-Id", "X-Total-Count":
		return true
	}
	return strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Ratelimit")
}
