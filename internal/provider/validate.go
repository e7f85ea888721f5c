package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"hob"
	"hob/internal/egress"
)

// ValidateTime bounds the question whether a key is good.
const ValidateTime = 10 * time.Second

// keyTest is a request that costs nothing and that only a good key is answered.
type keyTest struct {
	caller *caller
	path   string
	header http.Header
}

// asker is a provider whose keys can be tried out.
type asker interface{ keyTest() keyTest }

func (p *chat) keyTest() keyTest {
	q := keyTest{&p.caller, "/models", p.header}
	if u, err := url.Parse(p.caller.base); err == nil && vendors[u.Hostname()] == openrouterName {
		q.path = "/key" // OpenRouter's list of models is open to everybody
	}
	return q
}

func (p *messages) keyTest() keyTest { return keyTest{&p.caller, "/v1/models?limit=1", p.header} }

func (p *gemini) keyTest() keyTest {
	return keyTest{&p.caller, geminiVersion + "/models?pageSize=1", p.header}
}

// Validate tries a workspace's key out, at the address where Open would use it, by asking for the list of models. An error
// means that the key is not to be kept: it is Invalid where the provider refuses the key (status 401 or 403) or the key
// cannot be used as it stands, such as one for an unknown provider without base_url or with one that the egress guard
// refuses. Any other failure says nothing about the key: valid is false, and reason tells what went wrong. No text holds
// the key.
func (r *Registry) Validate(ctx context.Context, k hob.ProviderKey) (valid bool, reason string, err error) {
	k.Provider = r.canonical(k.Provider)
	p, err := r.tried(k)
	if err != nil {
		return false, err.Error(), err
	}
	ctx, cancel := context.WithTimeout(ctx, ValidateTime)
	defer cancel()
	q := p.keyTest()
	status, said, err := q.ask(ctx)
	said = q.caller.clean.clean(said)
	var guard *egress.Error
	switch {
	case errors.As(err, &guard) && (guard.Kind == egress.Refused || guard.Kind == egress.BadURL):
		return false, said, badKey("base_url", said)
	case err != nil:
		return false, said, nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return false, said, badKey("api_key", said)
	case status != http.StatusOK:
		return false, said, nil
	}
	return true, "", nil
}

func badKey(field, message string) error {
	return hob.Errorf(hob.Invalid, "%s", message).WithCode("invalid_provider_key").With("field", field)
}

// tried makes the provider that a key is for, without keeping it.
func (r *Registry) tried(k hob.ProviderKey) (asker, error) {
	m, known := makers[k.Provider]
	switch {
	case k.Provider == "" || strings.ContainsAny(k.Provider, "/ \t\r\n"):
		return nil, badKey("provider", "a provider's name must be one word without a slash")
	case known && m.endpoint == nil:
		return nil, badKey("provider", "the provider "+k.Provider+" takes no key")
	case k.Key == "" && k.BaseURL == "":
		return nil, badKey("api_key", "the key of "+k.Provider+" is missing")
	case strings.TrimSpace(k.BaseURL) == "" && (!known || m.name == ollamaName):
		return nil, badKey("base_url", "the provider "+k.Provider+" needs a base_url, as https://host/v1")
	case !known:
		m = namedMaker(k.Provider)
	}
	if strings.ContainsAny(string(k.Key), "\r\n\x00") {
		return nil, badKey("api_key", "the key has line breaks")
	}
	p, err := m.open(r.ownEnv(k))
	if err != nil {
		var e *hob.Error
		if errors.As(err, &e) && e.Kind == hob.Invalid {
			return nil, badKey("base_url", e.Message)
		}
		return nil, err
	}
	a, ok := p.(asker)
	if !ok {
		return nil, hob.Errorf(hob.Internal, "provider: the keys of %s cannot be tried out", k.Provider)
	}
	return a, nil
}

// ask sends the question. said is what to tell people where the answer is no list; status is what the answer stands for,
// whatever its HTTP status was.
func (q keyTest) ask(ctx context.Context) (status int, said string, err error) {
	c := q.caller
	failed := func(err error) (int, string, error) { return 0, c.connection(ctx, err, q.path).Message, err }
	client, err := c.client()
	if err != nil {
		return failed(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+q.path, nil)
	if err != nil {
		return failed(err)
	}
	req.Header = q.header.Clone()
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "hob")
	res, err := client.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return 0, c.name + ": no answer within " + ValidateTime.String(), err
		}
		return failed(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // the beginning of a long list is enough
	if err != nil {
		return failed(err)
	}
	if res.StatusCode == http.StatusOK {
		if text := strings.TrimSpace(string(body)); text == "" || text[0] != '{' && text[0] != '[' {
			return failed(errWebPage)
		}
		return res.StatusCode, "", nil
	}
	e, typed := readVendorError(body)
	if !typed {
		e.Message = string(body)
	}
	class := classify(res.StatusCode, e)
	if class == hob.ClassUnauthorized && res.StatusCode == http.StatusBadRequest {
		res.StatusCode = http.StatusUnauthorized // Google's answer to a wrong key
	}
	return res.StatusCode, c.message(res.StatusCode, class, e, q.path), nil
}
