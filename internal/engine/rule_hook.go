package engine

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

// Bounds of hooks beside those of package hob.
const (
	maxMatcher      = 1000 // characters
	maxHookURL      = 8 << 10
	maxHookHeaders  = 50
	maxHeaderSize   = 16 << 10 // bytes of all names and values
	maxSecret       = 256      // characters
	minHookPosition = -1000
	maxHookPosition = 1_000_000
)

// CheckHook says whether a hook may be made: what its event, type, matcher, position and config are, beyond the shape of
// its JSON. Whether its addresses may be called is not judged here. The error is Invalid, and its detail "field" is the
// path of what is wrong, as in config.rules[0].condition.
func CheckHook(h *hob.Hook) error {
	switch {
	case !slices.Contains(hob.HookEvents(), h.Event):
		return badField("event", "must be one of %s, not %q", listed(hob.HookEvents()), short(string(h.Event)))
	case !slices.Contains(hob.HookTypes(), h.Type):
		return badField("type", "must be one of %s, not %q", listed(hob.HookTypes()), short(string(h.Type)))
	case h.Type != hob.HTTPHook && !h.Event.Blocks():
		return badField("type", "must be http for %s, which nothing can block: a hook of type %s is asked on OnRunStart, PreToolUse, OnDelegation or PreResponse",
			h.Event, h.Type)
	case h.Position < minHookPosition || h.Position > maxHookPosition:
		return badField("position", "must be a whole number from %d to %d", minHookPosition, maxHookPosition)
	}
	if err := checkMatcher(h); err != nil {
		return err
	}
	return checkHookConfig(h.Type, &h.Config)
}

// listed writes names one behind the other.
func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, ", ")
}

func checkMatcher(h *hob.Hook) error {
	switch {
	case h.Matcher == nil:
		return nil
	case !h.Event.OfTools():
		return badField("matcher", "is for events of tools: PreToolUse, PostToolUse and OnDelegation; leave it out for %s", h.Event)
	case utf8.RuneCountInString(*h.Matcher) > maxMatcher:
		return badField("matcher", "must have at most %d characters", maxMatcher)
	}
	odd := func(r rune) bool {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !alnum && !strings.ContainsRune("_*?-", r)
	}
	for part := range strings.SplitSeq(*h.Matcher, "|") {
		if part = strings.TrimSpace(part); part == "" || strings.ContainsFunc(part, odd) {
			return badField("matcher", `must be names of tools parted by |, each of letters, digits, _ and -, with * for any text and ? for one character, as in: database_write|mcp__*; leave it out for every tool`)
		}
	}
	return nil
}

// hookKey is a key of a hook's config.
type hookKey struct {
	name string
	set  bool
	of   []hob.HookType
}

func hookKeys(c *hob.HookConfig) []hookKey {
	calls := []hob.HookType{hob.HTTPHook, hob.ApprovalHook}
	return []hookKey{
		{"url", c.URL != "", calls[:1]},
		{"timeout_seconds", c.TimeoutSeconds != 0, calls[:1]},
		{"include_run_context", c.IncludeRunContext, calls[:1]},
		{"headers", len(c.Headers) > 0, calls},
		{"secret", c.Secret != "", calls},
		{"condition", c.Condition != "", []hob.HookType{hob.RuleHook}},
		{"action", c.Action != "", []hob.HookType{hob.RuleHook}},
		{"ignore_case", c.IgnoreCase, []hob.HookType{hob.RuleHook}},
		{"rules", len(c.Rules) > 0, []hob.HookType{hob.RuleHook}},
		{"message", c.Message != "", []hob.HookType{hob.RuleHook, hob.ApprovalHook}},
		{"timeout", c.Timeout != nil, calls[1:]},
		{"approvers", len(c.Approvers) > 0, calls[1:]},
		{"four_eyes", c.FourEyes, calls[1:]},
		{"notify_url", c.NotifyURL != "", calls[1:]},
	}
}

func checkHookConfig(of hob.HookType, c *hob.HookConfig) error {
	for _, k := range hookKeys(c) {
		if k.set && !slices.Contains(k.of, of) {
			return badField("config."+k.name, "is for hooks of type %s, not %s", strings.Join(strings.Split(listed(k.of), ", "), " or "), of)
		}
	}
	if c.OnError != "" && c.OnError != hob.FailAllow && c.OnError != hob.FailDeny {
		return badField("config.on_error", "must be allow or deny, not %q", short(string(c.OnError)))
	}
	switch of {
	case hob.HTTPHook:
		return checkCalled(c)
	case hob.RuleHook:
		return checkRuleHook(c)
	case hob.ApprovalHook:
		return checkApprovalHook(c)
	}
	return nil
}

func checkCalled(c *hob.HookConfig) error {
	if c.URL == "" {
		return badField("config.url", "is required for hooks of type http")
	}
	if err := checkHookURL("config.url", c.URL); err != nil {
		return err
	}
	if !(c.TimeoutSeconds >= 0 && c.TimeoutSeconds <= hob.MaxHookSeconds) { // written so that NaN fails too
		return badField("config.timeout_seconds", "must be a number above 0 and at most %d", hob.MaxHookSeconds)
	}
	return checkSent(c)
}

// checkHookURL judges the form of an address, not where it leads.
func checkHookURL(path, raw string) error {
	u, err := url.Parse(raw) // the cause would repeat the address, which may hold secrets
	switch {
	case len(raw) > maxHookURL:
		return badField(path, "must have at most %d bytes", maxHookURL)
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.Opaque != "":
		return badField(path, "must be a whole address that begins with http:// or https://")
	case u.User != nil:
		return badField(path, "must hold no user and password; send them in a header")
	}
	return nil
}

// checkSent judges what is sent along with every request.
func checkSent(c *hob.HookConfig) error {
	if utf8.RuneCountInString(string(c.Secret)) > maxSecret || strings.Contains(string(c.Secret), hob.Mask) {
		return badField("config.secret", "must have at most %d characters and not be the mask; leave it out and the server makes one", maxSecret)
	}
	if len(c.Headers) > maxHookHeaders {
		return badField("config.headers", "has %d headers; %d are allowed", len(c.Headers), maxHookHeaders)
	}
	size, seen := 0, map[string]bool{}
	for name, value := range c.Headers {
		if size += len(name) + len(value); size > maxHeaderSize {
			return badField("config.headers", "must have at most %d bytes in all", maxHeaderSize)
		}
		if why := badHeader(name, string(value)); why != "" {
			return badField("config.headers", "%s", why)
		}
		if key := http.CanonicalHeaderKey(name); seen[key] {
			return badField("config.headers", "has %s twice: upper and lower case are the same", key)
		} else {
			seen[key] = true
		}
	}
	return nil
}

func badHeader(name, value string) (why string) {
	const marks = "!#$%&'*+-.^_`|~"
	odd := func(r rune) bool {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !alnum && !strings.ContainsRune(marks, r)
	}
	switch {
	case name == "" || strings.ContainsFunc(name, odd):
		return fmt.Sprintf("has a name that is not valid: %q", short(name))
	case ownHeader(http.CanonicalHeaderKey(name)):
		return "cannot set " + http.CanonicalHeaderKey(name) + ": the server does"
	case strings.Contains(value, hob.Mask):
		return fmt.Sprintf("has the mask as the value of %s; a new hook has no value that it could stand for", name)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "has a control character in the value of " + name
	}
	return ""
}

// ownHeader says whether a header, in its canonical form, is the server's to set.
func ownHeader(name string) bool {
	switch name {
	case "Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Via", "Forwarded", "Http2-Settings",
		"Content-Type", "Content-Length", "Content-Encoding", "Accept-Encoding", "User-Agent":
		return true
	}
	return strings.HasPrefix(name, "X-Hob-") || strings.HasPrefix(name, "Proxy-")
}

func checkRuleHook(c *hob.HookConfig) error {
	single := c.Condition != ""
	switch {
	case !single && len(c.Rules) == 0:
		return badField("config.condition", "is required for hooks of type rule, or rules with at least one rule; a condition is %s", grammar)
	case !single && (c.Action != "" || c.Message != "" || c.IgnoreCase):
		return badField("config.condition", "is missing: action, message and ignore_case beside rules belong to it; give each rule its own")
	}
	_, err := compileRules((&hob.Hook{Config: *c}).AllRules(), func(i int, part string) string {
		switch {
		case i < 0:
			return "config.rules"
		case single && i == 0:
			return "config." + part
		case single:
			i--
		}
		return fmt.Sprintf("config.rules[%d].%s", i, part)
	})
	return err
}

func checkApprovalHook(c *hob.HookConfig) error {
	if utf8.RuneCountInString(c.Message) > hob.MaxHookMessage {
		return badField("config.message", "must have at most %d characters", hob.MaxHookMessage)
	}
	if t := c.Timeout; t != nil && !(*t >= 0 && *t <= hob.MaxApprovalTime) {
		return badField("config.timeout", "must be a number of seconds from 0, for ever, to %d", hob.MaxApprovalTime)
	}
	if len(c.Approvers) > hob.MaxApprovers {
		return badField("config.approvers", "has %d names; %d are allowed", len(c.Approvers), hob.MaxApprovers)
	}
	for i, name := range c.Approvers {
		if !hob.ApproverName(name) {
			return badField(fmt.Sprintf("config.approvers[%d]", i), "must be owner, admins, any, user:ID or key:ID, not %q", short(name))
		}
	}
	if c.NotifyURL == "" {
		if len(c.Headers) > 0 || c.Secret != "" {
			return badField("config.notify_url", "is missing: headers and secret are sent to it")
		}
		return nil
	}
	if err := checkHookURL("config.notify_url", c.NotifyURL); err != nil {
		return err
	}
	return checkSent(c)
}
