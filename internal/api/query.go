package api

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"hob"
)

// Bounds of lists.
const (
	defaultLimit    = 50
	maxLimit        = 200
	maxRunsLimit    = 100
	maxSearchRunes  = 200
	maxListedOffset = 1 << 40
)

// number reads a whole number from the query; absent or garbled ones give the default, others are brought into bounds.
func (c *call) number(name string, def, least, most int) int {
	n, err := strconv.Atoi(c.queryValue(name))
	if err != nil {
		return def
	}
	return min(max(n, least), most)
}

// queryValue is a parameter of the query.
func (c *call) queryValue(name string) string {
	if c.URL.RawQuery == "" {
		return ""
	}
	return c.URL.Query().Get(name)
}

// knownQuery refuses parameters that are not among the known ones: a report with a misspelt filter is a wrong one.
func (c *call) knownQuery(known []param) error {
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.name
	}
	for _, name := range slices.Sorted(maps.Keys(c.URL.Query())) {
		if !slices.Contains(names, name) {
			return hob.Errorf(hob.Invalid, "unknown parameter %s; there are %s", shown(name), strings.Join(names, ", ")).
				WithCode("unknown_parameter").With("field", clip(name)).With("allowed", names)
		}
	}
	return nil
}

// search reads a search text: trimmed, cut to its first characters.
func (c *call) search(name string) (string, error) {
	q := strings.TrimSpace(c.queryValue(name))
	if !utf8.ValidString(q) || strings.ContainsRune(q, 0) {
		return "", hob.Errorf(hob.Invalid, "%s must be valid text", name).With("field", name)
	}
	n := 0
	for i := range q {
		if n == maxSearchRunes {
			return q[:i], nil
		}
		n++
	}
	return q, nil
}

// list reads the parameters that lists share. sorts are the allowed orders.
func (c *call) list(sorts ...string) (hob.ListOptions, error) {
	o := hob.ListOptions{
		Limit:  c.number("limit", defaultLimit, 1, maxLimit),
		Offset: c.number("offset", 0, 0, maxListedOffset),
		Sort:   c.queryValue("sort"),
	}
	if o.Sort != "" && !slices.Contains(sorts, o.Sort) {
		return o, hob.Errorf(hob.Invalid, "Invalid sort '%s'. Allowed: %s", clip(o.Sort), strings.Join(sorts, ", ")).
			With("field", "sort")
	}
	switch order := c.queryValue("order"); order {
	case "", "desc":
	case "asc":
		o.Asc = true
	default:
		return o, hob.Errorf(hob.Invalid, "Invalid order '%s'. Allowed: asc, desc", clip(order)).With("field", "order")
	}
	var err error
	o.Query, err = c.search("q")
	return o, err
}

func clip(s string) string {
	if len(s) > maxNameSeen {
		s = s[:maxNameSeen] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// moment reads a time from the query: RFC 3339, or a day, which includes all of it where it is the end of a range.
func (c *call) moment(name string, end bool) (hob.Time, error) {
	v := c.queryValue(name)
	if v == "" {
		return hob.Time{}, nil
	}
	if t, err := time.Parse(time.DateOnly, v); err == nil {
		if end {
			t = t.AddDate(0, 0, 1).Add(-time.Microsecond)
		}
		return hob.Time{Time: t}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return hob.Time{}, hob.Errorf(hob.Invalid, "%s must be a day (2006-01-02) or a time (RFC 3339)", name).With("field", name)
	}
	return hob.Time{Time: t.UTC()}, nil
}

// count reads an optional whole number that must be one.
func (c *call) count(name string) (*int64, error) {
	v := c.queryValue(name)
	if v == "" {
		return nil, nil //nolint:nilnil // no bound
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return nil, hob.Errorf(hob.Invalid, "%s must be a whole number", name).With("field", name)
	}
	return &n, nil
}

// The ids in paths. One that cannot exist is answered as one that does not.

func (c *call) agentID() (hob.AgentID, error) {
	id := c.PathValue("id")
	if !hob.IsUUID(id) {
		return "", hob.Absent(hob.AgentObject)
	}
	return hob.AgentID(strings.ToLower(id)), nil
}

// toolID is the custom tool that the path names, by its id or else by its name.
func (c *call) toolID() (hob.ToolID, error) {
	id := c.PathValue("id")
	if hob.IsUUID(id) {
		return hob.ToolID(strings.ToLower(id)), nil
	}
	custom, err := c.s.Store.Tools(c.Context(), c.by)
	if err != nil {
		return "", err
	}
	if t := toolNamed(custom, id); t != nil {
		return t.ID, nil
	}
	return "", hob.Absent(hob.ToolObject)
}

// toolNamed finds a custom tool by its name, nil where there is none.
func toolNamed(custom []hob.Tool, name string) *hob.Tool {
	if i := slices.IndexFunc(custom, func(t hob.Tool) bool { return t.Name == name }); i >= 0 {
		return &custom[i]
	}
	return nil
}

func (c *call) sessionID() (hob.SessionID, error) {
	id := c.PathValue("session_id")
	if !plainText(id, hob.MaxSessionID) {
		return "", hob.Absent(hob.SessionObject)
	}
	return hob.SessionID(id), nil
}

// maxRunID is above the length of every run id.
const maxRunID = 64

func (c *call) runID() (hob.RunID, error) {
	id := c.PathValue("run_id")
	if !plainID(id) || len(id) > maxRunID {
		return "", absentRun()
	}
	return hob.RunID(id), nil
}

func absentRun() error { return hob.Errorf(hob.NotFound, "Run not found").WithCode("run_not_found") }
