package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"hob"
)

// Bounds of seeding.
const (
	maxSeed      = 200    // messages
	maxSeedRunes = 20_000 // characters of one
)

// sessionInput is what a client may send to make a session.
type sessionInput struct {
	InitialMessages json.RawMessage `json:"initial_messages,omitempty" jsonschema:"turns to begin with: user and assistant in turn, at most 200"`
	UserID          *string         `json:"user_id,omitempty" jsonschema:"whose session it is; service keys only"`
}

type sessionCreated struct {
	SessionID hob.SessionID `json:"session_id"`
	Warnings  []string      `json:"warnings,omitempty"`
}

type sessionDeleted struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

type sessionList struct {
	Sessions []hob.SessionRow `json:"sessions"`
	Total    int64            `json:"total"`
	Limit    int              `json:"limit"`
	Offset   int              `json:"offset"`
}

func listSessions(c *call) error {
	id, err := c.agentID()
	if err != nil {
		return err
	}
	f := hob.SessionFilter{
		Limit:  c.number("limit", defaultLimit, 1, maxLimit),
		Offset: c.number("offset", 0, 0, maxListedOffset),
	}
	if f.Search, err = c.search("search"); err != nil {
		return err
	}
	if f.CreatedAfter, err = c.moment("created_after", false); err != nil {
		return err
	}
	if f.CreatedBefore, err = c.moment("created_before", true); err != nil {
		return err
	}
	if f.MinRuns, err = c.count("min_runs"); err != nil {
		return err
	}
	if f.MaxRuns, err = c.count("max_runs"); err != nil {
		return err
	}
	if _, err := c.s.Store.Agent(c.Context(), c.by, id); err != nil {
		return err
	}
	page, err := c.s.Store.Sessions(c.Context(), c.by, id, f)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, sessionList{Sessions: filled(page.Items), Total: page.Total, Limit: f.Limit, Offset: f.Offset})
}

func createSession(c *call) (creation, error) {
	id, err := c.agentID()
	if err != nil {
		return creation{}, err
	}
	var in sessionInput
	b, err := c.decode(&in, true)
	if err != nil {
		return creation{}, err
	}
	seed, err := seedTurns(in.InitialMessages)
	if err != nil {
		return creation{}, err
	}
	s := hob.Session{
		ID: hob.NewSessionID(), UUID: hob.NewUUID(), Workspace: c.by.Workspace, Agent: &id, Owner: c.by.Owner(),
		Data: json.RawMessage("{}"), Metadata: json.RawMessage("{}"),
	}
	service := c.by.Kind == hob.ServicePrincipal
	switch {
	case in.UserID != nil && !service:
		return creation{}, hob.Errorf(hob.Forbidden, "Service role required to set user_id").With("field", "user_id")
	case in.UserID != nil && !hob.IsUUID(*in.UserID):
		return creation{}, hob.Errorf(hob.Invalid, "user_id must be a UUID").With("field", "user_id")
	case in.UserID == nil && service && len(seed) > 0:
		return creation{}, hob.Errorf(hob.Invalid, "user_id is required when a service key seeds messages").With("field", "user_id")
	case in.UserID != nil:
		s.UserID = in.UserID
		s.Owner = hob.Principal{Kind: hob.UserPrincipal, ID: *in.UserID}.Owner()
	case c.by.Kind == hob.UserPrincipal:
		s.UserID = &c.by.ID
	}
	if _, err := c.s.Store.Agent(c.Context(), c.by, id); err != nil {
		return creation{}, err
	}
	return creation{make: func(ctx context.Context, store hob.Store) (int, any, error) {
		made, err := store.CreateSession(ctx, c.by, s, seed)
		return http.StatusCreated, sessionCreated{made.ID, b.warnings}, err
	}}, nil
}

// seedTurns reads messages to begin a session with: whole exchanges, user first. Errors name the message.
func seedTurns(raw json.RawMessage) ([]hob.SeedTurn, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	bad := func(format string, args ...any) error {
		return hob.Errorf(hob.Invalid, "initial_messages"+format, args...).With("field", "initial_messages")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, bad(" must be a list of messages")
	}
	if len(list) > maxSeed {
		return nil, bad(" must be at most %d messages", maxSeed)
	}
	var turns []hob.SeedTurn
	for i, item := range list {
		var m struct {
			Role    *string `json:"role"`
			Content *string `json:"content"`
		}
		if err := json.Unmarshal(item, &m); err != nil || item[0] != '{' {
			return nil, bad("[%d] must be an object with role and content, both text", i)
		}
		want := [...]hob.Role{hob.RoleUser, hob.RoleAssistant}[i%2]
		if m.Role == nil || *m.Role != string(want) {
			return nil, bad("[%d].role must be %s: user and assistant take turns, user first", i, want)
		}
		if m.Content == nil || strings.TrimSpace(*m.Content) == "" || utf8.RuneCountInString(*m.Content) > maxSeedRunes {
			return nil, bad("[%d].content must be non-blank text of at most %d characters", i, maxSeedRunes)
		}
		if want == hob.RoleUser {
			turns = append(turns, hob.SeedTurn{User: *m.Content})
		} else {
			turns[i/2].Assistant = *m.Content
		}
	}
	if len(list)%2 != 0 {
		return nil, bad("[%d] has no answer: the number of messages must be even", len(list)-1)
	}
	return turns, nil
}

func getSession(c *call) error {
	id, err := c.sessionID()
	if err != nil {
		return err
	}
	s, err := c.s.Store.Session(c.Context(), c.by, id)
	if err != nil {
		return err
	}
	s.Data, s.Metadata = object(s.Data), object(s.Metadata)
	return c.reply(http.StatusOK, s)
}

func deleteSession(c *call) error {
	id, err := c.sessionID()
	if err != nil {
		return err
	}
	if err := c.s.Store.DeleteSession(c.Context(), c.by, "", id); err != nil {
		return err
	}
	return c.reply(http.StatusOK, sessionDeleted{true, "Session deleted"})
}

func deleteAgentSession(c *call) error {
	agent, err := c.agentID()
	if err != nil {
		return hob.Absent(hob.SessionObject)
	}
	id, err := c.sessionID()
	if err != nil {
		return err
	}
	if err := c.s.Store.DeleteSession(c.Context(), c.by, agent, id); err != nil {
		return err
	}
	c.s.sent(c.w, http.StatusNoContent)
	return nil
}
