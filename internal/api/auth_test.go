package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hob"
	"hob/internal/api"
)

func TestAuth_OnlyABearerCountsAndTheTextSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	good := jwt.MapClaims{"sub": "u1", "aud": "authenticated", "exp": in(time.Hour)}
	with := func(change func(jwt.MapClaims)) string {
		c := jwt.MapClaims{}
		for k, v := range good {
			c[k] = v
		}
		change(c)
		return "Bearer " + token(t, jwtSecret, c)
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, good).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	other, err := jwt.NewWithClaims(jwt.SigningMethodHS512, good).SignedString([]byte(jwtSecret))
	if err != nil {
		t.Fatal(err)
	}
	expired := w.key(hob.Key{Name: "old", Scopes: []hob.Scope{hob.ScopeRead}, ExpiresAt: hob.Time{Time: time.Now().Add(-time.Second)}})
	revoked := w.scoped(hob.ScopeRead)
	w.revoke(revoked)
	for name, c := range map[string]struct{ header, value, text string }{
		"nothing":             {"", "", "Authorization header required"},
		"apikey alone":        {"apikey", w.service, "Authorization header required"},
		"blank":               {"Authorization", "  ", "Authorization header required"},
		"no scheme":           {"Authorization", w.service, "Invalid token"},
		"another scheme":      {"Authorization", "Basic " + w.service, "Invalid token"},
		"three parts":         {"Authorization", "Bearer " + w.service + " x", "Invalid token"},
		"unknown key":         {"Authorization", "Bearer hob_0000", "Invalid token: no such key"},
		"expired key":         {"Authorization", "Bearer " + expired, "Token has expired"},
		"revoked key":         {"Authorization", "Bearer " + revoked, "the key was revoked"},
		"token: expired":      {"Authorization", with(func(c jwt.MapClaims) { c["exp"] = in(-time.Minute) }), "Token has expired"},
		"token: wrong aud":    {"Authorization", with(func(c jwt.MapClaims) { c["aud"] = "anon" }), "Invalid token audience"},
		"token: no aud":       {"Authorization", with(func(c jwt.MapClaims) { delete(c, "aud") }), "it must have aud, exp and sub"},
		"token: no exp":       {"Authorization", with(func(c jwt.MapClaims) { delete(c, "exp") }), "it must have aud, exp and sub"},
		"token: no sub":       {"Authorization", with(func(c jwt.MapClaims) { delete(c, "sub") }), "it must have aud, exp and sub"},
		"token: odd sub":      {"Authorization", with(func(c jwt.MapClaims) { c["sub"] = "a\nb" }), "it must have aud, exp and sub"},
		"token: not yet":      {"Authorization", with(func(c jwt.MapClaims) { c["nbf"] = in(time.Hour) }), "malformed or not yet valid"},
		"token: other secret": {"Authorization", "Bearer " + token(t, "another secret of thirty-two bytes!", good), "the signature is wrong"},
		"token: no algorithm": {"Authorization", "Bearer " + none, "the signature is wrong"},
		"token: another one":  {"Authorization", "Bearer " + other, "the signature is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := ask{method: "GET", path: "/api/agents"}
			if c.header != "" {
				a.header = map[string]string{c.header: c.value}
			}
			r := w.do(a)
			wantFault(t, r, http.StatusUnauthorized, c.text)
			if r.header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		})
	}
	for name, value := range map[string]string{
		"key": "Bearer " + w.service, "lower case": "bearer " + w.service, "blanks": "BEARER   " + w.service,
		"token": with(func(jwt.MapClaims) {}), "token for several": with(func(c jwt.MapClaims) { c["aud"] = []string{"x", "authenticated"} }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := w.do(ask{method: "GET", path: "/api/me", header: map[string]string{"Authorization": value, "apikey": "anonymous"}})
			if r.status != http.StatusOK {
				t.Errorf("status %d: %s", r.status, r.body)
			}
		})
	}
}

func TestAuth_WithoutASecretTokensAreNoKeys(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.JWTSecret = "" })
	empty := token(t, "x", jwt.MapClaims{"sub": "u1", "aud": "authenticated", "exp": time.Now().Add(time.Hour).Unix()})
	wantFault(t, w.do(ask{"GET", "/api/me", empty, "", nil}), http.StatusUnauthorized, "no such key")
}

func TestAuth_ARevokedKeyStopsWorkingSoon(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	key := w.scoped(hob.ScopeRead)
	if r := w.do(ask{"GET", "/api/me", key, "", nil}); r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	w.revoke(key) // behind the API's back, as another process does
	end := time.Now().Add(5 * time.Second)
	for w.do(ask{"GET", "/api/me", key, "", nil}).status != http.StatusUnauthorized {
		if time.Now().After(end) {
			t.Fatal("the key works 5 s after it was revoked")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAuth_RevokingThroughTheAPICountsAtOnce(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.Recheck = time.Hour })
	made := as[struct{ ID, Secret string }](t, w.do(ask{"POST", "/api/keys", w.service, `{"name":"k"}`, nil}), http.StatusCreated)
	if r := w.do(ask{"GET", "/api/me", made.Secret, "", nil}); r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	w.do(ask{"DELETE", "/api/keys/" + made.ID, w.service, "", nil})
	wantFault(t, w.do(ask{"GET", "/api/me", made.Secret, "", nil}), http.StatusUnauthorized, "revoked")
}

func TestKeys_NeverReachFurtherThanTheirMaker(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent, other := w.agent("fixed"), w.agent("fixed")
	admin := w.scoped(hob.ScopeAdmin)
	bound := w.key(hob.Key{Name: "bound", Scopes: []hob.Scope{hob.ScopeAdmin}, Agent: agent})
	wantFault(t, w.do(ask{"POST", "/api/keys", admin, `{"name":"k","service":true}`, nil}), http.StatusForbidden, "only a service key")
	wantFault(t, w.do(ask{"POST", "/api/keys", bound, `{"name":"k"}`, nil}), http.StatusForbidden, "bound to one agent")
	wantFault(t, w.do(ask{"POST", "/api/keys", bound, `{"name":"k","agent_id":"` + string(other) + `"}`, nil}), http.StatusBadRequest, "names no agent")
	as[hob.Key](t, w.do(ask{"POST", "/api/keys", bound, `{"name":"k","agent_id":"` + string(agent) + `"}`, nil}), http.StatusCreated)
	k := as[hob.Key](t, w.do(ask{"POST", "/api/keys", w.service, `{"name":"k","service":true}`, nil}), http.StatusCreated)
	if !k.Service {
		t.Error("the service key's service key is none")
	}
}
