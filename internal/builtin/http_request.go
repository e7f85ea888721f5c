package builtin

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"hob"
	"hob/internal/egress"
)

//go:embed http_request.md
var httpRequestText string

// maxHeaderShown bounds the value of one response header, in characters.
const maxHeaderShown = 512

// Keys of config_override that are options of http_request.
const (
	allowedHostsKey = "allowed_hosts"
	recoveryKey     = "recovery"
)

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
		keys:    []string{allowedHostsKey, recoveryKey},
		options: func(_ *Set, keys map[string]json.RawMessage) (any, error) { return readHTTPOptions(keys) },
		open: func(o opening) (hob.ToolRunner, string) {
			options := o.options.(*httpOptions)
			o.spec.Recovery = options.recovery
			o.spec.Timeout = o.numbers.HTTPTimeout + callGrace
			return &httpRequest{
				set: o.set, spec: o.spec, numbers: o.numbers, hosts: options.hosts, pool: poolName(o.grant, o.spec.Ref),
			}, ""
		},
	})
}

// httpOptions are what an assignment of http_request sets.
type httpOptions struct {
	hosts    []string // empty: the public internet
	recovery hob.Recovery
}

// readHTTPOptions reads allowed_hosts and recovery. An empty list of hosts is an error: to some it means nothing, to
// others everything.
func readHTTPOptions(keys map[string]json.RawMessage) (*httpOptions, error) {
	o := &httpOptions{recovery: hob.RecoverOnce}
	if raw, ok := keys[allowedHostsKey]; ok {
		if json.Unmarshal(raw, &o.hosts) != nil || len(o.hosts) == 0 {
			return nil, badKey(allowedHostsKey, `must be a list of at least one host, like ["api.example.com","*.example.org"]; leave it out to allow the public internet`)
		}
		if err := egress.CheckAllowedHosts(o.hosts); err != nil {
			return nil, badKey(allowedHostsKey, "is not usable: %s", err.Error())
		}
	}
	if raw, ok := keys[recoveryKey]; ok {
		if json.Unmarshal(raw, &o.recovery) != nil {
			o.recovery = ""
		}
		switch o.recovery {
		case hob.RecoverRead, hob.RecoverKeyed, hob.RecoverOnce:
		default:
			return nil, badKey(recoveryKey, "must be read, keyed or once")
		}
	}
	return o, nil
}

// httpRequest sends the request a model describes.
type httpRequest struct {
	set     *Set
	spec    hob.ToolSpec
	numbers *Settings // of the workspace
	hosts   []string
	pool    string
}

// httpAnswer is the result the model reads.
type httpAnswer struct {
	Status    int               `json:"status"`
	URL       string            `json:"url,omitempty"` // where redirects led
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Truncated bool              `json:"truncated"`
}

// Spec describes the tool.
func (t *httpRequest) Spec() hob.ToolSpec { return t.spec }

// Call sends the request. Its result is JSON: an httpAnswer, with IsError from status 400 on, or {"error"} when there
// was no answer. The error is that of a cancelled ctx.
func (t *httpRequest) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	req, err := t.request(c)
	if err != nil {
		return errorJSON("%s", messageOf(err)), nil
	}
	res, err := t.set.deps.Egress.Do(ctx, req)
	if err != nil {
		if gone := cancelled(ctx, t.spec.Name); gone != nil {
			return hob.Result{}, gone
		}
		t.set.noAnswer(c, err, func(text string) string { return text })
		r := errorJSON("%s", transportText(err, req.Method))
		r.Unknown = unanswered(err, req.Method)
		return r, nil
	}
	return t.result(req, res), nil
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
		Timeout: t.numbers.HTTPTimeout, MaxBody: readCap(t.numbers.MaxOutput),
		Redirects: redirectsFor(method), AllowedHosts: t.hosts, ModelHeaders: !adminWrote,
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

func (t *httpRequest) result(req egress.Request, res *egress.Response) hob.Result {
	settings := t.numbers
	text, _ := bodyText(res)
	a := httpAnswer{Status: res.Status, Headers: shownHeaders(res.Header), Truncated: res.Truncated}
	if redirected(req.URL, res.URL) {
		a.URL = res.URL
	}
	var more bool
	a.Body, more = cut(text, settings.MaxOutput)
	a.Truncated = a.Truncated || more
	out := encode(a)
	// JSON may need several characters for one of the body; it must stay whole JSON below the cap of all results.
	for utf8.RuneCount(out) > settings.MaxResult && a.Body != "" {
		a.Body, _ = cut(a.Body, utf8.RuneCountInString(a.Body)/2)
		a.Truncated = true
		out = encode(a)
	}
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
