package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"hob"
	"hob/internal/config"
	"hob/internal/egress"
	"hob/internal/provider"
)

// probeTime bounds the question to one provider.
const probeTime = 2 * time.Second

// modelServer is a provider as the doctor sees it.
type modelServer struct {
	name   string
	base   string // "" = the vendor's own, which is not asked
	models string // path of the list of models behind base
	key    hob.Secret
	header http.Header
	on     bool
}

func modelServers(c config.Config) []modelServer {
	bearer := func(key hob.Secret) http.Header {
		if key == "" {
			return nil
		}
		return http.Header{"Authorization": {"Bearer " + string(key)}}
	}
	return []modelServer{
		{"openai", c.OpenAI.BaseURL, "/models", c.OpenAI.Key, bearer(c.OpenAI.Key), c.OpenAI.Configured()},
		{
			"anthropic", c.Anthropic.BaseURL, "/v1/models", c.Anthropic.Key,
			http.Header{"X-Api-Key": {string(c.Anthropic.Key)}, "Anthropic-Version": {"2023-06-01"}},
			c.Anthropic.Configured(),
		},
		{
			"gemini", strings.TrimSuffix(strings.TrimRight(c.Gemini.BaseURL, "/"), "/v1beta"), "/v1beta/models", c.Gemini.Key,
			http.Header{"X-Goog-Api-Key": {string(c.Gemini.Key)}},
			c.Gemini.Configured(),
		},
		{"openrouter", c.OpenRouter.BaseURL, "/models", c.OpenRouter.Key, bearer(c.OpenRouter.Key), c.OpenRouter.Configured()},
		{"ollama", c.OllamaHost, "/v1/models", "", nil, c.OllamaHost != ""},
	}
}

// checkModels says which providers are configured, asks those at an address of the operator's for their models, and names
// what is set in vain. The vendors' own addresses are not asked: the doctor sends no key anywhere it was not told to.
func (r *report) checkModels(ctx context.Context) {
	const check = "models"
	var names []string
	var asked []modelServer
	for _, m := range modelServers(r.config) {
		if !m.on {
			continue
		}
		name := m.name
		if m.base != "" {
			asked = append(asked, m)
			if m.key == "" && m.name != "ollama" {
				name += " (no key)"
			}
		}
		names = append(names, name)
	}
	guard := egress.New(egress.Config{})
	defer guard.Close()
	if found := foundOllama(ctx, r.config, guard, provider.UsualOllama); found != "" {
		names = append(names, found)
	}
	if len(names) == 0 {
		r.add(check, warn, "no provider is configured; agents made without a model play a script",
			"set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY or OLLAMA_HOST")
	} else {
		r.add(check, ok, "configured: "+strings.Join(names, ", "), "")
	}
	for _, m := range asked {
		r.probe(ctx, guard, m)
	}
}

// foundOllama describes an Ollama that runs on this machine though nobody configured one, as hob serve would find it. It is
// "" where there is none.
func foundOllama(ctx context.Context, c config.Config, guard *egress.Guard, at string) string {
	models := provider.New(provider.Config{OllamaHost: c.OllamaHost, FindOllama: at, Clients: guard})
	base, names, found := models.FindOllama(ctx)
	switch {
	case !found:
		return ""
	case len(names) == 0:
		return fmt.Sprintf("ollama (found at %s, without a model)", base)
	}
	return fmt.Sprintf("ollama (found at %s, %s, the last changed is %s)", base, count(len(names), "model"), names[0])
}

// probe asks one provider for its models. Any answer but a refusal of the key will do, since not every server has the list;
// but an address without a version that has none is most likely one whose version was left out.
func (r *report) probe(ctx context.Context, guard *egress.Guard, m modelServer) {
	const check = "models"
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	status, err := ask(ctx, guard, m)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.add(check, warn, fmt.Sprintf("%s at %s does not answer within %s", m.name, m.base, probeTime), "")
	case err != nil:
		r.add(check, warn, fmt.Sprintf("%s at %s cannot be reached (%s)", m.name, m.base, reason(err)), "is the server running, and the address right?")
	case status == http.StatusUnauthorized:
		r.add(check, warn, fmt.Sprintf("%s at %s does not accept the key (status %d)", m.name, m.base, status), "")
	case status == http.StatusNotFound && provider.LacksVersion(m.base+m.models):
		r.add(check, warn, fmt.Sprintf("%s at %s answers, but has no list of models there (status %d)", m.name, m.base, status),
			"does the address lack /v1?")
	default:
		r.add(check, ok, fmt.Sprintf("%s answers at %s", m.name, m.base), "")
	}
}

func ask(ctx context.Context, guard *egress.Guard, m modelServer) (status int, err error) {
	client, err := guard.OperatorClient(m.base)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+m.models, nil)
	if err != nil {
		return 0, err
	}
	req.Header = m.header.Clone()
	answer, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_ = answer.Body.Close() // the status is all that counts
	return answer.StatusCode, nil
}
