package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"hob"
)

const (
	userAudience  = "authenticated"
	maxToken      = 16 << 10 // bytes of a bearer value
	maxUserID     = 255
	maxCachedKeys = 10_000
)

// credential is what a request proved itself with: the hash of its bearer value. The value itself is kept nowhere.
type credential struct {
	hash    [sha256.Size]byte
	expires int64 // of a user's token, in Unix microseconds; 0 for keys, whose expiry is looked up
}

// authenticator finds out who a request is from. Keys are looked up by hash and believed for Limits.Recheck, so that a
// revoked one stops working soon after on every process; unknown ones are remembered as long.
type authenticator struct {
	store   hob.Store
	clock   hob.Clock
	believe time.Duration
	secret  []byte
	parser  *jwt.Parser
	bad     *buckets // by address: tries with unknown keys

	mu    sync.Mutex
	known map[[sha256.Size]byte]knownKey
}

// knownKey is the state of a key as it was last read.
type knownKey struct {
	key   hob.Key
	found bool
	read  time.Time
}

func newAuthenticator(c Config) *authenticator {
	a := &authenticator{
		store: c.Store, clock: c.Clock, believe: c.Limits.Recheck, secret: []byte(c.JWTSecret),
		known: map[[sha256.Size]byte]knownKey{},
		parser: jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(userAudience),
			jwt.WithExpirationRequired(), jwt.WithTimeFunc(c.Clock), jwt.WithStrictDecoding()),
	}
	if !c.Limits.Off {
		a.bad = newBuckets(c.Limits.BadKeys, c.Clock)
	}
	return a
}

func unauthorized(text, code string) error {
	return hob.Errorf(hob.Unauthorized, "%s", text).WithCode(code)
}

// authenticate reads the Authorization header. Every refusal is Unauthorized; RateLimited follows too many of them from
// one address.
func (a *authenticator) authenticate(r *http.Request) (hob.Principal, credential, error) {
	head := r.Header.Values("Authorization")
	if len(head) == 0 || strings.TrimSpace(head[0]) == "" {
		return hob.Principal{}, credential{}, unauthorized("Authorization header required", "authorization_required")
	}
	parts := strings.Fields(head[0])
	if len(head) > 1 || len(parts) != 2 || !strings.EqualFold(parts[0], "Bearer") || len(parts[1]) > maxToken {
		return hob.Principal{}, credential{}, unauthorized(
			"Invalid token: the Authorization header must be one of the form: Bearer KEY", "invalid_token")
	}
	token := parts[1]
	cred := credential{hash: sha256.Sum256([]byte(token))}
	key, found, err := a.lookup(r.Context(), cred.hash, address(r))
	if err != nil {
		return hob.Principal{}, credential{}, err
	}
	if found {
		return key.Principal(), cred, a.usable(key)
	}
	by, expires, err := a.user(token)
	if err != nil {
		return hob.Principal{}, credential{}, a.charge(r, err)
	}
	cred.expires = expires.UnixMicro()
	return by, cred, nil
}

// usable says why a key that exists is not accepted.
func (a *authenticator) usable(k hob.Key) error {
	switch {
	case !k.RevokedAt.IsZero():
		return unauthorized("Invalid token: the key was revoked", "key_revoked")
	case !k.ExpiresAt.IsZero() && !a.clock().Before(k.ExpiresAt.Time):
		return unauthorized("Token has expired", "token_expired")
	}
	return nil
}

// lookup finds a key by its hash. from, where not "", is the address that asks: one that tried too many unknown keys is
// RateLimited before the store is asked about a new one.
func (a *authenticator) lookup(ctx context.Context, hash [sha256.Size]byte, from string) (hob.Key, bool, error) {
	now := a.clock()
	a.mu.Lock()
	k, ok := a.known[hash]
	a.mu.Unlock()
	if ok && now.Sub(k.read) < a.believe {
		return k.key, k.found, nil
	}
	if !ok && from != "" && a.bad != nil {
		if wait := a.bad.wait(from); wait > 0 {
			return hob.Key{}, false, badKeys(wait)
		}
	}
	key, err := a.store.KeyByHash(ctx, hash[:])
	found := err == nil
	if err != nil && hob.KindOf(err) != hob.NotFound {
		return hob.Key{}, false, hob.Wrap("look up a key", err)
	}
	a.remember(hash, knownKey{key: key, found: found, read: now})
	return key, found, nil
}

// charge counts a refused try against the address it came from.
func (a *authenticator) charge(r *http.Request, refusal error) error {
	if a.bad == nil {
		return refusal
	}
	if wait := a.bad.take(address(r)); wait > 0 {
		return badKeys(wait)
	}
	return refusal
}

func badKeys(wait time.Duration) error {
	return tooMany("too many requests with unknown keys; try again later", "too_many_unknown_keys", wait)
}

func (a *authenticator) remember(hash [sha256.Size]byte, k knownKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxCachedKeys {
		for h, old := range a.known {
			if k.read.Sub(old.read) >= a.believe {
				delete(a.known, h)
			}
		}
		if len(a.known) >= maxCachedKeys { // a flood of new ones: begin anew
			clear(a.known)
		}
	}
	a.known[hash] = k
}

// forget makes a change of a key count at once on this process.
func (a *authenticator) forget(id hob.KeyID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for h, k := range a.known {
		if k.found && k.key.ID == id {
			delete(a.known, h)
		}
	}
}

// still says why a credential that was accepted is not good any more: errRevoked or errExpired. Faults of the store count
// as good: streams outlive a short one.
func (a *authenticator) still(ctx context.Context, c credential) error {
	if c.expires != 0 {
		if a.clock().UnixMicro() >= c.expires {
			return errExpired
		}
		return nil
	}
	key, found, err := a.lookup(ctx, c.hash, "")
	switch {
	case err != nil:
		return nil //nolint:nilerr // see the contract above
	case !found || !key.RevokedAt.IsZero():
		return errRevoked
	case a.usable(key) != nil:
		return errExpired
	}
	return nil
}

// user reads a signed end-user token.
func (a *authenticator) user(token string) (hob.Principal, time.Time, error) {
	if len(a.secret) == 0 || strings.Count(token, ".") != 2 {
		return hob.Principal{}, time.Time{}, unauthorized("Invalid token: no such key", "invalid_token")
	}
	var claims jwt.RegisteredClaims
	_, err := a.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		if _, ok := t.Header["crit"]; ok { // asks for extensions that must be understood; there are none
			return nil, jwt.ErrTokenUnverifiable
		}
		return a.secret, nil
	})
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return hob.Principal{}, time.Time{}, unauthorized("Token has expired", "token_expired")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return hob.Principal{}, time.Time{}, unauthorized("Invalid token audience", "invalid_audience")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return hob.Principal{}, time.Time{}, unauthorized("Invalid token: the signature is wrong", "invalid_token")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return hob.Principal{}, time.Time{}, unauthorized("Invalid token: it must have aud, exp and sub", "invalid_token")
	case err != nil:
		return hob.Principal{}, time.Time{}, unauthorized("Invalid token: it is malformed or not yet valid", "invalid_token")
	}
	if !plainText(claims.Subject, maxUserID) {
		return hob.Principal{}, time.Time{}, unauthorized("Invalid token: it must have aud, exp and sub", "invalid_token")
	}
	return hob.Principal{
		Kind: hob.UserPrincipal, ID: claims.Subject, Workspace: hob.DefaultWorkspace,
		Scopes: []hob.Scope{hob.ScopeRead, hob.ScopeRun, hob.ScopeApprove},
	}, claims.ExpiresAt.Time, nil
}

// plainText says whether s is non-empty text without control characters, of at most limit bytes: fit for ids.
func plainText(s string, limit int) bool {
	if s == "" || len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}

// address is the host a request comes from.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// fromLoopback says whether a request was made on this machine, to it by a local name, and not handed on by a proxy.
func fromLoopback(r *http.Request) bool {
	if r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" || r.Header.Get("Via") != "" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	local := net.ParseIP(host)
	peer := net.ParseIP(address(r))
	return peer != nil && peer.IsLoopback() && (host == "localhost" || (local != nil && local.IsLoopback()))
}
