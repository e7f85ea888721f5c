package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"
	_ "time/tzdata" // zones also where the machine has none

	"hob"
)

//go:embed current_time.md
var currentTimeText string

func init() {
	add(builtin{
		name:        "current_time",
		description: currentTimeText,
		schema: json.RawMessage(`{"type":"object","properties":{` +
			`"timezone":{"type":"string","description":"IANA time zone such as Europe/Berlin or America/New_York; UTC when left out"}` +
			`},"additionalProperties":false}`),
		effect: hob.EffectRead, recovery: hob.RecoverRead, parallel: true,
		open: func(o opening) (hob.ToolRunner, string) {
			return &currentTime{spec: o.spec, clock: o.set.deps.Clock}, ""
		},
	})
}

// currentTime tells the time: models do not know it.
type currentTime struct {
	spec  hob.ToolSpec
	clock hob.Clock
}

type timeAnswer struct {
	UTC      string `json:"utc"`
	Local    string `json:"local"`
	Timezone string `json:"timezone"`
	Weekday  string `json:"weekday"` // in the time zone
}

// Spec describes the tool.
func (t *currentTime) Spec() hob.ToolSpec { return t.spec }

// Call answers the time to the second.
func (t *currentTime) Call(ctx context.Context, c hob.Call) (hob.Result, error) {
	if err := cancelled(ctx, t.spec.Name); err != nil {
		return hob.Result{}, err
	}
	var in struct {
		Timezone string `json:"timezone"`
	}
	if err := decode(c.Arguments, &in); err != nil {
		return refused("%s", messageOf(err)), nil
	}
	zone, ok := zoneOf(in.Timezone)
	if !ok {
		return errorJSON("unknown time zone %q; use an IANA name such as Europe/Berlin", shorten(in.Timezone)), nil
	}
	now := t.clock()
	local := now.In(zone)
	return hob.Result{Text: string(encode(timeAnswer{
		UTC: now.UTC().Format(time.RFC3339), Local: local.Format(time.RFC3339),
		Timezone: zone.String(), Weekday: local.Weekday().String(),
	}))}, nil
}

// zoneOf finds a time zone by its IANA name; no name means UTC. "Local" is none: it would tell where the server stands.
func zoneOf(name string) (*time.Location, bool) {
	if name == "" {
		return time.UTC, true
	}
	if name == "Local" {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}
