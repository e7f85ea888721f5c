package provider

import "hob"

func init() {
	const name = openrouterName
	add(maker{
		name: name, rank: 4, vars: "OPENROUTER_API_KEY", model: "openai/gpt-5.4-mini",
		endpoint: func(c Config) (Endpoint, bool) { return c.OpenRouter, c.OpenRouter.set() },
		open: func(e env) (hob.Provider, error) {
			c, err := e.caller(name, "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "https://openrouter.ai/api/v1")
			if err != nil {
				return nil, err
			}
			h := bearer(e.endpoint.Key)
			h.Set("X-Title", "Hob")
			return &chat{caller: c, header: h, style: chatStyle{reasoningObject: true, details: true, forms: true, searches: true}}, nil
		},
	})
}
