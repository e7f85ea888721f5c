package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"hob"
)

// usageAnswer is a report of the usage ledger.
type usageAnswer struct {
	Usage   []hob.UsageRow `json:"usage"`
	Total   hob.UsageRow   `json:"total" jsonschema:"the sum of all rows"`
	GroupBy hob.UsageGroup `json:"group_by" jsonschema:"what the rows are grouped by; empty for one row of everything"`
	Since   hob.Time       `json:"since" jsonschema:"null: from the first entry on"`
	Until   hob.Time       `json:"until" jsonschema:"the entries before this; null: to the last one"`
}

// usageGroups are the values of group_by.
func usageGroups() []hob.UsageGroup {
	return []hob.UsageGroup{hob.ByAction, hob.ByComponent, hob.ByAgent, hob.ByModel, hob.ByTool, hob.ByDay}
}

// reportUsage answers what was used, of what the caller may see.
func reportUsage(c *call) error {
	f, err := c.usageFilter()
	if err != nil {
		return err
	}
	rows, err := c.s.Store.Usage(c.Context(), c.by, f)
	if err != nil {
		return err
	}
	a := usageAnswer{Usage: filled(rows), GroupBy: f.GroupBy, Since: f.Since, Until: f.Until}
	for _, r := range rows {
		a.Total.Quantity += r.Quantity
		a.Total.Calls += r.Calls
		a.Total.Usage = a.Total.Add(r.Usage)
		a.Total.EstimatedCalls += r.EstimatedCalls
		a.Total.UnpricedCalls += r.UnpricedCalls
	}
	return c.reply(http.StatusOK, a)
}

func (c *call) usageFilter() (f hob.UsageFilter, err error) {
	if err := c.knownQuery(usageQuery()); err != nil {
		return f, err
	}
	bad := func(field, must string) error {
		return hob.Errorf(hob.Invalid, "%s %s", field, must).With("field", field)
	}
	if f.Since, err = c.moment("since", false); err != nil {
		return f, err
	}
	if f.Until, err = c.until(); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until.Time) {
		return f, bad("until", "must be later than since")
	}
	if f.GroupBy = hob.UsageGroup(c.queryValue("group_by")); f.GroupBy != "" && !slices.Contains(usageGroups(), f.GroupBy) {
		return f, bad("group_by", "must be one of action, component, agent, model, tool, day")
	}
	if id := c.queryValue("agent_id"); id != "" {
		if !hob.IsUUID(id) {
			return f, bad("agent_id", "must be an agent's id, a UUID")
		}
		f.Agent = hob.AgentID(strings.ToLower(id))
	}
	if f.Model = c.queryValue("model"); f.Model != "" && !plainText(f.Model, hob.MaxName) {
		return f, bad("model", "must be text of at most 255 bytes")
	}
	if id := c.queryValue("run_id"); id != "" {
		if !plainID(id) {
			return f, bad("run_id", "must be a run's id, as in run_0123456789ab")
		}
		f.Run = hob.RunID(id)
	}
	return f, nil
}

// until reads the end of the range, which the filter leaves out: a day ends with the beginning of the next one.
func (c *call) until() (hob.Time, error) {
	v := c.queryValue("until")
	if day, err := time.Parse(time.DateOnly, v); err == nil {
		return hob.Time{Time: day.AddDate(0, 0, 1)}, nil
	}
	return c.moment("until", true)
}

func usageQuery() []param {
	return []param{
		{"since", "string", "a day or a time (RFC 3339): entries from then on"},
		{"until", "string", "a day, included, or a time: entries before it"},
		{"group_by", "string", "action, component, agent, model, tool or day (in UTC); one row of everything where absent"},
		{"agent_id", "string", "of one agent"},
		{"model", "string", "of one model, as the ledger names it"},
		{"run_id", "string", "of one run"},
	}
}
