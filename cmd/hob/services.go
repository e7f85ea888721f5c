package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"hob/internal/config"
	"hob/internal/egress"
)

// toolServer is an outside service behind a tool, as the doctor asks it.
type toolServer struct {
	name string
	at   config.Endpoint
	key  string // the setting of its key; "" where it needs none
	lack string // what is so without a key
}

func toolServers(c config.Config) []toolServer {
	return []toolServer{
		{"Exa", c.Exa, "EXA_API_KEY", "web_search answers that it is missing, and so does web_browsing where the model's provider does not search"},
		{"Firecrawl", c.Firecrawl, "FIRECRAWL_API_KEY", "web_scrape reads pages by itself and runs no scripts of theirs"},
		{"the code sandbox", c.CodeSandbox, "", ""},
	}
}

// checkServices asks the services at an address of the operator's whether they answer, without a key, and says which keys
// are not there. The vendors' own addresses are not asked.
func (r *report) checkServices(ctx context.Context) {
	const check = "tool services"
	guard := egress.New(egress.Config{})
	defer guard.Close()
	for _, s := range toolServers(r.config) {
		if s.key != "" && s.at.Key == "" {
			r.add(check, ok, fmt.Sprintf("no %s is configured: %s, but in workspaces that set one", s.key, s.lack), "")
		}
		if s.at.BaseURL != "" {
			r.askService(ctx, guard, s)
		}
	}
}

// askService takes any answer for one.
func (r *report) askService(ctx context.Context, guard *egress.Guard, s toolServer) {
	const check = "tool services"
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	at := strings.TrimRight(s.at.BaseURL, "/")
	_, err := ask(ctx, guard, modelServer{base: at, header: http.Header{}})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.add(check, warn, fmt.Sprintf("%s at %s does not answer within %s", s.name, at, probeTime), "")
	case err != nil:
		r.add(check, warn, fmt.Sprintf("%s at %s cannot be reached (%s)", s.name, at, reason(err)), "is it running, and the address right?")
	default:
		r.add(check, ok, fmt.Sprintf("%s answers at %s", s.name, at), "")
	}
}
