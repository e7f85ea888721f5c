package provider

import (
	"net/http"

	"hob"
)

const openaiName = "openai"

func init() {
	add(maker{
		name: openaiName, rank: 1, vars: "OPENAI_API_KEY (or OPENAI_BASE_URL)", model: "gpt-5.4-mini",
		endpoint: func(c Config) (Endpoint, bool) { return c.OpenAI, c.OpenAI.set() },
		open: func(e env) (hob.Provider, error) {
			c, err := e.caller(openaiName, "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1")
			if err != nil {
				return nil, err
			}
			return &chat{caller: c, header: bearer(e.endpoint.Key)}, nil
		},
	})
}

// bearer is the header of a key; without one nothing is sent, for servers that want none.
func bearer(key hob.Secret) http.Header {
	h := http.Header{}
	if key != "" {
		h.Set("Authorization", "Bearer "+string(key))
	}
	return h
}
