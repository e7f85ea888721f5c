package egress

import (
	"errors"
	"net/http"
)

// userPool begins the pool names of user clients, so that they share no
// connection with an exchange of Do: the pools of tools are named after grants.
const userPool = "user client "

// UserClient returns a streaming client for one base URL that a user wrote
// down, such as a model server of their own. The destination is judged as that
// of a tool: public addresses at ports 80 and 443, and what HOB_EGRESS_ALLOW
// opens; never one of Hob's own listeners. Only the scheme, host and port of
// the base URL are reached.
//
// Like the client of [Guard.OperatorClient] it follows no redirect, ignores the
// environment's proxies, asks for no compression and bounds connecting but not
// the exchange. Clients of one origin share their connections; the number of
// origins whose connections are kept is that of [Config.Pools], tools included.
//
// The error has Kind BadURL, or Refused where no look-up is needed to know. A
// name that leads to a forbidden address is told of by the client's calls with
// Kind Unreachable, as one that does not exist: a user must not learn which
// names the private network has.
func (g *Guard) UserClient(baseURL string) (*http.Client, error) {
	t, err := parseURL(baseURL)
	if err != nil {
		return nil, err
	}
	if err := g.checkTarget(t); err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     &userTransport{guard: g, base: t, pool: userPool + t.url.Scheme + "://" + t.url.Host},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// userTransport lets requests for one origin through. It holds no connections
// itself, so that forgetting a client leaves nothing open.
type userTransport struct {
	guard *Guard
	base  *target
	pool  string
}

// RoundTrip implements [http.RoundTripper].
func (u *userTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	transport, err := u.admit(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a round tripper closes the body of a request it does not send
		}
		return nil, err
	}
	h := &hop{pool: u.pool, publicPort: isWebPort(u.base.port)}
	res, err := transport.RoundTrip(req.WithContext(h.watch(req.Context())))
	var own *Error
	if errors.As(err, &own) && own.Kind == Refused && !u.base.addr.IsValid() {
		return nil, &Error{Kind: Unreachable, Message: own.Message, Refusal: own.Refusal, cause: own}
	}
	return res, err
}

// admit checks the request's origin and what can be judged before a look-up.
func (u *userTransport) admit(req *http.Request) (*http.Transport, error) {
	t, err := newTarget(req.URL, "")
	if err != nil {
		return nil, err
	}
	rule := RuleOperatorBase
	if t.sameOrigin(u.base) {
		rule = u.guard.prejudge(t, policy{host: t.host, publicPort: isWebPort(t.port)})
	}
	if rule != "" {
		return nil, u.guard.refuse(Refusal{Pool: u.pool, Host: t.host, Port: t.port, Rule: rule, Address: t.addr})
	}
	return u.guard.transport(u.pool)
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] through.
func (u *userTransport) CloseIdleConnections() { u.guard.closePool(u.pool) }
