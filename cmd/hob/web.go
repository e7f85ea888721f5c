package main

import (
	"context"
	"net/url"

	"hob"
	"hob/internal/builtin"
	"hob/internal/config"
	"hob/internal/settings"
)

// addWeb gives the tools what they search and read the web with.
func (p *parts) addWeb(d *builtin.Deps, c config.Config) {
	d.Exa, d.Firecrawl = builtin.Service(c.Exa), builtin.Service(c.Firecrawl)
	d.Searches = func(ctx context.Context, ws hob.WorkspaceID) bool { return p.models.Searches(ctx, ws) }
	d.Models = func(ctx context.Context, ws hob.WorkspaceID, model string) (hob.Model, error) {
		return p.models.Open(ctx, ws, model)
	}
}

// settingsEnv is the environment as the settings read it: what the operator gave for services may also stand in hob.toml
// or in a file that a variable names.
func settingsEnv(getenv func(string) string, c config.Config) func(string) string {
	return func(name string) string {
		switch name {
		case settings.ExaAPIKey:
			return string(c.Exa.Key)
		case settings.FirecrawlAPIKey:
			return string(c.Firecrawl.Key)
		case settings.FirecrawlAPIBase:
			return c.Firecrawl.BaseURL
		}
		return getenv(name)
	}
}

// settingChecks judge values beyond their type and range.
func (p *parts) settingChecks(c config.Config) map[string]func(string) error {
	return map[string]func(string) error{
		settings.ModelPrices:      checkPrices,
		settings.FirecrawlAPIBase: func(base string) error { return p.checkBase(base, c.Firecrawl.BaseURL) },
	}
}

// checkBase judges the address of a service: one of a workspace is on the public internet, or where the operator lets
// tools go; the operator's own may be anywhere.
func (p *parts) checkBase(base, operators string) error {
	if base == "" || base == operators {
		return nil
	}
	u, err := url.Parse(base)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return hob.Errorf(hob.Invalid, "Value must be an address like https://api.firecrawl.dev/v1")
	}
	if err := p.guard.CheckURL(base); err != nil {
		return hob.Errorf(hob.Invalid, "Value cannot be used: %s", err.Error())
	}
	return nil
}
