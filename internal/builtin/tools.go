package builtin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"hob"
)

// opening is what a builtin gets to make the runner of one run.
type opening struct {
	ctx     context.Context //nolint:containedctx // lives for one call of open
	set     *Set
	grant   *hob.Grant
	numbers *Settings // of the workspace
	spec    hob.ToolSpec
	options any
}

// Tools returns the runners of a grant: builtins first, each group by name, so that the list a model sees is the same
// from run to run. An assignment that cannot be used yields a warning instead; the error is only ever that of ctx.
//
// It does no I/O but that of describing an agent's tables, whose answer is kept for Settings.DescribeFor.
func (s *Set) Tools(ctx context.Context, g hob.Grant) ([]hob.ToolRunner, []string, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("load tools: %w", err)
	}
	tools := make([]hob.ToolRunner, 0, len(g.Assigned))
	var warnings []string
	s.each(ctx, &g, func(_ int, name string, tool hob.ToolRunner, why string) {
		if why != "" {
			warnings = append(warnings, warn(name, why))
			return
		}
		tools = append(tools, tool)
	})
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("load tools: %w", err)
	}
	return tools, warnings, nil
}

// NotLoaded says of each assignment of a grant why Tools would not load it, "" where it would. The error is that of ctx.
func (s *Set) NotLoaded(ctx context.Context, g hob.Grant) ([]string, error) {
	out := make([]string, len(g.Assigned))
	s.each(ctx, &g, func(i int, _ string, _ hob.ToolRunner, why string) { out[i] = why })
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("look at tools: %w", err)
	}
	return out, nil
}

// each loads the assignments of a grant in the order of Tools, and gives each by its place in the grant with its runner, or
// with why it has none.
func (s *Set) each(ctx context.Context, g *hob.Grant, give func(i int, name string, tool hob.ToolRunner, why string)) {
	if len(g.Assigned) == 0 {
		return
	}
	order := make([]int, len(g.Assigned))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &g.Assigned[i], &g.Assigned[j]
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(nameOf(a), nameOf(b)))
	})
	taken := make(map[string]bool, len(order))
	l := loading{ctx: ctx, grant: g, numbers: s.settingsOf(ctx, g.Agent.Workspace)}
	for _, i := range order {
		a := &g.Assigned[i]
		name := nameOf(a)
		if taken[name] {
			give(i, name, nil, "another tool of this agent has the same name")
			continue
		}
		tool, why := s.load(l, a)
		taken[name] = taken[name] || why == ""
		give(i, name, tool, why)
	}
}

// warn is the text of every warning about a tool that a run goes without.
func warn(name, why string) string { return fmt.Sprintf("tool %q is not loaded: %s", name, why) }

// isBuiltin tells what an assignment names.
func isBuiltin(a *hob.AssignedTool) bool { return a.ToolType == string(hob.BuiltinTool) }

// rank sorts builtins before custom tools.
func rank(a *hob.AssignedTool) int {
	if isBuiltin(a) {
		return 0
	}
	return 1
}

// nameOf is the name under which the model would know the tool: a custom tool's row decides, as it may have been
// renamed since it was assigned.
func nameOf(a *hob.AssignedTool) string {
	if !isBuiltin(a) && a.Tool != nil {
		return a.Tool.Name
	}
	return a.ToolName
}

// loading is what the tools of a run have in common while they are loaded.
type loading struct {
	ctx     context.Context //nolint:containedctx // lives for one call of Tools
	grant   *hob.Grant
	numbers *Settings
}

const (
	noSuchBuiltin = "this server has no builtin tool of that name"
	switchedOff   = "it is switched off"
)

// load makes the runner of one assignment, or says why there is none.
func (s *Set) load(l loading, a *hob.AssignedTool) (hob.ToolRunner, string) {
	if a.Off() {
		return nil, switchedOff
	}
	if !isBuiltin(a) {
		return s.loadCustom(l, a)
	}
	b := s.builtins[a.ToolName]
	if b == nil {
		return nil, noSuchBuiltin
	}
	config, err := a.Builtin.Under(a.ConfigOverride)
	if err != nil {
		return nil, messageOf(err)
	}
	bound := s.bind(b.source(s), config)
	if bound.err != nil {
		return nil, messageOf(bound.err)
	}
	tool, why := b.open(opening{
		ctx: l.ctx, set: s, grant: l.grant, numbers: l.numbers, options: bound.options,
		spec: hob.ToolSpec{
			Name: b.name, Description: described(b.description, a.Builtin), Schema: bound.schema, Kind: hob.BuiltinTool,
			Ref: "builtin:" + b.name, Recovery: b.recovery, Effect: b.effect, Parallel: b.parallel,
			Pinned: bound.pinned, FullSchema: bound.full, Rules: bound.rules,
		},
	})
	if why == noTables && a.ID == "" { // tool_ids name it
		why = fmt.Sprintf(ungranted, b.name)
	}
	return tool, why
}

// described is a builtin's description with what the workspace added to it.
func described(text string, c *hob.BuiltinChange) string {
	if c == nil || c.Suffix == "" {
		return text
	}
	return text + "\n\n" + c.Suffix
}

// loadCustom makes the runner of a custom tool.
func (s *Set) loadCustom(l loading, a *hob.AssignedTool) (hob.ToolRunner, string) {
	if a.Tool == nil {
		return nil, "it no longer exists"
	}
	if why := s.unusable(a.Tool); why != "" {
		return nil, why
	}
	bound := s.bind(customSource(a.Tool), a.ConfigOverride)
	if bound.err != nil {
		return nil, messageOf(bound.err)
	}
	if a.Tool.Type == hob.WebTool {
		return s.loadWeb(l, a.Tool, bound)
	}
	return newHTTPTool(s, l, a.Tool, bound), ""
}

// unusable says why a custom tool's row cannot be carried out as it is, "" where it can.
func (s *Set) unusable(t *hob.Tool) string {
	switch {
	case t.Type != hob.HTTPTool && t.Type != hob.WebTool:
		return fmt.Sprintf("tools of type %q are not carried out by this server", t.Type)
	case s.Has(t.Name):
		return "its name is that of a builtin tool; rename it"
	}
	if err := hob.CheckToolName(t.Name); err != nil {
		return messageOf(err)
	}
	if err := checkRow(t); err != nil {
		return messageOf(err)
	}
	return ""
}

// poolName names the connection pool of one grant: connections are never shared between agents or tools.
func poolName(g *hob.Grant, ref string) string {
	return "tool/" + string(g.Agent.Workspace) + "/" + string(g.Agent.ID) + "/" + ref
}
