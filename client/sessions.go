package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"hob"
)

// SessionQuery narrows a list of sessions.
type SessionQuery struct {
	Page
	Search                      string
	CreatedAfter, CreatedBefore time.Time
	MinRuns, MaxRuns            *int64
}

// SessionList is a part of an agent's sessions.
type SessionList struct {
	Sessions []hob.SessionRow `json:"sessions"`
	Total    int64            `json:"total"`
	Limit    int              `json:"limit"`
	Offset   int              `json:"offset"`
}

// Sessions lists an agent's sessions, the last used first.
func (c *Client) Sessions(ctx context.Context, agent hob.AgentID, q SessionQuery) (SessionList, error) {
	v := q.values()
	set(v, "search", q.Search)
	if !q.CreatedAfter.IsZero() {
		v.Set("created_after", q.CreatedAfter.Format(time.RFC3339Nano))
	}
	if !q.CreatedBefore.IsZero() {
		v.Set("created_before", q.CreatedBefore.Format(time.RFC3339Nano))
	}
	if q.MinRuns != nil {
		v.Set("min_runs", strconv.FormatInt(*q.MinRuns, 10))
	}
	if q.MaxRuns != nil {
		v.Set("max_runs", strconv.FormatInt(*q.MaxRuns, 10))
	}
	var list SessionList
	return list, c.call(ctx, request{method: http.MethodGet, path: path("api", "agents", string(agent), "sessions"), query: v}, &list)
}

// SeedMessage is a message to begin a session with.
type SeedMessage struct {
	Role    hob.Role `json:"role"`
	Content string   `json:"content"`
}

// SessionInput makes a session.
type SessionInput struct {
	InitialMessages []SeedMessage `json:"initial_messages,omitempty"`
	UserID          string        `json:"user_id,omitempty"`
	// IdempotencyKey makes a repeated request get the first one's answer.
	IdempotencyKey string `json:"-"`
}

// CreateSession makes a session with an agent.
func (c *Client) CreateSession(ctx context.Context, agent hob.AgentID, in SessionInput) (hob.SessionID, error) {
	var made struct {
		ID hob.SessionID `json:"session_id"`
	}
	err := c.call(ctx, request{method: http.MethodPost, path: path("api", "agents", string(agent), "sessions"), header: idempotent(in.IdempotencyKey), body: in}, &made)
	return made.ID, err
}

// Session reads a session.
func (c *Client) Session(ctx context.Context, id hob.SessionID) (hob.Session, error) {
	var s hob.Session
	return s, c.call(ctx, request{method: http.MethodGet, path: path("api", "sessions", string(id))}, &s)
}

// DeleteSession deletes a session with its runs.
func (c *Client) DeleteSession(ctx context.Context, id hob.SessionID) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "sessions", string(id))}, nil)
}

// DeleteAgentSession deletes a session that must be the agent's.
func (c *Client) DeleteAgentSession(ctx context.Context, agent hob.AgentID, id hob.SessionID) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path("api", "agents", string(agent), "sessions", string(id))}, nil)
}

// Message is one turn of a conversation.
type Message struct {
	Role               hob.Role  `json:"role"`
	Content            string    `json:"content"`
	RunID              hob.RunID `json:"run_id"`
	Timestamp          hob.Time  `json:"timestamp"`
	ReasoningRequested *bool     `json:"reasoning_requested"`
	Reasoning          string    `json:"reasoning"`
}

// Messages lists the messages of a session's completed runs, two per run. limit counts runs, 0 for all.
func (c *Client) Messages(ctx context.Context, id hob.SessionID, limit int) ([]Message, error) {
	var list struct {
		Messages []Message `json:"messages"`
	}
	r := request{method: http.MethodGet, path: path("api", "sessions", string(id), "messages"), query: Page{Limit: limit}.values()}
	return list.Messages, c.call(ctx, r, &list)
}

// SessionRuns lists a session's runs, the oldest first.
func (c *Client) SessionRuns(ctx context.Context, id hob.SessionID, p Page) ([]hob.RunRecord, error) {
	var list struct {
		Runs []hob.RunRecord `json:"runs"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "sessions", string(id), "runs"), query: p.values()}, &list)
	return list.Runs, err
}

// RetrievedContext lists what a run retrieved.
func (c *Client) RetrievedContext(ctx context.Context, session hob.SessionID, run hob.RunID) ([]json.RawMessage, error) {
	var got struct {
		RetrievedContext []json.RawMessage `json:"retrieved_context"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path("api", "sessions", string(session), "runs", string(run), "retrieved-context")}, &got)
	return got.RetrievedContext, err
}
