package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"hob"
	"hob/internal/engine"
)

// Bounds of a run's request.
const (
	maxText     = 1 << 20 // bytes of all text of a message, and of context_override
	maxParts    = 64
	maxImageURL = 8 << 10 // bytes of an https address
)

// runInput is what a client sends to run an agent.
type runInput struct {
	Message               json.RawMessage `json:"message" jsonschema:"the user's turn: text, or a list of parts in OpenAI's content form"`
	SessionID             *string         `json:"session_id,omitempty" jsonschema:"the conversation to go on with; a new one where absent or null, and one with this id where there is none"`
	Tools                 json.RawMessage `json:"tools,omitempty" jsonschema:"on /run: true lets the run use the agent's tools; streams always do"`
	ContextOverride       *string         `json:"context_override,omitempty" jsonschema:"text laid behind the system prompt, for this run only"`
	ReasoningRequested    *bool           `json:"reasoning_requested,omitempty" jsonschema:"true: the model thinks, with reasoning_effort medium where none is set; false: it does not"`
	KnowledgeBases        json.RawMessage `json:"knowledge_bases,omitempty" jsonschema:"not available yet: leave it out or empty"`
	ContextHandlerID      json.RawMessage `json:"context_handler_id,omitempty" jsonschema:"not available yet: leave it out or empty"`
	ContextItems          json.RawMessage `json:"context_items,omitempty" jsonschema:"not available yet: leave it out or empty"`
	RuntimeKnowledgeBases json.RawMessage `json:"runtime_knowledge_bases,omitempty" jsonschema:"not available yet: leave it out or empty"`
	MaxContextTokens      *int            `json:"max_context_tokens,omitempty" jsonschema:"not available yet: taken, but without effect; the budget of retrieved context"`
	CitationsEnabled      *bool           `json:"citations_enabled,omitempty" jsonschema:"not available yet: taken, but without effect"`
	hob.Tuning
}

// picturesHint says where pictures go that a client put beside the message.
const picturesHint = `images: pictures are parts of the message: {"message": [{"type": "text", "text": "…"}, ` +
	`{"type": "image_url", "image_url": {"url": "https://… or data:image/png;base64,…"}}]}`

// startRun reads a run's request and starts the run. sync says that the answer is one JSON object. The warnings are of
// the request and of the run; the run's events tell the same.
func (c *call) startRun(sync bool) (engine.Started, []string, error) {
	var in runInput
	b, err := c.decode(&in, false)
	if err != nil {
		return engine.Started{}, nil, err
	}
	if b.has("images") {
		b.warnings = append(b.warnings, picturesHint)
	}
	start := engine.StartInput{Warnings: b.warnings}
	if start.Message, err = message(in.Message); err != nil {
		if !given(b, "message") {
			err = b.hint(err)
		}
		return engine.Started{}, nil, err
	}
	if err := in.checkContext(sync); err != nil {
		return engine.Started{}, nil, err
	}
	if start.Options, err = in.options(sync); err != nil {
		return engine.Started{}, nil, err
	}
	if in.SessionID != nil && *in.SessionID != "" {
		if id := *in.SessionID; !plainText(id, hob.MaxSessionID) || id == "." || id == ".." { // dots are no element of a path
			return engine.Started{}, nil, hob.Errorf(hob.Invalid, "session_id must be at most %d bytes, without control characters, and not . or ..",
				hob.MaxSessionID).With("field", "session_id")
		}
		start.Session = hob.SessionID(*in.SessionID)
	}
	if start.Agent, err = c.agentID(); err != nil {
		return engine.Started{}, nil, err
	}
	if start.Idempotency, err = c.runKey(b.raw); err != nil {
		return engine.Started{}, nil, err
	}
	started, err := c.s.Engine.Start(c.Context(), c.by, start)
	if err != nil {
		return started, nil, err
	}
	c.markReplayed(started.Replayed)
	if !started.Replayed {
		c.s.metrics.runs.Add(1)
	}
	return started, started.Warnings, nil
}

// checkContext allows one source of context at most, and of these only the ones there are.
func (in runInput) checkContext(sync bool) error {
	sources := []struct {
		name string
		set  bool
	}{
		{"knowledge_bases", filledJSON(in.KnowledgeBases)},
		{"context_handler_id", filledJSON(in.ContextHandlerID)},
		{"context_override", in.ContextOverride != nil && *in.ContextOverride != ""},
		{"context_items", filledJSON(in.ContextItems)},
	}
	var set []string
	for _, s := range sources {
		if s.set {
			set = append(set, s.name)
		}
	}
	if len(set) > 1 {
		return hob.Errorf(hob.Invalid, "Only one of knowledge_bases, context_handler_id, context_override and context_items may be given, not %s",
			strings.Join(set, " and ")).WithCode("context_conflict")
	}
	if filledJSON(in.RuntimeKnowledgeBases) {
		if sync {
			return hob.Errorf(hob.Invalid, "runtime_knowledge_bases is only for /run/stream").With("field", "runtime_knowledge_bases")
		}
		set = append(set, "runtime_knowledge_bases")
	}
	for _, name := range set {
		if name != "context_override" {
			return hob.Errorf(hob.Invalid, "%s: knowledge bases are not available yet; leave it out or empty", name).
				WithCode("knowledge_unavailable").With("field", name)
		}
	}
	if in.ContextOverride != nil && len(*in.ContextOverride) > maxText {
		return hob.Errorf(hob.Invalid, "context_override must be at most %d bytes", maxText).With("field", "context_override")
	}
	return nil
}

// filledJSON says whether a value is more than nothing: null, [], {} and "" are nothing.
func filledJSON(raw json.RawMessage) bool {
	var b bytes.Buffer
	if len(raw) == 0 || json.Compact(&b, raw) != nil {
		return false
	}
	return !slices.Contains([]string{"null", "[]", "{}", `""`, "false"}, b.String())
}

func (in runInput) options(sync bool) (hob.RunOptions, error) {
	o := hob.RunOptions{Tuning: in.Tuning, Stream: !sync, ReasoningRequested: in.ReasoningRequested, MaxContextTokens: in.MaxContextTokens}
	if err := o.Validate(); err != nil {
		return o, err
	}
	if n := o.MaxContextTokens; n != nil && *n < 1 {
		return o, hob.Errorf(hob.Invalid, "max_context_tokens must be a whole number of at least 1").With("field", "max_context_tokens")
	}
	if in.ContextOverride != nil {
		o.Context = *in.ContextOverride
	}
	if in.CitationsEnabled != nil {
		o.CitationsEnabled = *in.CitationsEnabled
	}
	if sync {
		switch string(in.Tools) {
		case "", "null", "false":
			o.NoTools = true
		case "true":
		default:
			return o, hob.Errorf(hob.Invalid, "tools must be true or false: true lets this run use the agent's tools").With("field", "tools")
		}
	}
	return o, nil
}

// message reads the user's turn: a text, or parts in OpenAI's content form.
func message(raw json.RawMessage) (hob.Message, error) {
	m := hob.Message{Role: hob.RoleUser}
	required := hob.Errorf(hob.Invalid, "message is required").With("field", "message")
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return m, required
	}
	switch raw[0] {
	case '"':
		if err := json.Unmarshal(raw, &m.Content); err != nil {
			return m, hob.FieldError("message", err)
		}
	case '[':
		if err := readParts(raw, &m); err != nil {
			return m, err
		}
	default:
		return m, hob.Errorf(hob.Invalid, "message must be text or a list of parts").With("field", "message")
	}
	if len(m.Parts) == 0 && strings.TrimSpace(m.Content) == "" {
		return m, required
	}
	if len(m.Text()) > maxText {
		return m, hob.Errorf(hob.Invalid, "message must be at most %d bytes of text", maxText).With("field", "message")
	}
	return m, nil
}

// contentPart is a part in OpenAI's form.
type contentPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ImageURL json.RawMessage `json:"image_url"` // {"url": …} or the address itself
}

// readParts reads a list of parts. One of texts alone becomes plain text.
func readParts(raw json.RawMessage, m *hob.Message) error {
	var list []contentPart
	if err := json.Unmarshal(raw, &list); err != nil {
		return hob.FieldError("message", err)
	}
	if len(list) > maxParts {
		return hob.Errorf(hob.Invalid, "message must have at most %d parts", maxParts).With("field", "message")
	}
	images := false
	for i, p := range list {
		bad := func(what string) error {
			return hob.Errorf(hob.Invalid, "message[%d] %s", i, what).With("field", "message")
		}
		switch p.Type {
		case "text":
			if strings.TrimSpace(p.Text) == "" {
				continue
			}
			m.Parts = append(m.Parts, hob.Part{Type: hob.TextPart, Text: p.Text})
		case "image_url":
			address, err := imageAddress(p.ImageURL)
			if err != "" {
				return bad(err)
			}
			images = true
			m.Parts = append(m.Parts, hob.Part{Type: hob.ImagePart, URL: address})
		default:
			return bad("must have a type of text or image_url")
		}
	}
	if !images {
		m.Content, m.Parts = m.Text(), nil
	}
	return nil
}

// imageAddress reads an image's address and says what is wrong with it: it must be https, or data with a picture in it.
// Nothing is fetched here; the model's provider does that.
func imageAddress(raw json.RawMessage) (address, wrong string) {
	var form struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(raw, &form) == nil {
		address = form.URL
	} else if json.Unmarshal(raw, &address) != nil {
		return "", "must have an image_url with a url"
	}
	if rest, ok := strings.CutPrefix(address, "data:"); ok {
		kind, data, ok := strings.Cut(rest, ";base64,")
		if !ok || !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
			return "", "must hold a base64 data address of type image/png, image/jpeg, image/gif or image/webp"
		}
		if n, err := base64.StdEncoding.DecodeString(data); err != nil || len(n) == 0 {
			return "", "holds a picture whose base64 is not valid"
		}
		return address, ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || len(address) > maxImageURL {
		return "", "must have an https or data address"
	}
	return address, ""
}
