package builtin

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"hob"
)

// minRedacted is the length from which a header value is taken out of results: hiding shorter ones would reveal them by
// the holes they leave in plain text.
const minRedacted = 6

// redactor takes the values of a tool's secret headers out of what its endpoint answers: an endpoint that echoes its
// request must not hand them to the model. Values are found as they are, as JSON, in URLs and in base64. nil means that
// there is nothing to hide.
func redactor(headers map[string]hob.Secret) *strings.Replacer {
	var found []string
	for name, value := range headers {
		if isPlainHeader(name) {
			continue
		}
		for _, secret := range secretsIn(string(value)) {
			if len(secret) >= minRedacted {
				found = append(found, forms(secret)...)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	// The longest first, or a part would be replaced and the rest remain.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(found))
	for _, f := range slices.Compact(found) {
		pairs = append(pairs, f, hob.Mask)
	}
	return strings.NewReplacer(pairs...)
}

// isPlainHeader says whether a header's value is no secret by its nature, so that "application/json" is not torn out of
// an answer.
func isPlainHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Accept", "Accept-Language", "Accept-Charset", "Content-Type", "Content-Language", "User-Agent",
		"Cache-Control", "Prefer", "Origin", "Referer", "X-Requested-With":
		return true
	}
	return strings.HasSuffix(name, "-Version")
}

// secretsIn lists what is secret in a header value: the value, and of "Bearer x" and the like the x alone, of Basic
// credentials also the user:password inside and the password.
func secretsIn(value string) []string {
	out := []string{value}
	scheme, token, ok := strings.Cut(value, " ")
	if !ok {
		return out
	}
	token = strings.TrimSpace(token)
	out = append(out, token)
	if strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(token); err == nil {
			_, password, _ := strings.Cut(string(plain), ":")
			out = append(out, string(plain), password)
		}
	}
	return out
}

// forms lists the spellings under which a secret is recognised.
func forms(secret string) []string {
	quoted := string(encode(secret))
	out := []string{
		secret, quoted[1 : len(quoted)-1], url.QueryEscape(secret), url.PathEscape(secret),
		base64.RawStdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
	}
	slices.Sort(out)
	return slices.Compact(out)
}
