package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"hob"
	"hob/client"
	"hob/internal/config"
)

// remote is the server that a command talks to.
type remote struct {
	*client.Client
	config config.Config
}

func connect(c config.Config) (*remote, error) {
	key, err := clientKey(c)
	if err != nil {
		return nil, err
	}
	return &remote{client.New(c.URL(), string(key)), c}, nil
}

// explain turns what a call met into the fact and the way out.
func (r *remote) explain(err error) error {
	var network net.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case hob.KindOf(err) == hob.Unauthorized:
		return hob.Errorf(hob.Unauthorized, "the server at %s does not accept the key (%s); set HOB_KEY to a valid one, or point "+
			"--data at the server's data folder", r.config.URL(), explain(err))
	case hob.KindOf(err) == hob.Forbidden:
		return hob.Errorf(hob.Forbidden, "the key may not do this: %s", explain(err))
	case errors.Is(err, syscall.ECONNREFUSED):
		return hob.Errorf(hob.Unavailable, "no server answers at %s; start one with: hob serve, or set HOB_ADDR to where it runs", r.config.URL())
	case errors.As(err, &network):
		return hob.Errorf(hob.Unavailable, "the server at %s cannot be reached (%s)", r.config.URL(), reason(err))
	}
	return err
}

// agentPage is how many agents are asked for at once when a name is looked up.
const agentPage = 100

// agent finds an agent by its id or its name. Among agents of one name nothing is guessed.
func (r *remote) agent(ctx context.Context, word string) (hob.Agent, error) {
	if hob.IsUUID(word) {
		a, err := r.Agent(ctx, hob.AgentID(word))
		return a.Agent, r.explain(err)
	}
	var found, others []hob.AgentRow
	for offset := 0; ; offset += agentPage {
		list, err := r.Agents(ctx, client.AgentQuery{Page: client.Page{Limit: agentPage, Offset: offset}, Query: word})
		if err != nil {
			return hob.Agent{}, r.explain(err)
		}
		for _, a := range list.Agents {
			if a.Name == word {
				found = append(found, a)
			} else if strings.EqualFold(a.Name, word) {
				others = append(others, a)
			}
		}
		if len(list.Agents) < agentPage {
			break
		}
	}
	if len(found) == 0 {
		found = others
	}
	switch len(found) {
	case 1:
		return found[0].Agent, nil
	case 0:
		return hob.Agent{}, r.noAgent(ctx, word)
	}
	ids := make([]string, len(found))
	for i, a := range found {
		ids[i] = string(a.ID)
	}
	return hob.Agent{}, hob.Errorf(hob.Conflict, "%d agents are called %q; use an id: %s", len(found), word, strings.Join(ids, ", "))
}

// noAgent says which agents there are.
func (r *remote) noAgent(ctx context.Context, word string) error {
	list, err := r.Agents(ctx, client.AgentQuery{Page: client.Page{Limit: 20}})
	if err != nil {
		return r.explain(err)
	}
	if len(list.Agents) == 0 {
		return hob.Errorf(hob.NotFound, "there is no agent %q, and no other one", word)
	}
	names := make([]string, len(list.Agents))
	for i, a := range list.Agents {
		names[i] = a.Name
	}
	text := fmt.Sprintf("there is no agent %q; there are: %s", word, strings.Join(names, ", "))
	if more := list.Total - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return hob.Errorf(hob.NotFound, "%s", text)
}
