package fakeai

import (
	"slices"
	"strings"
)

// searchTool is the type of Anthropic's own web search.
const searchTool = "web_search_20250305"

// checkServerSearch checks the bounds of a search.
func checkServerSearch(at int, t messagesTool) error {
	if len(t.Allowed) > 0 && len(t.Blocked) > 0 {
		return invalid("", "tools.%d.%s: only one of allowed_domains and blocked_domains may be given", at, searchTool)
	}
	if t.MaxUses != nil && *t.MaxUses < 1 {
		return invalid("", "tools.%d.%s.max_uses: Input should be greater than 0", at, searchTool)
	}
	for _, d := range slices.Concat(t.Allowed, t.Blocked) {
		if d == "" || strings.Contains(d, "://") {
			return invalid("", "tools.%d.%s: '%s' is not a valid domain", at, searchTool, d)
		}
	}
	return nil
}

// search checks a search that is sent back.
func (s *turnState) search(at, block int, b messagesBlock) error {
	switch {
	case !s.p.Search:
		return invalid("", "messages.%d.content.%d: `server_tool_use` of a tool that is not among the tools", at, block)
	case s.served != "":
		return invalid("", "messages.%d: `web_search` tool use with id `%s` was found without a corresponding `web_search_tool_result` block", at, s.served)
	case !strings.HasPrefix(b.ID, "srvtoolu_") || b.Name != "web_search" || !object(b.Input):
		return invalid("", "messages.%d.content.%d.server_tool_use: invalid", at, block)
	}
	s.served = b.ID
	return nil
}
