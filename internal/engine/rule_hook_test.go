package engine_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"hob"
	"hob/internal/engine"
)

func httpConfig(change func(*hob.HookConfig)) hob.HookConfig {
	c := hob.HookConfig{URL: "https://hooks.example.com/in"}
	if change != nil {
		change(&c)
	}
	return c
}

func TestCheckHook_TakesWhatIsRight(t *testing.T) {
	t.Parallel()
	rule := hob.HookConfig{Condition: "query CONTAINS DROP"}
	headers := map[string]hob.Secret{}
	for i := range 50 {
		headers[fmt.Sprintf("X-Key-%d", i)] = "v"
	}
	for name, h := range map[string]hob.Hook{
		"http": {Event: hob.OnRunStart, Type: hob.HTTPHook, Config: httpConfig(nil)},
		"http with all": {Event: hob.PreToolUse, Type: hob.HTTPHook, Matcher: new("database_write | mcp__*|a?b"), Position: 1_000_000, Config: httpConfig(func(c *hob.HookConfig) {
			c.OnError, c.Headers, c.Secret, c.TimeoutSeconds, c.IncludeRunContext = hob.FailDeny, headers, "s", hob.MaxHookSeconds, true
		})},
		"http of little time": {Event: hob.OnRunComplete, Type: hob.HTTPHook, Config: httpConfig(func(c *hob.HookConfig) { c.TimeoutSeconds = 0.1 })},
		"http after a tool":   {Event: hob.PostToolUse, Type: hob.HTTPHook, Matcher: new("*"), Config: httpConfig(func(c *hob.HookConfig) { c.URL = "http://127.0.0.1:8080" })},
		"rule":                {Event: hob.PreResponse, Type: hob.RuleHook, Position: -1000, Config: rule},
		"rules":               {Event: hob.PreToolUse, Type: hob.RuleHook, Config: hob.HookConfig{OnError: hob.FailAllow, Rules: []hob.Rule{{Condition: "a IN [1]", Action: "allow"}}}},
		"a rule and rules":    {Event: hob.OnDelegation, Type: hob.RuleHook, Config: hob.HookConfig{Condition: "a CONTAINS b", Action: "deny", Message: "m", IgnoreCase: true, Rules: []hob.Rule{{Condition: "a IN [1]"}}}},
		"approval":            {Event: hob.PreToolUse, Type: hob.ApprovalHook},
		"approval with all": {Event: hob.OnRunStart, Type: hob.ApprovalHook, Config: hob.HookConfig{
			Message: "m", Timeout: new(float64(hob.MaxApprovalTime)), Approvers: []string{"owner", "admins", "any", "user:u1", "key:k1"}, FourEyes: true,
			NotifyURL: "https://hooks.example.com/in", Headers: map[string]hob.Secret{"X-Key": "v"}, Secret: "s",
		}},
		"approval for ever": {Event: hob.PreResponse, Type: hob.ApprovalHook, Config: hob.HookConfig{Timeout: new(0.0)}},
	} {
		if err := engine.CheckHook(&h); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckHook_NamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	on := func(event hob.HookEvent, of hob.HookType, c hob.HookConfig) hob.Hook {
		return hob.Hook{Event: event, Type: of, Config: c}
	}
	web := func(change func(*hob.HookConfig)) hob.Hook {
		return on(hob.PreToolUse, hob.HTTPHook, httpConfig(change))
	}
	header := func(name, value string) hob.Hook {
		return web(func(c *hob.HookConfig) { c.Headers = map[string]hob.Secret{name: hob.Secret(value)} })
	}
	matched := func(event hob.HookEvent, matcher string) hob.Hook {
		h := web(nil)
		h.Event, h.Matcher = event, &matcher
		return h
	}
	placed := func(position int) hob.Hook { h := web(nil); h.Position = position; return h }
	rule := func(c hob.HookConfig) hob.Hook { return on(hob.PreToolUse, hob.RuleHook, c) }
	approval := func(c hob.HookConfig) hob.Hook { return on(hob.PreToolUse, hob.ApprovalHook, c) }
	many := map[string]hob.Secret{}
	for i := range 51 {
		many[fmt.Sprintf("X-Key-%d", i)] = "v"
	}
	tests := map[string]struct {
		hook        hob.Hook
		field, text string
	}{
		"no event":                {on("", hob.HTTPHook, httpConfig(nil)), "event", "OnRunStart, PreToolUse, OnDelegation, PostToolUse, PreResponse, OnRunComplete"},
		"event that is none":      {on("before_run", hob.HTTPHook, httpConfig(nil)), "event", `not "before_run"`},
		"event of a case":         {on("pretooluse", hob.HTTPHook, httpConfig(nil)), "event", "must be one of"},
		"no type":                 {on(hob.PreToolUse, "", httpConfig(nil)), "type", "http, rule, approval"},
		"type that is none":       {on(hob.PreToolUse, "webhook", httpConfig(nil)), "type", `not "webhook"`},
		"rule after a tool":       {on(hob.PostToolUse, hob.RuleHook, hob.HookConfig{Condition: "a CONTAINS b"}), "type", "must be http for PostToolUse"},
		"rule after a run":        {on(hob.OnRunComplete, hob.RuleHook, hob.HookConfig{Condition: "a CONTAINS b"}), "type", "must be http for OnRunComplete"},
		"approval after a tool":   {on(hob.PostToolUse, hob.ApprovalHook, hob.HookConfig{}), "type", "must be http for PostToolUse"},
		"approval after a run":    {on(hob.OnRunComplete, hob.ApprovalHook, hob.HookConfig{}), "type", "must be http for OnRunComplete"},
		"position too high":       {placed(1_000_001), "position", "whole number from -1000 to 1000000"},
		"position too low":        {placed(-1001), "position", "whole number"},
		"matcher at a start":      {matched(hob.OnRunStart, "x"), "matcher", "PreToolUse, PostToolUse and OnDelegation"},
		"matcher of an answer":    {matched(hob.PreResponse, "x"), "matcher", "leave it out for PreResponse"},
		"matcher at an end":       {matched(hob.OnRunComplete, "x"), "matcher", "leave it out"},
		"empty matcher":           {matched(hob.PreToolUse, ""), "matcher", "leave it out for every tool"},
		"empty part":              {matched(hob.PreToolUse, "a||b"), "matcher", "parted by |"},
		"blank part":              {matched(hob.PreToolUse, "a| "), "matcher", "parted by |"},
		"matcher of other signs":  {matched(hob.PreToolUse, "a.*"), "matcher", "letters, digits"},
		"matcher of two words":    {matched(hob.PreToolUse, "a b"), "matcher", "letters, digits"},
		"long matcher":            {matched(hob.PreToolUse, strings.Repeat("a", 1001)), "matcher", "at most 1000 characters"},
		"unknown on_error":        {web(func(c *hob.HookConfig) { c.OnError = "ask" }), "config.on_error", `allow or deny, not "ask"`},
		"no url":                  {on(hob.PreToolUse, hob.HTTPHook, hob.HookConfig{}), "config.url", "is required"},
		"url without scheme":      {web(func(c *hob.HookConfig) { c.URL = "hooks.example.com/in" }), "config.url", "http:// or https://"},
		"url of another scheme":   {web(func(c *hob.HookConfig) { c.URL = "ftp://hooks.example.com/in" }), "config.url", "http:// or https://"},
		"url without host":        {web(func(c *hob.HookConfig) { c.URL = "https:///in" }), "config.url", "whole address"},
		"url that is none":        {web(func(c *hob.HookConfig) { c.URL = "https://h/%zz" }), "config.url", "whole address"},
		"url with a password":     {web(func(c *hob.HookConfig) { c.URL = "https://u:p@h.example.com/" }), "config.url", "no user and password"},
		"long url":                {web(func(c *hob.HookConfig) { c.URL = "https://h/" + strings.Repeat("x", 8<<10) }), "config.url", "at most 8192 bytes"},
		"no time":                 {web(func(c *hob.HookConfig) { c.TimeoutSeconds = -1 }), "config.timeout_seconds", "above 0 and at most 30"},
		"too much time":           {web(func(c *hob.HookConfig) { c.TimeoutSeconds = hob.MaxHookSeconds + 0.1 }), "config.timeout_seconds", "above 0 and at most 30"},
		"time that is no number":  {web(func(c *hob.HookConfig) { c.TimeoutSeconds = math.NaN() }), "config.timeout_seconds", "above 0"},
		"too many headers":        {web(func(c *hob.HookConfig) { c.Headers = many }), "config.headers", "51 headers; 50 are allowed"},
		"headers too large":       {header("X-Key", strings.Repeat("v", 16<<10)), "config.headers", "at most 16384 bytes"},
		"header without a name":   {header("", "v"), "config.headers", "not valid"},
		"header of two words":     {header("X Key", "v"), "config.headers", `not valid: "X Key"`},
		"header with a colon":     {header("X-Key:", "v"), "config.headers", "not valid"},
		"header of a letter":      {header("X-Schlüssel", "v"), "config.headers", "not valid"},
		"header of two lines":     {header("X-Key", "a\r\nX-Other: b"), "config.headers", "control character in the value of X-Key"},
		"header with a mask":      {header("X-Key", hob.Mask), "config.headers", "has the mask as the value of X-Key"},
		"header twice":            {web(func(c *hob.HookConfig) { c.Headers = map[string]hob.Secret{"x-key": "a", "X-Key": "b"} }), "config.headers", "X-Key twice"},
		"secret too long":         {web(func(c *hob.HookConfig) { c.Secret = hob.Secret(strings.Repeat("s", 257)) }), "config.secret", "at most 256 characters"},
		"secret that is a mask":   {web(func(c *hob.HookConfig) { c.Secret = hob.Mask }), "config.secret", "the mask"},
		"no rule":                 {rule(hob.HookConfig{}), "config.condition", "at least one rule"},
		"an action alone":         {rule(hob.HookConfig{Action: "deny"}), "config.condition", "at least one rule"},
		"an action beside rules":  {rule(hob.HookConfig{Action: "deny", Rules: []hob.Rule{{Condition: "a CONTAINS b"}}}), "config.condition", "is missing"},
		"bad condition":           {rule(hob.HookConfig{Condition: "a LIKE b"}), "config.condition", `"LIKE"`},
		"bad action":              {rule(hob.HookConfig{Condition: "a CONTAINS b", Action: "stop"}), "config.action", "must be deny or allow"},
		"bad message":             {rule(hob.HookConfig{Condition: "a CONTAINS b", Message: strings.Repeat("m", hob.MaxHookMessage+1)}), "config.message", "2000"},
		"bad rule":                {rule(hob.HookConfig{Rules: []hob.Rule{{Condition: "a CONTAINS b"}, {Condition: "a MATCHES ("}}}), "config.rules[1].condition", "not valid"},
		"bad rule beside one":     {rule(hob.HookConfig{Condition: "a CONTAINS b", Rules: []hob.Rule{{Condition: ""}}}), "config.rules[0].condition", "must be text"},
		"too many rules":          {rule(hob.HookConfig{Rules: make([]hob.Rule, hob.MaxRules+1)}), "config.rules", "101 rules"},
		"long message":            {approval(hob.HookConfig{Message: strings.Repeat("m", hob.MaxHookMessage+1)}), "config.message", "at most 2000 characters"},
		"time before now":         {approval(hob.HookConfig{Timeout: new(-1.0)}), "config.timeout", "from 0, for ever, to 2592000"},
		"more than a month":       {approval(hob.HookConfig{Timeout: new(hob.MaxApprovalTime + 1.0)}), "config.timeout", "2592000"},
		"approver that is none":   {approval(hob.HookConfig{Approvers: []string{"owner", "boss"}}), "config.approvers[1]", `not "boss"`},
		"too many approvers":      {approval(hob.HookConfig{Approvers: make([]string, hob.MaxApprovers+1)}), "config.approvers", "51 names; 50 are allowed"},
		"notify_url that is none": {approval(hob.HookConfig{NotifyURL: "mailto:a@b.example"}), "config.notify_url", "http:// or https://"},
		"secret to nobody":        {approval(hob.HookConfig{Secret: "s"}), "config.notify_url", "is missing"},
		"headers to nobody":       {approval(hob.HookConfig{Headers: map[string]hob.Secret{"X-Key": "v"}}), "config.notify_url", "is missing"},
		"bad header of a notice":  {approval(hob.HookConfig{NotifyURL: "https://h.example.com", Headers: map[string]hob.Secret{"Host": "v"}}), "config.headers", "cannot set Host"},
	}
	for _, name := range []string{"X-Hob-Signature", "x-hob-anything", "Content-Type", "content-length", "Host", "Transfer-Encoding", "Connection", "Proxy-Authorization", "User-Agent"} {
		tests["reserved "+name] = struct {
			hook        hob.Hook
			field, text string
		}{header(name, "v"), "config.headers", "cannot set "}
	}
	for name, tt := range tests {
		wantBadField(t, name, engine.CheckHook(&tt.hook), tt.field, tt.text)
	}
}

// A key of one type is refused on another, by its name.
func TestCheckHook_KeysBelongToTypes(t *testing.T) {
	t.Parallel()
	http, rule, approval := hob.HTTPHook, hob.RuleHook, hob.ApprovalHook
	base := map[hob.HookType]hob.HookConfig{
		http: httpConfig(nil), rule: {Condition: "a CONTAINS b"}, approval: {NotifyURL: "https://hooks.example.com/in"},
	}
	for key, c := range map[string]struct {
		set func(*hob.HookConfig)
		of  []hob.HookType
	}{
		"url":                 {func(c *hob.HookConfig) { c.URL = "https://hooks.example.com/in" }, []hob.HookType{http}},
		"headers":             {func(c *hob.HookConfig) { c.Headers = map[string]hob.Secret{"A": "b"} }, []hob.HookType{http, approval}},
		"secret":              {func(c *hob.HookConfig) { c.Secret = "s" }, []hob.HookType{http, approval}},
		"timeout_seconds":     {func(c *hob.HookConfig) { c.TimeoutSeconds = 1 }, []hob.HookType{http}},
		"include_run_context": {func(c *hob.HookConfig) { c.IncludeRunContext = true }, []hob.HookType{http}},
		"condition":           {func(c *hob.HookConfig) { c.Condition = "a CONTAINS b" }, []hob.HookType{rule}},
		"action":              {func(c *hob.HookConfig) { c.Action = "deny" }, []hob.HookType{rule}},
		"ignore_case":         {func(c *hob.HookConfig) { c.IgnoreCase = true }, []hob.HookType{rule}},
		"rules":               {func(c *hob.HookConfig) { c.Rules = []hob.Rule{{Condition: "a CONTAINS b"}} }, []hob.HookType{rule}},
		"message":             {func(c *hob.HookConfig) { c.Message = "m" }, []hob.HookType{rule, approval}},
		"timeout":             {func(c *hob.HookConfig) { c.Timeout = new(1.0) }, []hob.HookType{approval}},
		"approvers":           {func(c *hob.HookConfig) { c.Approvers = []string{"owner"} }, []hob.HookType{approval}},
		"four_eyes":           {func(c *hob.HookConfig) { c.FourEyes = true }, []hob.HookType{approval}},
		"notify_url":          {func(c *hob.HookConfig) { c.NotifyURL = "https://hooks.example.com/in" }, []hob.HookType{approval}},
		"on_error":            {func(c *hob.HookConfig) { c.OnError = hob.FailDeny }, []hob.HookType{http, rule, approval}},
	} {
		for of, config := range base {
			config.Headers = maps.Clone(config.Headers)
			c.set(&config)
			err := engine.CheckHook(&hob.Hook{Event: hob.PreToolUse, Type: of, Config: config})
			allowed := false
			for _, x := range c.of {
				allowed = allowed || x == of
			}
			if allowed != (err == nil) {
				t.Errorf("%s on %s: %v", key, of, err)
			} else if err != nil {
				wantBadField(t, key+" on "+string(of), err, "config."+key, "is for hooks of type ")
			}
		}
	}
}
