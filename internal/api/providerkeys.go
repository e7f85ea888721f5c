package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"hob"
)

const (
	validateTime   = 10 * time.Second // of the question to one provider whether it takes a key
	maxProviderKey = 8 << 10          // bytes
	maxEndpointID  = 32               // bytes of the name of an endpoint
)

// Provider is a model provider of the server.
type Provider struct {
	Name string
	Paid bool // the operator gave a key or an address, so that a workspace needs none
}

// vendors are the providers that a workspace can have a key for. google is known to models as gemini, too.
func vendors() []string { return []string{"openai", "anthropic", "google", "openrouter"} }

// vendorOf is a provider by its usual name.
func vendorOf(name string) string {
	if name = strings.ToLower(strings.TrimSpace(name)); name == "gemini" {
		return "google"
	}
	return name
}

type (
	providerKeyInput struct {
		Provider *string `json:"provider" jsonschema:"openai, anthropic, google (or gemini), openrouter; with base_url a name of your own: small letters, digits, - and _, at most 32"`
		APIKey   *string `json:"api_key,omitempty" jsonschema:"required but for an endpoint that needs none; a mask keeps the stored one"`
		BaseURL  *string `json:"base_url,omitempty" jsonschema:"of a server that speaks OpenAI's API, with the version, as in https://models.example.com/v1"`
	}
	providerKeysInput struct {
		OpenAI     *string `json:"openai,omitempty"`
		Anthropic  *string `json:"anthropic,omitempty"`
		Google     *string `json:"google,omitempty"`
		Gemini     *string `json:"gemini,omitempty" jsonschema:"another name of google"`
		OpenRouter *string `json:"openrouter,omitempty"`
	}

	providerKeyList   []hob.ProviderKey
	providerKeyAnswer struct {
		hob.ProviderKey
		Warnings []string `json:"warnings,omitempty"`
	}
	providersAnswer struct {
		Providers []string `json:"providers"`
	}
	validAnswer struct {
		IsValid  bool     `json:"is_valid"`
		Error    string   `json:"error,omitempty"`
		Warnings []string `json:"warnings,omitempty"`
	}
)

func listProviderKeys(c *call) error {
	if err := c.whole("provider keys"); err != nil {
		return err
	}
	list, err := c.s.Store.ProviderKeys(c.Context(), c.by)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, providerKeyList(filled(list)))
}

// platformProviders tells which providers work without a key of the workspace.
func platformProviders(c *call) error {
	if err := c.whole("model providers"); err != nil {
		return err
	}
	names := []string{}
	if c.s.Providers != nil {
		list := c.s.Providers()
		for _, vendor := range vendors() {
			if slices.ContainsFunc(list, func(p Provider) bool { return p.Paid && vendorOf(p.Name) == vendor }) {
				names = append(names, vendor)
			}
		}
	}
	return c.reply(http.StatusOK, providersAnswer{names})
}

// readProviderKey reads one provider key from the body and asks its provider about it.
func (c *call) readProviderKey() (k hob.ProviderKey, reason verdict, b body, err error) {
	if err = c.whole("provider keys"); err != nil {
		return k, reason, b, err
	}
	var in providerKeyInput
	if b, err = c.decode(&in, false); err != nil {
		return k, reason, b, err
	}
	if k, err = c.newProviderKey(in); err != nil {
		return k, reason, b, in.hint(b, err)
	}
	reason, err = c.validate(&k)
	return k, reason, b, err
}

func putProviderKey(c *call) (creation, error) {
	k, reason, b, err := c.readProviderKey()
	if err != nil {
		return creation{}, err
	}
	if reason.refused {
		return creation{}, refusedKeys(map[string]string{k.Provider: reason.text})
	}
	warnings := b.warnings
	if reason.text != "" {
		warnings = append(warnings, reason.text)
	}
	put := func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.PutProviderKeys(ctx, c.by, []hob.ProviderKey{k})
		if err != nil {
			return 0, nil, err
		}
		if len(made) != 1 {
			return 0, nil, hob.Errorf(hob.Internal, "the store returned %d provider keys for one", len(made))
		}
		status := http.StatusCreated
		if !made[0].UpdatedAt.Equal(made[0].CreatedAt.Time) {
			status = http.StatusOK
		}
		return status, providerKeyAnswer{made[0], warnings}, nil
	}
	return creation{make: put, made: func() { c.changed("provider keys were changed", k.Provider) }}, nil
}

// putProviderKeys sets the keys of several vendors, all or none. What is null, empty or a mask stays as it is. A name that
// is no vendor's is refused, since the answer, a bare list, has no place for a warning.
func putProviderKeys(c *call) error {
	if err := c.whole("provider keys"); err != nil {
		return err
	}
	var in providerKeysInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	if len(b.unknown) > 0 {
		return unknownProvider(b.unknown[0])
	}
	if !blank(in.Google) && !blank(in.Gemini) {
		return hob.Errorf(hob.Invalid, "google and gemini are the same provider; send one of them").With("field", "gemini")
	}
	var keys []hob.ProviderKey
	for _, one := range []struct {
		vendor string
		key    *string
	}{{"openai", in.OpenAI}, {"anthropic", in.Anthropic}, {"google", in.Google}, {"google", in.Gemini}, {"openrouter", in.OpenRouter}} {
		if blank(one.key) || strings.HasPrefix(strings.TrimSpace(*one.key), hob.Mask) {
			continue
		}
		k, err := c.newProviderKey(providerKeyInput{Provider: &one.vendor, APIKey: one.key})
		if err != nil {
			return err
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		list, err := c.s.Store.ProviderKeys(c.Context(), c.by)
		if err != nil {
			return err
		}
		return c.reply(http.StatusOK, providerKeyList(filled(list)))
	}
	refused, err := c.validateAll(keys)
	switch {
	case err != nil:
		return err
	case len(refused) > 0:
		return refusedKeys(refused)
	}
	made, err := c.s.Store.PutProviderKeys(c.Context(), c.by, keys)
	if err != nil {
		return err
	}
	for _, k := range keys {
		c.changed("provider keys were changed", k.Provider)
	}
	return c.reply(http.StatusOK, providerKeyList(filled(made)))
}

func deleteProviderKey(c *call) error {
	if err := c.whole("provider keys"); err != nil {
		return err
	}
	name := vendorOf(c.PathValue("provider"))
	if !slices.Contains(vendors(), name) && (!endpointName(name) || c.reservedProvider(name)) {
		return unknownProvider(c.PathValue("provider"))
	}
	if err := c.s.Store.DeleteProviderKey(c.Context(), c.by, name); err != nil {
		return err
	}
	c.changed("provider keys were deleted", name)
	c.s.sent(c.w, http.StatusNoContent)
	return nil
}

// validateProviderKey asks a provider whether it takes a key. Nothing is stored.
func validateProviderKey(c *call) error {
	k, reason, b, err := c.readProviderKey()
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, validAnswer{k.IsValid, reason.text, b.warnings})
}

// hint names the unknown fields of a body that lacks something.
func (in providerKeyInput) hint(b body, err error) error {
	if blank(in.Provider) || blank(in.APIKey) {
		return b.hint(err)
	}
	return err
}

func unknownProvider(name string) error {
	return hob.Errorf(hob.Invalid, "Unknown provider: %s", clip(name)).WithCode("unknown_provider").With("field", "provider").
		With("allowed", vendors())
}

// refusedKeys is the answer to keys that their providers do not take.
func refusedKeys(reasons map[string]string) error {
	return hob.Errorf(hob.Invalid, "Validation failed").WithCode("validation_failed").With(fieldsDetail, reasons)
}

// newProviderKey checks what is asked for. A mask stands for the key that is stored, and an endpoint may be changed without
// repeating its address; but no key moves along to another address.
func (c *call) newProviderKey(in providerKeyInput) (hob.ProviderKey, error) {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return strings.TrimSpace(*s)
	}
	k := hob.ProviderKey{Provider: vendorOf(text(in.Provider)), BaseURL: strings.TrimRight(text(in.BaseURL), "/")}
	secret := text(in.APIKey)
	vendor, masked := slices.Contains(vendors(), k.Provider), strings.HasPrefix(secret, hob.Mask)
	bad := func(field, format string, args ...any) error {
		return hob.Errorf(hob.Invalid, field+" "+format, args...).With("field", field)
	}
	switch {
	case k.Provider == "" || secret == "" && (vendor || k.BaseURL == ""):
		return k, hob.Errorf(hob.Invalid, "provider and api_key are required")
	case vendor && k.BaseURL != "":
		return k, bad("base_url", "is for a server of your own, under a name of your own; %s is reached at its own address", k.Provider)
	case !vendor && k.BaseURL == "" && !endpointName(k.Provider):
		return k, unknownProvider(k.Provider)
	case !vendor && !endpointName(k.Provider):
		return k, bad("provider", "must be a name of small letters, digits, - and _, at most %d, that begins with a letter or digit", maxEndpointID)
	case !vendor && c.reservedProvider(k.Provider):
		return k, bad("provider", "%q is the name of a provider of this server; choose another one", k.Provider)
	case len(secret) > maxProviderKey || !printable(secret) && !masked:
		return k, bad("api_key", "must be printable ASCII without blanks, at most %d bytes", maxProviderKey)
	}
	k.Key = hob.Secret(secret)
	if masked || !vendor && k.BaseURL == "" {
		if err := c.asStored(&k, masked); err != nil {
			return k, err
		}
	}
	if vendor {
		return k, nil
	}
	if !plainURL(k.BaseURL) {
		return k, bad("base_url", "must be an http or https address, as in https://models.example.com/v1, without a query or password")
	}
	return k, c.s.judgeURL("base_url", k.BaseURL)
}

// asStored fills in what the client left to the stored key: the secret of a mask, the address of an endpoint.
func (c *call) asStored(k *hob.ProviderKey, masked bool) error {
	list, err := c.s.Store.OpenProviderKeys(c.Context(), c.by.Workspace)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(old hob.ProviderKey) bool { return old.Provider == k.Provider })
	switch {
	case i < 0 && masked:
		return hob.Errorf(hob.Invalid, "api_key is a mask, but no key of %s is stored", k.Provider).With("field", "api_key")
	case i < 0:
		return hob.Errorf(hob.Invalid, "%s is none of the known providers (%s); a server of your own needs base_url, as in "+
			"https://models.example.com/v1", k.Provider, strings.Join(vendors(), ", ")).WithCode("unknown_provider").
			With("field", "base_url").With("allowed", vendors())
	}
	old := list[i]
	if k.BaseURL == "" {
		k.BaseURL = old.BaseURL
	}
	if masked {
		if k.BaseURL != old.BaseURL {
			return hob.Errorf(hob.Invalid, "api_key must be sent anew for another base_url").With("field", "api_key")
		}
		k.Key = old.Key
	}
	return nil
}

// reservedProvider says whether a name already means a provider of the server.
func (c *call) reservedProvider(name string) bool {
	return c.s.Providers != nil && slices.ContainsFunc(c.s.Providers(), func(p Provider) bool { return p.Name == name })
}

// endpointName says whether a workspace's own endpoint may have a name: it is the first part of a model string.
func endpointName(name string) bool {
	if name == "" || len(name) > maxEndpointID || name[0] == '-' || name[0] == '_' {
		return false
	}
	for i := range len(name) {
		if ch := name[i]; (ch < '0' || ch > '9') && (ch < 'a' || ch > 'z') && ch != '-' && ch != '_' {
			return false
		}
	}
	return true
}

// printable says whether a text is ASCII that can stand in a header, without blanks.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// plainURL says whether an address is one of a server, without anything that belongs to a single call or is secret.
func plainURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && len(address) <= maxEndpoint && fullURL(address) && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// verdict is what a provider says of a key: refused, or why that is not known; zero for a key that works.
type verdict struct {
	refused bool
	text    string
}

// validate asks the provider about a key and marks the key with the answer. What cannot be asked now is no fault of the
// key; the error is one of ours.
func (c *call) validate(k *hob.ProviderKey) (verdict, error) {
	if c.s.ValidateKey == nil {
		return verdict{text: "the key was not validated"}, nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), validateTime)
	defer cancel()
	valid, reason, err := c.s.ValidateKey(ctx, *k)
	var e *hob.Error
	switch {
	case errors.As(err, &e) && e.Kind == hob.Invalid:
		return verdict{true, e.Message}, nil
	case err != nil:
		return verdict{}, hob.Wrap("validate a provider key", err)
	case !valid:
		return verdict{text: "the key could not be validated: " + cmp.Or(reason, "the provider did not answer as expected")}, nil
	}
	k.IsValid, k.LastValidatedAt = true, hob.Time{Time: c.s.Clock()}
	return verdict{}, nil
}

// validateAll asks about all keys at once and gives the reasons of the refused ones by provider.
func (c *call) validateAll(keys []hob.ProviderKey) (map[string]string, error) {
	verdicts := make([]verdict, len(keys))
	faults := make([]error, len(keys))
	var asked sync.WaitGroup
	for i := range keys {
		asked.Go(func() { verdicts[i], faults[i] = c.validate(&keys[i]) })
	}
	asked.Wait()
	refused := map[string]string{}
	for i, v := range verdicts {
		if v.refused {
			refused[keys[i].Provider] = v.text
		}
	}
	return refused, errors.Join(faults...)
}
