package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"hob"
	"hob/internal/egress"
)

// httpTool calls the endpoint of a custom tool: one request per call, with the arguments in the query (GET, HEAD,
// DELETE) or as a JSON body, and what the endpoint answers as the result.
type httpTool struct {
	set       *Set
	spec      hob.ToolSpec
	config    hob.ToolConfig
	limits    *limits // of the assignment
	method    string
	timeout   time.Duration
	most      int // characters of an answer that are shown
	maxResult int // characters of any result
	pool      string
}

func newHTTPTool(s *Set, l loading, t *hob.Tool, bound *binding) *httpTool {
	limits := bound.options.(*limits)
	timeout := l.numbers.CustomTimeout
	if t.Config.TimeoutSeconds > 0 {
		timeout = time.Duration(t.Config.TimeoutSeconds * float64(time.Second))
	}
	timeout = orDefault(limits.timeout, timeout)
	recovery := cmp.Or(t.Config.Recovery, hob.RecoverOnce)
	return &httpTool{
		set: s, config: t.Config, limits: limits, method: methodOf(t.Config), timeout: timeout,
		most: limits.chars(l.numbers.MaxOutput), maxResult: l.numbers.MaxResult, pool: poolName(l.grant, string(t.ID)),
		spec: hob.ToolSpec{
			Name: t.Name, Description: t.Description, Schema: bound.schema, Kind: hob.HTTPTool, Ref: string(t.ID),
			Recovery: recovery, Effect: cmp.Or(t.Config.Effect, hob.EffectExternal), Parallel: recovery == hob.RecoverRead,
			Pinned: bound.pinned, FullSchema: bound.full, Rules: bound.rules, Timeout: timeout + callGrace,
		},
	}
}

// methodOf is the HTTP method of a custom tool, POST where it names none.
func methodOf(c hob.ToolConfig) string { return strings.ToUpper(cmp.Or(c.Method, http.MethodPost)) }

// takesQuery says whether a method sends its arguments in the URL.
func takesQuery(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodDelete
}

// Spec describes the tool.
func (t *httpTool) Spec() hob.ToolSpec { return t.spec }

// Call sends the request. Whatever the endpoint does is a result; the error is that of a cancelled ctx.
func (t *httpTool) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	req, err := t.request(c)
	if err != nil {
		return hob.Result{Text: "Error: " + messageOf(err), IsError: true, Free: true}, nil
	}
	if !t.set.calls.take(c, t.limits.maxCalls) {
		return hob.Result{Text: "Error: " + t.limits.spent(c.Name), IsError: true, Free: true}, nil
	}
	res, err := t.set.deps.Egress.Do(ctx, req)
	if t.spec.Effect == hob.EffectRead && isUnreachable(err) {
		res, err = t.set.deps.Egress.Do(ctx, req) // nothing was sent, and nothing is lost by another try
	}
	if err != nil {
		if gone := cancelled(ctx, t.spec.Name); gone != nil {
			return hob.Result{}, gone
		}
		t.set.noAnswer(c, err, t.hide)
		text := t.hide("Error: " + transportText(err, t.method))
		return hob.Result{
			Text: text, IsError: true, Free: unsent(err), Note: noteOf(err, t.hide), Unknown: t.spec.Recovery != hob.RecoverRead && unanswered(err, t.method),
		}, nil
	}
	return t.result(res), nil
}

// isUnreachable says whether no connection came about.
func isUnreachable(err error) bool {
	var e *egress.Error
	return errors.As(err, &e) && e.Kind == egress.Unreachable
}

func (t *httpTool) request(c hob.Call) (egress.Request, error) {
	header := make(http.Header, len(t.config.Headers)+4)
	for name, secret := range t.config.Headers {
		header.Set(name, string(secret)) // the one place where the secrets of a tool are opened
	}
	header.Set("X-Run-Id", string(c.Run))
	header.Set("X-Tool-Call-Id", string(c.ID))
	header.Set("Idempotency-Key", c.Key)
	req := egress.Request{
		Pool: t.pool, Method: t.method, Header: header, Timeout: t.timeout,
		MaxBody: readCap(t.most), Redirects: redirectsFor(t.method), AllowedHosts: t.limits.hosts,
		Once: t.spec.Recovery == hob.RecoverOnce, BeginBy: c.BeginBy,
	}
	args := c.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	var err error
	if req.URL, args, err = filled(t.config.Endpoint, args); err != nil {
		return egress.Request{}, err
	}
	if !takesQuery(t.method) {
		if header.Get("Content-Type") == "" {
			header.Set("Content-Type", "application/json")
		}
		req.Body = args
		return req, nil
	}
	fixed, err := fixedQuery(t.config.Endpoint)
	if err != nil {
		return egress.Request{}, err
	}
	query, err := queryString(args, fixed)
	req.URL = withQuery(req.URL, query)
	return req, err
}

// fixedQuery are the parameters that an endpoint has by itself.
func fixedQuery(endpoint string) (url.Values, error) {
	bad := hob.Errorf(hob.Invalid, "the tool's endpoint is not a valid URL").With("field", "config.endpoint")
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, bad // the cause would repeat the URL, which may hold secrets
	}
	fixed, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad
	}
	return fixed, nil
}

// hide takes the tool's secrets out of a text.
func (t *httpTool) hide(text string) string {
	if r := redactor(t.config.Headers); r != nil {
		return r.Replace(text)
	}
	return text
}

// result is what the model reads of an answer: the text of a 2xx, {"ok","status"} where that is empty; of a 4xx or 5xx the status and the beginning of the
// text, as an error; of a redirect that is not followed the status alone, as an error.
func (t *httpTool) result(res *egress.Response) hob.Result {
	text, readable := bodyText(res)
	text = t.hide(text)
	switch {
	case res.Status >= 400:
		text, _ = cut(strings.TrimSpace(text), maxErrorBody)
		text = fmt.Sprintf("Error: HTTP %d: %s", res.Status, cmp.Or(text, http.StatusText(res.Status), "no further information"))
		return hob.Result{Text: text, IsError: true}
	case res.Status >= 300:
		text = fmt.Sprintf("Error: HTTP %d: the endpoint answered with a redirect, which is not followed for %s", res.Status, t.method)
		return hob.Result{Text: text, IsError: true}
	}
	return hob.Result{Text: shownBody(res, text, readable, t.most, t.maxResult)}
}
