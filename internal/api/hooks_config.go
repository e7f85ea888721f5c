package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"hob"
)

// hookConfigInput is the config of a hook as a client sends it.
type hookConfigInput struct {
	OnError           hob.FailMode       `json:"on_error,omitempty" jsonschema:"what counts where the hook comes to no decision; allow for http, deny for the others where absent"`
	URL               string             `json:"url,omitempty" jsonschema:"of http: where the event is sent"`
	Headers           map[string]*string `json:"headers,omitempty" jsonschema:"sent along to url or notify_url; values are sealed and read back as a mask"`
	Secret            *string            `json:"secret,omitempty" jsonschema:"signs what is sent, 16 to 256 characters; made by the server where absent"`
	TimeoutSeconds    *float64           `json:"timeout_seconds,omitempty" jsonschema:"of http: 5 where absent, at most 30"`
	IncludeRunContext bool               `json:"include_run_context,omitempty" jsonschema:"of http: the event tells of its run, session and agent"`
	Condition         string             `json:"condition,omitempty" jsonschema:"of rule: field [NOT] CONTAINS|STARTS_WITH|MATCHES|IN value"`
	Action            string             `json:"action,omitempty" jsonschema:"of rule: deny (default) or allow"`
	IgnoreCase        bool               `json:"ignore_case,omitempty" jsonschema:"of rule"`
	Rules             json.RawMessage    `json:"rules,omitempty" jsonschema:"of rule: several, of which the first whose condition holds decides"`
	Message           string             `json:"message,omitempty" jsonschema:"of rule: why it denies; of approval: what is asked"`
	Timeout           *float64           `json:"timeout,omitempty" jsonschema:"of approval: seconds until it expires; 300 where absent, 0 = never"`
	Approvers         []string           `json:"approvers,omitempty" jsonschema:"of approval: who may decide: owner, admins, any, user:ID or key:ID; owner and admins where absent"`
	FourEyes          bool               `json:"four_eyes,omitempty" jsonschema:"of approval: who started the run may not decide"`
	NotifyURL         string             `json:"notify_url,omitempty" jsonschema:"of approval: is told when one waits"`
}

// hookKeys are the keys of a config that a type of hook reads.
func hookKeys(t hob.HookType) []string {
	switch t {
	case hob.HTTPHook:
		return []string{"on_error", "url", "headers", "secret", "timeout_seconds", "include_run_context"}
	case hob.RuleHook:
		return []string{"on_error", "condition", "action", "ignore_case", "rules", "message"}
	case hob.ApprovalHook:
		return []string{"on_error", "message", "timeout", "approvers", "four_eyes", "notify_url", "headers", "secret"}
	}
	return nil
}

// hookConfig reads the config of a hook. The warnings name the keys that its type does not read; they are not kept.
func hookConfig(t hob.HookType, raw json.RawMessage) (hob.HookConfig, []string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return hob.HookConfig{}, nil, hob.FieldError("config", err)
	}
	kept, err := onlyKnown(fields, hookKeys(t))
	if err != nil {
		return hob.HookConfig{}, nil, err
	}
	var in hookConfigInput
	if err := json.Unmarshal(kept, &in); err != nil {
		return hob.HookConfig{}, nil, hob.FieldError("config", err)
	}
	rules, err := readRules("config.rules", in.Rules)
	if err != nil {
		return hob.HookConfig{}, nil, err
	}
	out := hob.HookConfig{
		OnError: in.OnError, URL: strings.TrimSpace(in.URL), IncludeRunContext: in.IncludeRunContext,
		Condition: in.Condition, Action: in.Action, IgnoreCase: in.IgnoreCase, Rules: rules, Message: in.Message,
		Timeout: in.Timeout, Approvers: in.Approvers, FourEyes: in.FourEyes, NotifyURL: strings.TrimSpace(in.NotifyURL),
	}
	if in.TimeoutSeconds != nil {
		if out.TimeoutSeconds = *in.TimeoutSeconds; out.TimeoutSeconds == 0 {
			return out, nil, hob.Errorf(hob.Invalid, "config.timeout_seconds must be a number above 0 and at most %d", hob.MaxHookSeconds).
				With("field", "config.timeout_seconds")
		}
	}
	for name, value := range in.Headers {
		if value == nil { // null: without it
			continue
		}
		if out.Headers == nil {
			out.Headers = map[string]hob.Secret{}
		}
		out.Headers[name] = hob.Secret(*value)
	}
	if in.Secret != nil && *in.Secret != "" {
		if err := checkHookSecret(*in.Secret); err != nil {
			return out, nil, err
		}
		out.Secret = hob.Secret(*in.Secret)
	}
	return out, unreadKeys(t, fields), nil
}

// checkHookSecret judges a secret that a client gives.
func checkHookSecret(secret string) error {
	n := utf8.RuneCountInString(secret)
	if strings.Contains(secret, hob.Mask) || n < minHookSecret || n > maxHookSecret {
		return hob.Errorf(hob.Invalid, "config.secret must have %d to %d characters and not be the mask; leave it out and the server makes one",
			minHookSecret, maxHookSecret).With("field", "config.secret")
	}
	return nil
}

// unreadKeys names the keys of a config that its type does not read.
func unreadKeys(t hob.HookType, fields map[string]json.RawMessage) []string {
	read, all := hookKeys(t), fieldsOf(reflect.TypeFor[hookConfigInput](), nil)
	var unread []string
	for name := range fields {
		if !slices.Contains(read, name) {
			unread = append(unread, name)
		}
	}
	slices.Sort(unread)
	var warnings []string
	for _, name := range unread[:min(len(unread), maxWarned)] {
		text := "unknown field ignored: " + shown("config."+name)
		if slices.Contains(all, name) {
			text = "config." + name + " is ignored: hooks of type " + string(t) + " do not read it"
		} else if near := nearest(name, read); near != "" {
			text += "; did you mean " + strconv.Quote(near) + "?"
		}
		warnings = append(warnings, text)
	}
	if more := len(unread) - maxWarned; more > 0 {
		warnings = append(warnings, strconv.Itoa(more)+" more unknown fields of config ignored")
	}
	return warnings
}

// sends says whether something is sent to an address of the hook's.
func sends(h hob.Hook) bool { return h.Type == hob.HTTPHook || h.Config.NotifyURL != "" }

// checkSending judges whether a hook's addresses may be called.
func (c *call) checkSending(h hob.Hook) error {
	for field, address := range map[string]string{"config.url": h.Config.URL, "config.notify_url": h.Config.NotifyURL} {
		if address == "" {
			continue
		}
		if err := c.s.judgeURL(field, address); err != nil {
			return err
		}
	}
	return nil
}
