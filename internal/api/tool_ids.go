package api

import (
	"slices"
	"strings"

	"hob"
)

// maxToolIDs is how many tools an agent's tool_ids may name.
const maxToolIDs = 128

// checkToolIDs gives a list of tools as it is kept: each once, custom ones by their ids, nil for null. Names and ids that are no tool's are refused
// when they are written; what becomes of a tool later is another matter, see lostTools.
func (c *call) checkToolIDs(ids []string) (list *[]string, err error) {
	if ids == nil {
		return list, nil
	}
	custom, err := c.s.Store.Tools(c.Context(), c.by)
	if err != nil {
		return nil, err
	}
	kept := make([]string, 0, len(ids))
	var unknown []string
	for _, id := range ids {
		if hob.IsUUID(id) {
			id = strings.ToLower(id)
		} else if t := toolNamed(custom, id); t != nil && !c.s.isBuiltin(id) {
			id = string(t.ID)
		}
		known := c.s.isBuiltin(id) || slices.ContainsFunc(custom, func(t hob.Tool) bool { return string(t.ID) == id })
		switch {
		case !known:
			unknown = append(unknown, shown(id))
		case !slices.Contains(kept, id):
			kept = append(kept, id)
		}
	}
	switch more := len(unknown) - maxWarned; {
	case len(unknown) == 0:
	case more > 0:
		unknown = append(unknown[:maxWarned], "…")
		fallthrough
	default:
		return nil, hob.Errorf(hob.Invalid, "tool_ids names what is no tool: %s; GET /api/tools lists them",
			strings.Join(unknown, ", ")).WithCode("unknown_tool").With("field", "tool_ids")
	}
	if len(kept) > maxToolIDs {
		return nil, hob.Errorf(hob.Invalid, "tool_ids must name at most %d tools", maxToolIDs).With("field", "tool_ids")
	}
	return &kept, nil
}
