package provider

import (
	"net"
	"net/url"
	"strings"

	"hob"
)

const (
	ollamaName = "ollama"
	ollamaPort = "11434"
)

func init() {
	add(maker{
		name: ollamaName, rank: 5, vars: "OLLAMA_HOST", // which models there are is the user's doing: no default model
		endpoint: func(c Config) (Endpoint, bool) {
			set := strings.TrimSpace(c.OllamaHost) != ""
			if !set {
				return Endpoint{BaseURL: ollamaBase(c.FindOllama)}, false
			}
			return Endpoint{BaseURL: ollamaBase(c.OllamaHost)}, set
		},
		open: func(e env) (hob.Provider, error) {
			c, err := e.caller(ollamaName, "", "OLLAMA_HOST", "")
			if err != nil {
				return nil, err
			}
			return &chat{caller: c, header: bearer(e.endpoint.Key)}, nil // the operator's has none, a workspace's may
		},
	})
}

// ollamaBase reads OLLAMA_HOST as Ollama does, whose server takes the same variable for the address it listens on: the
// port is 11434 unless a scheme is given, and an address that means "all" is reached on loopback.
func ollamaBase(host string) string {
	host = strings.Trim(strings.TrimSpace(host), `"'`)
	scheme, rest, given := strings.Cut(host, "://")
	port := ollamaPort
	switch {
	case !given:
		scheme, rest = "http", host
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	}
	rest, path, _ := strings.Cut(rest, "/")
	name, p, err := net.SplitHostPort(rest)
	if err != nil {
		name, p = strings.Trim(rest, "[]"), port
	}
	switch name {
	case "", "0.0.0.0", "::":
		name = "127.0.0.1"
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(name, p), Path: strings.TrimRight("/"+path, "/") + "/v1"}
	return u.String()
}
