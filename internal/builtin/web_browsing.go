package builtin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"hob"
)

//go:embed web_browsing.md
var webBrowsingText string

// Keys of config_override that bound web_browsing.
const (
	allowedDomainsKey = "allowed_domains"
	blockedDomainsKey = "blocked_domains"
	maxUsesKey        = "max_uses"
)

// DefaultWebUses is how often a web tool may search for one answer of the model, where nothing else is set.
const DefaultWebUses = 5

// noNative is why a search falls to the server.
const (
	noNative      = "the agent's model does not search the web by itself beside its other tools"
	noDomains     = "the provider of the agent's model cannot hold its searches to domains"
	shapedByHand  = "arguments are pinned or rules set, which the provider of the model would not keep"
	noneNative    = "no configured model provider searches the web by itself"
	neitherSearch = "%s, and the search of the server is missing: %s"
)

func init() {
	add(builtin{
		name:        "web_browsing",
		kind:        hob.WebTool,
		description: webBrowsingText,
		schema:      json.RawMessage(searchSchema),
		effect:      hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		keys:        []string{allowedDomainsKey, blockedDomainsKey, maxUsesKey},
		options:     func(_ *Set, keys map[string]json.RawMessage) (any, error) { return readWebBounds(keys) },
		unavailable: func(ctx context.Context, s *Set, ws hob.WorkspaceID) string { return s.noWeb(ctx, ws) },
		open: func(o opening) (hob.ToolRunner, string) {
			o.spec.Kind = hob.WebTool
			return o.set.openWeb(webOpening{loading{o.ctx, o.grant, o.numbers}, o.spec, *o.options.(*webBounds)})
		},
	})
}

// webBounds are what a web tool may find, and how often it may search.
type webBounds struct {
	allowed, blocked []string // domains in lower case; one of them is empty
	uses             int      // for one answer of the model
	ruled            bool     // there are rules for its calls
}

// readWebBounds reads the keys of an assignment. The error is Invalid and names the key.
func readWebBounds(keys map[string]json.RawMessage) (*webBounds, error) {
	b := &webBounds{uses: DefaultWebUses}
	var err error
	if raw, ok := keys[allowedDomainsKey]; ok {
		if b.allowed, err = readDomains(allowedDomainsKey, raw); err != nil {
			return nil, err
		}
	}
	if raw, ok := keys[blockedDomainsKey]; ok {
		if b.blocked, err = readDomains(blockedDomainsKey, raw); err != nil {
			return nil, err
		}
	}
	if raw, ok := keys[maxUsesKey]; ok {
		if err := readCount(raw, maxUsesKey, 1, MaxWebUses, &b.uses); err != nil {
			return nil, err
		}
	}
	if len(b.allowed) > 0 && len(b.blocked) > 0 {
		return nil, badKey(blockedDomainsKey, "cannot be given beside allowed_domains")
	}
	b.ruled = hasRules(keys)
	return b, nil
}

// hasRules says whether there are rules: an empty list holds none.
func hasRules(keys map[string]json.RawMessage) bool {
	var list []json.RawMessage
	raw, given := keys[rulesKey]
	return given && (json.Unmarshal(raw, &list) != nil || len(list) > 0)
}

// readDomains refuses an empty list: to some it means nothing, to others everything.
func readDomains(key string, raw json.RawMessage) ([]string, error) {
	var list []string
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || len(list) > MaxWebDomains {
		return nil, badKey(key, `must be a list of 1 to %d domains, like ["example.com"]; leave it out for the whole web`, MaxWebDomains)
	}
	for _, d := range list {
		if !domain.MatchString(d) {
			return nil, badKey(key, "has %q, which is no domain; write it like example.com, without https:// and path", shorten(d))
		}
	}
	return lower(list), nil
}

// boundsOf are the bounds of a row.
func boundsOf(c hob.ToolConfig, ruled bool) webBounds {
	return webBounds{allowed: lower(c.AllowedDomains), blocked: lower(c.BlockedDomains), uses: cmp.Or(c.MaxUses, DefaultWebUses), ruled: ruled}
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = strings.ToLower(d)
	}
	return out
}

// webSource is what an assignment of a web tool's row is bound to. A row that describes no arguments has those of
// web_search.
func webSource(t *hob.Tool) source {
	src := source{
		name: "a web tool", schema: t.InputSchema, argumentsFirst: true, keys: []string{rulesKey},
		options: func(keys map[string]json.RawMessage) (any, error) { return hasRules(keys), nil },
	}
	if s, err := readSchema(t.InputSchema); err == nil && len(s.properties) == 0 {
		src.schema = json.RawMessage(searchSchema)
	}
	return src
}

// checkWebSchema wants the one argument without which nothing can be searched for.
func checkWebSchema(s *inputSchema) error {
	if len(s.properties) > 0 && !s.has("query") {
		return badSchema("must have the property query, or no properties at all: those of web_search are used then")
	}
	return nil
}

// loadWeb makes the runner of a web tool's row.
func (s *Set) loadWeb(l loading, t *hob.Tool, bound *binding) (hob.ToolRunner, string) {
	ruled, _ := bound.options.(bool)
	return s.openWeb(webOpening{l, hob.ToolSpec{
		Name: t.Name, Description: t.Description, Schema: bound.schema, Kind: hob.WebTool, Ref: string(t.ID),
		Recovery: hob.RecoverRead, Effect: hob.EffectRead, Parallel: true, Pinned: bound.pinned, FullSchema: bound.full, Rules: bound.rules,
	}, boundsOf(t.Config, ruled)})
}

// webOpening is what the runner of a web tool is made of.
type webOpening struct {
	loading
	spec   hob.ToolSpec
	bounds webBounds
}

// openWeb leaves a search to the model's provider where that can make it as it is bounded, and makes a function of it
// where it cannot but Exa is configured. A text instead of a runner says why neither is so.
func (s *Set) openWeb(o webOpening) (hob.ToolRunner, string) {
	ws := o.grant.Agent.Workspace
	t := &webTool{bounds: o.bounds, steps: map[int]int{}}
	o.spec.Timeout = searchWait
	why := ""
	switch {
	case !o.grant.WebSearch:
		why = noNative
	case len(o.spec.Pinned) > 0 || o.bounds.ruled:
		why = shapedByHand
	case !o.grant.SearchDomains && len(o.bounds.allowed)+len(o.bounds.blocked) > 0:
		why = noDomains
	default:
		o.spec.Native = true
		o.spec.Search = &hob.WebSearchOptions{MaxUses: o.bounds.uses, AllowedDomains: o.bounds.allowed, BlockedDomains: o.bounds.blocked}
	}
	if !o.spec.Native && s.exa(o.ctx, ws).key == "" {
		return nil, fmt.Sprintf(neitherSearch, why, exaLacks)
	}
	t.webSearch = webSearch{set: s, spec: o.spec, numbers: o.numbers, limits: &limits{}, ws: ws}
	return t, ""
}

// noWeb says why no web tool can work in a workspace, "" where some model can search or the server can.
func (s *Set) noWeb(ctx context.Context, ws hob.WorkspaceID) string {
	if s.exa(ctx, ws).key != "" || s.deps.Searches != nil && s.deps.Searches(ctx, ws) {
		return ""
	}
	return fmt.Sprintf(neitherSearch, noneNative, exaLacks)
}

// webTool is a tool of the kind web. Its calls are those of a run whose model's provider does not search by itself; a run
// that began with one that did makes none.
type webTool struct {
	webSearch
	bounds webBounds

	mu    sync.Mutex
	steps map[int]int // searches by step
}

// Call searches as web_search does, within the tool's bounds.
func (t *webTool) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	if err := cancelled(ctx, t.spec.Name); err != nil {
		return hob.Result{}, err
	}
	in, err := readSearch(c.Arguments)
	if err == nil {
		err = t.bounds.hold(in)
	}
	if err != nil {
		return *free("%s", messageOf(err)), nil
	}
	if !t.take(c) {
		return *free("%s may search %d times for one answer, which it did; go on with what was found", c.Name, t.bounds.uses), nil
	}
	return t.find(ctx, c, in)
}

// take counts a call and says whether the step may still make it. A repeated try is no further call.
func (t *webTool) take(c hob.Call) bool {
	if c.Attempt > 1 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps[c.Step] >= t.bounds.uses {
		return false
	}
	t.steps[c.Step]++
	return true
}

// hold keeps a search to the domains that the tool may find. The error is Invalid and names them.
func (b *webBounds) hold(in *searchArgs) error {
	within := func(d string, list []string) bool {
		return slices.ContainsFunc(list, func(parent string) bool { return inDomain(d, parent) })
	}
	if len(b.allowed) > 0 {
		if len(in.IncludeDomains) == 0 {
			in.IncludeDomains = b.allowed
			return nil
		}
		if in.IncludeDomains = slices.DeleteFunc(in.IncludeDomains, func(d string) bool { return !within(d, b.allowed) }); len(in.IncludeDomains) == 0 {
			return hob.Errorf(hob.Invalid, "include_domains must be of %s: this tool finds nothing else", strings.Join(b.allowed, ", "))
		}
		return nil
	}
	if len(b.blocked) == 0 {
		return nil
	}
	asked := len(in.IncludeDomains) > 0
	if in.IncludeDomains = slices.DeleteFunc(in.IncludeDomains, func(d string) bool { return within(d, b.blocked) }); asked && len(in.IncludeDomains) == 0 {
		return hob.Errorf(hob.Invalid, "include_domains must not be of %s: this tool does not find them", strings.Join(b.blocked, ", "))
	}
	in.ExcludeDomains = append(in.ExcludeDomains, slices.DeleteFunc(slices.Clone(b.blocked), func(d string) bool { return slices.Contains(in.ExcludeDomains, d) })...)
	return nil
}

// inDomain says whether a domain, perhaps with a wildcard before it and a path behind, is another or one below it.
func inDomain(d, parent string) bool {
	d, _, _ = strings.Cut(d, "/")
	d = strings.TrimPrefix(d, "*.")
	return d == parent || strings.HasSuffix(d, "."+parent)
}
