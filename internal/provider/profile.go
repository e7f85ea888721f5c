package provider

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hob"
)

// Facts is what probing found out about one model at one endpoint. What is absent was not found out: the table of families
// holds. Facts go over the table where requests are written and answers are read.
type Facts struct {
	Deltas                string   `json:"deltas,omitempty" jsonschema:"how a call's arguments come: split, whole or cumulative"`
	CallIDs               string   `json:"call_ids,omitempty" jsonschema:"of tool calls: present, missing or duplicate"`
	ParallelCalls         *bool    `json:"parallel_calls,omitempty" jsonschema:"several calls in one answer, and their results sent back"`
	ParallelField         *bool    `json:"parallel_tool_calls,omitempty" jsonschema:"knows the field of this name"`
	Usage                 string   `json:"usage,omitempty" jsonschema:"told because stream_options asks, always, or never"`
	StreamOptions         *bool    `json:"stream_options,omitempty" jsonschema:"knows the field"`
	FinishReasons         []string `json:"finish_reasons,omitempty" jsonschema:"as they were spelt"`
	Reasoning             string   `json:"reasoning,omitempty" jsonschema:"the field it comes in; none where there was none"`
	ReasoningEcho         string   `json:"reasoning_echo,omitempty" jsonschema:"sent back within a turn: needed, ignored or refused"`
	StrictSchemas         *bool    `json:"strict_schemas,omitempty" jsonschema:"takes a schema called strict"`
	ResponseFormat        string   `json:"response_format,omitempty" jsonschema:"json_schema, json_object or none"`
	NameLimit             int      `json:"name_limit,omitempty" jsonschema:"characters of a tool's name, 16 to 1024"`
	SystemRole            string   `json:"system_role,omitempty" jsonschema:"of the instructions: system, developer or user"`
	MaxTokensField        string   `json:"max_tokens_field,omitempty" jsonschema:"max_tokens or max_completion_tokens"`
	Temperature           *bool    `json:"temperature,omitempty" jsonschema:"may be set"`
	Tools                 *bool    `json:"tools,omitempty" jsonschema:"can be offered at all"`
	ToolChoiceNone        *bool    `json:"tool_choice_none,omitempty" jsonschema:"takes tools whose use is forbidden"`
	ToolsNeededOnLastStep *bool    `json:"tools_needed_on_last_step,omitempty" jsonschema:"wants the list of tools where the history has calls"`
	Images                *bool    `json:"images,omitempty" jsonschema:"reads them"`
	ReasoningEffort       string   `json:"reasoning_effort,omitempty" jsonschema:"the least that may be asked for: none, minimal or low; or refused: the field is not known"`
	Window                int      `json:"window,omitempty" jsonschema:"tokens, 512 to 100000000"`
}

// Values of Facts.
const (
	deltasSplit, deltasWhole, deltasCumulative = "split", "whole", "cumulative"
	idsPresent, idsMissing, idsDuplicate       = "present", "missing", "duplicate"
	usageAsked, usageAlways, usageNever        = "stream_options", "always", "never"
	factNone                                   = "none"
	reasoningContent, reasoningPlain           = "reasoning_content", "reasoning"
	echoNeeded, echoIgnored, echoRefused       = "needed", "ignored", "refused"
	fieldMaxTokens, fieldCompletion            = "max_tokens", "max_completion_tokens"
	roleDeveloper                              = "developer"
	effortRefused                              = "refused"
)

// Bounds of a profile.
const (
	minNameLimit = 16 // a name's beginning and what makes it unique
	maxNameLimit = 1_024
	minWindow    = 512
	maxWindow    = 100_000_000
)

// ReadFacts reads the facts of a stored profile. Members that are not known are passed over, for a later version may have
// written them; a value that is wrong is Invalid and names the fact.
func ReadFacts(raw json.RawMessage) (Facts, error) {
	var f Facts
	if err := json.Unmarshal(raw, &f); err != nil {
		return Facts{}, hob.Errorf(hob.Invalid, "the facts of a model profile are wrong: %s", err).With("field", "facts")
	}
	for _, word := range []struct {
		name, value string
		known       []string
	}{
		{"deltas", f.Deltas, []string{deltasSplit, deltasWhole, deltasCumulative}},
		{"call_ids", f.CallIDs, []string{idsPresent, idsMissing, idsDuplicate}},
		{"usage", f.Usage, []string{usageAsked, usageAlways, usageNever}},
		{"reasoning_echo", f.ReasoningEcho, []string{echoNeeded, echoIgnored, echoRefused}},
		{"response_format", f.ResponseFormat, []string{formSchema, formJSON, factNone}},
		{"system_role", f.SystemRole, []string{string(hob.RoleSystem), roleDeveloper, string(hob.RoleUser)}},
		{"max_tokens_field", f.MaxTokensField, []string{fieldMaxTokens, fieldCompletion}},
		{"reasoning_effort", f.ReasoningEffort, []string{string(hob.EffortNone), effortLeast, string(hob.EffortLow), effortRefused}},
	} {
		if word.value != "" && !slices.Contains(word.known, word.value) {
			return Facts{}, hob.Errorf(hob.Invalid, "the fact %s of a model profile must be one of %s, not %q", word.name,
				strings.Join(word.known, ", "), quote(word.value)).With("field", "facts."+word.name)
		}
	}
	for _, number := range []struct {
		name               string
		value, least, most int
	}{{"name_limit", f.NameLimit, minNameLimit, maxNameLimit}, {"window", f.Window, minWindow, maxWindow}} {
		if number.value != 0 && (number.value < number.least || number.value > number.most) {
			return Facts{}, hob.Errorf(hob.Invalid, "the fact %s of a model profile must be from %d to %d", number.name, number.least,
				number.most).With("field", "facts."+number.name)
		}
	}
	return f, nil
}

// quirks are what only a profile tells of a model. The zero value is a model without any.
type quirks struct {
	noStreamOptions bool
	noStrict        bool // a schema is not called strict
	nameLimit       int  // characters of a tool's name; 0 = MaxToolName
	oneCall         bool // is asked for one call at a time
	toolsOnLast     bool // wants the list of tools where the history has calls
	noToolChoice    bool // does not know tool_choice none
	echoPlain       bool // reasoning is sent back as reasoning instead of reasoning_content
	noEcho          bool // refuses reasoning
	sameIDs         bool // ids of calls do not tell them apart
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// over puts the facts over what the table says of the model's family.
func (p *Facts) over(f family) family {
	if p.MaxTokensField != "" {
		f.completionTokens = p.MaxTokensField == fieldCompletion
	}
	if p.Temperature != nil {
		f.noTemperature = !*p.Temperature
	}
	if p.SystemRole != "" {
		f.system = p.SystemRole
	}
	switch p.ResponseFormat {
	case formSchema:
		f.form = formNative
	case formJSON:
		f.form = formObject
	case factNone:
		f.form = formWords
	}
	if p.Images != nil {
		f.textOnly = !*p.Images
	}
	if p.Window > 0 {
		f.window = p.Window
	}
	switch p.ReasoningEffort {
	case string(hob.EffortNone):
		f.effort = effortNone
	case effortLeast:
		f.effort = effortMinimal
	case string(hob.EffortLow):
		f.effort = effortClassic
	case effortRefused:
		f.effort = effortUnknown
	}
	switch p.ReasoningEcho {
	case echoNeeded:
		f.echo = true
	case echoRefused:
		f.echo = false
	}
	f.quirks = quirks{
		noStreamOptions: isFalse(p.StreamOptions), noStrict: isFalse(p.StrictSchemas), nameLimit: p.NameLimit,
		oneCall: isFalse(p.ParallelCalls) && !isFalse(p.ParallelField), toolsOnLast: isTrue(p.ToolsNeededOnLastStep),
		noToolChoice: isFalse(p.ToolChoiceNone), sameIDs: p.CallIDs == idsDuplicate,
		echoPlain: p.Reasoning == reasoningPlain, noEcho: p.ReasoningEcho == echoRefused,
	}
	return f
}

// appendToolUse writes how the tools of a chat completion may be used, behind them.
func (q quirks) appendToolUse(b []byte, never bool) []byte {
	switch {
	case never && !q.noToolChoice:
		return append(b, `,"tool_choice":"none"`...)
	case q.oneCall && !never:
		return append(b, `,"parallel_tool_calls":false`...)
	}
	return b
}

// echoField is the field in which reasoning is sent back.
func (f family) echoField() string {
	if f.quirks.echoPlain {
		return reasoningPlain
	}
	return reasoningContent
}

// takesName says whether a tool's name can be sent as it is.
func (f family) takesName(name string) bool {
	limit := f.quirks.nameLimit
	if limit == 0 {
		limit = MaxToolName
	}
	return len(name) <= limit && plainLetters(name)
}

// profileKey names a model at an endpoint.
type profileKey struct{ endpoint, model string }

// ProfileEndpoint is the form of a base URL by which profiles are found: without user, version and final slash, the host
// in lower case. What is no URL is returned as it is.
func ProfileEndpoint(base string) string {
	base = strings.TrimRight(strings.TrimSpace(base), "/")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return base
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if port := u.Port(); port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	for _, version := range []string{"/v1", "/v1beta"} {
		u.Path = strings.TrimSuffix(u.Path, version)
	}
	return strings.TrimRight(u.String(), "/")
}

// How long profiles are used before they are read again, and how long reading may take.
const (
	profilesKept  = 2 * time.Second // short, so that what was just probed counts at once; the store answers from memory
	profilesAgain = 5 * time.Second // after reading failed
	profilesTime  = 2 * time.Second
)

// profiles are the stored profiles as model calls use them. A nil one has none.
type profiles struct {
	source func(context.Context) ([]hob.ModelProfile, error)
	now    hob.Clock

	known atomic.Pointer[map[profileKey]Facts]
	due   atomic.Int64 // when they are to be read again
	mu    sync.Mutex   // held by who reads
}

func newProfiles(c Config, now hob.Clock) *profiles {
	if c.Profiles == nil {
		return nil
	}
	return &profiles{source: c.Profiles, now: now}
}

// refresh reads the profiles where it is time to. The first call waits for them, later ones go on with what is known. A
// source that fails leaves what is known: a model call does not depend on it.
func (p *profiles) refresh(ctx context.Context) {
	if p == nil || p.now().UnixNano() < p.due.Load() {
		return
	}
	if p.known.Load() == nil {
		p.mu.Lock()
	} else if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.now().UnixNano() < p.due.Load() {
		return // somebody else did
	}
	ctx, cancel := context.WithTimeout(ctx, profilesTime)
	defer cancel()
	list, err := p.source(ctx)
	if err != nil {
		p.due.Store(p.now().Add(profilesAgain).UnixNano())
		return
	}
	known := make(map[profileKey]Facts, len(list))
	for _, one := range list {
		if f, err := ReadFacts(one.Facts); err == nil { // a wrong one must not keep its model from working
			known[profileKey{ProfileEndpoint(one.Endpoint), one.Model}] = f
		}
	}
	p.known.Store(&known)
	p.due.Store(p.now().Add(profilesKept).UnixNano())
}

// family is what is known of a model at an endpoint (in the form of ProfileEndpoint): its profile over the table.
func (p *profiles) family(endpoint, model string) family {
	f := familyOf(model)
	if p == nil {
		return f
	}
	if known := p.known.Load(); known != nil {
		if facts, ok := (*known)[profileKey{endpoint, model}]; ok {
			return facts.over(f)
		}
	}
	return f
}

func (p *chat) family(model string) family { return p.caller.profiles.family(p.caller.endpoint, model) }

func (p *messages) family(model string) family {
	return p.caller.profiles.family(p.caller.endpoint, model)
}

// windowOf is the context window of a provider's model.
func windowOf(p hob.Provider, model string) int {
	if own, ok := p.(interface{ family(model string) family }); ok {
		return own.family(model).window
	}
	return familyOf(model).window
}

// effortOf says whether a wanted reasoning effort reaches a provider's model.
func effortOf(p hob.Provider, model string) bool {
	switch p := p.(type) {
	case *chat:
		return p.style.reasoningObject || p.family(model).effort != effortUnknown
	case *messages:
		return p.family(model).thinking != thinkNever
	case *gemini:
		return familyOf(model).thinking != thinkNever
	case *scripted:
		return true // it has no use for one, so none is missed
	}
	return false
}
