package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"hob"
)

// Bounds of a model's profile.
const (
	maxFacts    = 64 << 10 // bytes
	maxEndpoint = 2048     // bytes of an address
)

type profileList struct {
	Profiles []hob.ModelProfile `json:"profiles"`
}

// profileInput is a profile as a client sends it.
type profileInput struct {
	Endpoint string          `json:"endpoint" jsonschema:"the server's base URL, as in https://models.example.com/v1"`
	Model    string          `json:"model" jsonschema:"as the server names it"`
	TestedAt hob.Time        `json:"tested_at,omitempty" jsonschema:"now where absent"`
	Facts    json.RawMessage `json:"facts" jsonschema:"how the model deviates from what the server's tables say"`
}

type profileAnswer struct {
	hob.ModelProfile
	Warnings []string `json:"warnings,omitempty"`
}

func listProfiles(c *call) error {
	if err := c.whole("model profiles"); err != nil {
		return err
	}
	list, err := c.s.Store.Profiles(c.Context())
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, profileList{filled(list)})
}

func putProfile(c *call) error {
	if err := c.whole("model profiles"); err != nil {
		return err
	}
	var in profileInput
	b, err := c.decode(&in, false)
	if err != nil {
		return err
	}
	p := hob.ModelProfile{
		Endpoint: strings.TrimRight(strings.TrimSpace(in.Endpoint), "/"), Model: strings.TrimSpace(in.Model),
		TestedAt: in.TestedAt, Facts: in.Facts,
	}
	bad := func(field, must string) error {
		return b.hint(hob.Errorf(hob.Invalid, "%s %s", field, must).With("field", field))
	}
	switch facts := strings.TrimSpace(string(p.Facts)); {
	case !plainURL(p.Endpoint):
		return bad("endpoint", "must be the http or https address of a model server, without a query")
	case !plainText(p.Model, hob.MaxName):
		return bad("model", "must name a model, in at most 255 bytes")
	case facts == "" || facts[0] != '{':
		return bad("facts", "must be an object")
	case len(facts) > maxFacts:
		return bad("facts", "must be at most "+strconv.Itoa(maxFacts)+" bytes")
	}
	if check := c.s.CheckFacts; check != nil {
		if err := check(p.Facts); err != nil {
			return b.hint(err)
		}
	}
	if p.TestedAt.IsZero() {
		p.TestedAt = hob.Time{Time: c.s.Clock()}
	}
	if err := c.s.Store.PutProfile(c.Context(), c.by, p); err != nil {
		return err
	}
	c.changed("a model profile was changed", p.Model)
	return c.reply(http.StatusOK, profileAnswer{p, b.warnings})
}

// deleteProfile forgets a profile. Its endpoint and model are parameters, since addresses do not stand well in a path.
func deleteProfile(c *call) error {
	if err := c.whole("model profiles"); err != nil {
		return err
	}
	if err := c.knownQuery(profileQuery()); err != nil {
		return err
	}
	endpoint, model := strings.TrimRight(strings.TrimSpace(c.queryValue("endpoint")), "/"), strings.TrimSpace(c.queryValue("model"))
	for _, one := range []struct{ field, value string }{{"endpoint", endpoint}, {"model", model}} {
		if one.value == "" {
			return hob.Errorf(hob.Invalid, "%s is required, as the list of profiles has it", one.field).With("field", one.field)
		}
		if !plainText(one.value, maxEndpoint) {
			return hob.Errorf(hob.Invalid, "%s must be text of at most %d bytes", one.field, maxEndpoint).With("field", one.field)
		}
	}
	if err := c.s.Store.DeleteProfile(c.Context(), c.by, endpoint, model); err != nil {
		return err
	}
	c.changed("a model profile was deleted", model)
	c.s.sent(c.w, http.StatusNoContent)
	return nil
}

func profileQuery() []param {
	return []param{
		{"endpoint", "string", "required: the endpoint as the list has it"},
		{"model", "string", "required: the model as the list has it"},
	}
}
