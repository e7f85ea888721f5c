package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"hob"
)

// agentInput is what a client sends to make or change an agent.
type agentInput struct {
	Name         *string         `json:"name,omitempty" jsonschema:"required to create; at most 255 bytes"`
	Model        *string         `json:"model,omitempty" jsonschema:"the server's default model where absent"`
	SystemPrompt *string         `json:"system_prompt,omitempty" jsonschema:"what the model is told first; null takes it away"`
	Settings     json.RawMessage `json:"settings,omitempty" jsonschema:"how the agent runs; a change replaces them whole. Other keys are kept, but have no effect and are named in warnings"`
	ToolIDs      []string        `json:"tool_ids,omitempty" jsonschema:"ids or names of custom tools and names of builtin ones that alone are offered to runs, assigned or not; an empty list: none; null: the assignments decide"`
}

// agentAnswer is an agent with what the client should know about its request.
type agentAnswer struct {
	hob.Agent
	Warnings []string `json:"warnings,omitempty"`
}

type agentList struct {
	Agents []hob.AgentRow `json:"agents"`
	Total  int64          `json:"total"`
	Limit  int            `json:"limit"`
	Offset int            `json:"offset"`
}

type messageAnswer struct {
	Message string `json:"message"`
}

type deletedAnswer struct {
	Deleted bool `json:"deleted"`
}

func listAgents(c *call) error {
	o, err := c.list("created_at", "name", "updated_at", "last_run_at")
	if err != nil {
		return err
	}
	page, err := c.s.Store.Agents(c.Context(), c.by, o)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, agentList{Agents: filled(page.Items), Total: page.Total, Limit: o.Limit, Offset: o.Offset})
}

// filled makes an empty list of a nil one, which would be null on the wire.
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func createAgent(c *call) (creation, error) {
	var in agentInput
	b, err := c.decode(&in, false)
	if err != nil {
		return creation{}, err
	}
	a := hob.Agent{Workspace: c.by.Workspace, Owner: c.by.Owner(), SystemPrompt: in.SystemPrompt, Settings: object(in.Settings)}
	if in.Name != nil {
		a.Name = *in.Name
	}
	warnings := b.warnings
	if in.Model != nil && *in.Model != "" {
		a.Model = *in.Model
		warnings = append(warnings, c.modelWarning(a.Model)...)
	} else if c.s.DefaultModel != nil {
		var warning string
		if a.Model, warning = c.s.DefaultModel(c.Context(), c.by.Workspace); warning != "" {
			warnings = append(warnings, warning)
		}
	}
	if err := a.Validate(); err != nil {
		if blank(in.Name) {
			err = b.hint(err)
		}
		return creation{}, err
	}
	unused, err := c.checkSettings(a.Settings)
	if err != nil {
		return creation{}, err
	}
	var lost []string
	if a.ToolIDs, err = c.checkToolIDs(in.ToolIDs); err == nil && a.ToolIDs != nil {
		lost, err = c.missingOf(a)
	}
	if err != nil {
		return creation{}, err
	}
	warnings = append(append(warnings, unused...), lost...)
	return creation{make: func(ctx context.Context, s hob.Store) (int, any, error) {
		made, err := s.CreateAgent(ctx, c.by, a)
		return http.StatusCreated, agentAnswer{made, warnings}, err
	}}, nil
}

// modelWarning says when nobody serves a model now, or when its first part names no provider, so that the whole string is
// asked of one that it does not seem to mean. The agent is kept all the same: a provider may be connected later, and a run
// says it again.
func (c *call) modelWarning(model string) []string {
	if c.s.Models == nil {
		return nil
	}
	m, err := c.s.Models(c.Context(), c.by.Workspace, model)
	switch {
	case err != nil && hob.KindOf(err) == hob.Invalid:
		return []string{err.Error()}
	case err == nil && astray(model, m):
		first, _, _ := strings.Cut(strings.TrimSpace(model), "/")
		return []string{fmt.Sprintf("%s names no provider and no provider key, so %s is asked for the model %s; if that is meant, write %s",
			shown(first), m.Name, shown(m.Model), shown(m.Name+"/"+m.Model))}
	}
	return nil
}

// astray says whether a model string that looks like provider/model is asked whole of a provider whose models have no such
// names. OpenRouter's and Ollama's have.
func astray(model string, m hob.Model) bool {
	return strings.Contains(model, "/") && m.Model == strings.TrimSpace(model) && m.Name != "openrouter" && m.Name != "ollama"
}

// object is a JSON object that the client may have left out or given as null.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	return raw
}

func getAgent(c *call) error {
	id, err := c.agentID()
	if err != nil {
		return err
	}
	a, err := c.s.Store.Agent(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	warnings, err := c.lostTools(a)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, agentAnswer{a, warnings})
}

func updateAgent(c *call) error {
	id, err := c.agentID()
	if err != nil {
		return err
	}
	var in agentInput
	b, err := c.decode(&in, true)
	if err != nil {
		return err
	}
	patch, err := agentPatch(in, b)
	if err != nil {
		return err
	}
	unused, err := c.checkSettings(patch.Settings)
	if err != nil {
		return err
	}
	if b.has("tool_ids") {
		ids, err := c.checkToolIDs(in.ToolIDs)
		if err != nil {
			return err
		}
		patch.ToolIDs = &ids
	}
	a, err := c.s.Store.UpdateAgent(c.Context(), c.by, id, patch)
	if err != nil {
		return err
	}
	warnings := append(b.warnings, unused...)
	if in.Model != nil {
		warnings = append(warnings, c.modelWarning(a.Model)...)
	}
	lost, err := c.lostTools(a)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, agentAnswer{a, append(warnings, lost...)})
}

// agentPatch checks a change by itself: what is given must fit an agent.
func agentPatch(in agentInput, b body) (hob.AgentPatch, error) {
	switch {
	case len(b.fields) == 0:
		return hob.AgentPatch{}, hob.Errorf(hob.Invalid, "No data provided")
	case b.known == 0:
		return hob.AgentPatch{}, b.hint(hob.Errorf(hob.Invalid, "No valid fields to update"))
	}
	for _, field := range []string{"name", "model"} {
		if b.null(field) {
			return hob.AgentPatch{}, hob.Errorf(hob.Invalid, "%s must be text, not null", field).With("field", field)
		}
	}
	probe := hob.Agent{Name: "x", Model: "x", SystemPrompt: in.SystemPrompt, Settings: object(in.Settings)}
	p := hob.AgentPatch{Name: in.Name, Model: in.Model}
	if in.Name != nil {
		probe.Name = *in.Name
	}
	if in.Model != nil {
		probe.Model = *in.Model
	}
	if b.has("system_prompt") {
		p.SystemPrompt = &in.SystemPrompt
	}
	if b.has("settings") {
		p.Settings = object(in.Settings)
	}
	return p, probe.Validate()
}

func deleteAgent(c *call) error {
	id, err := c.agentID()
	if err != nil {
		return err
	}
	if err := c.s.Store.DeleteAgent(c.Context(), c.by, id); err != nil {
		return err
	}
	return c.reply(http.StatusOK, messageAnswer{"Agent deleted"})
}
