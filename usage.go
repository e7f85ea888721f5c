package hob

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Usage counts tokens and what they cost, summed over model calls.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"` // CachedTokens included
	CompletionTokens int64 `json:"completion_tokens"`
	ReasoningTokens  int64 `json:"reasoning_tokens"` // part of CompletionTokens
	CachedTokens     int64 `json:"cached_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	Cost             Money `json:"cost"` // in US dollars; calls of models without a known price count nothing
}

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		PromptTokens:     u.PromptTokens + v.PromptTokens,
		CompletionTokens: u.CompletionTokens + v.CompletionTokens,
		ReasoningTokens:  u.ReasoningTokens + v.ReasoningTokens,
		CachedTokens:     u.CachedTokens + v.CachedTokens,
		TotalTokens:      u.TotalTokens + v.TotalTokens,
		Cost:             u.Cost + v.Cost,
	}
}

// Money is an amount of US dollars in billionths, so that the price of a single token is exact and sums do not drift. In
// JSON it is a number of dollars.
type Money int64

// Dollar is one US dollar.
const Dollar Money = 1e9

// Dollars makes an amount of a number of dollars.
func Dollars(n float64) Money { return Money(math.Round(n * float64(Dollar))) }

// String writes the amount in dollars, without needless zeros: 0.0125.
func (m Money) String() string {
	sign := ""
	if m < 0 {
		sign, m = "-", -m
	}
	s := sign + strconv.FormatInt(int64(m/Dollar), 10)
	if rest := int64(m % Dollar); rest != 0 {
		s += "." + strings.TrimRight(strconv.FormatInt(int64(Dollar)+rest, 10)[1:], "0")
	}
	return s
}

// MarshalJSON writes a number of dollars.
func (m Money) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON reads a number of dollars.
func (m *Money) UnmarshalJSON(b []byte) error {
	var n float64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*m = Dollars(n)
	return nil
}

// Price is what a model costs, in US dollars for a million tokens.
type Price struct {
	Input  float64  `json:"input"`
	Output float64  `json:"output"`
	Cached *float64 `json:"cached_input,omitempty"` // of prompt tokens that the provider had cached; as Input where absent
}

// Cost is the price of a use.
func (p Price) Cost(u Usage) Money {
	cached := p.Input
	if p.Cached != nil {
		cached = *p.Cached
	}
	hit := min(u.CachedTokens, u.PromptTokens)
	// Dollars a million tokens are thousands of billionths a token.
	return Money(math.Round(1000 * (float64(u.PromptTokens-hit)*p.Input + float64(hit)*cached + float64(u.CompletionTokens)*p.Output)))
}

// The components that use models.
const (
	ComponentRun        = "run"
	ComponentCompaction = "compaction"
	ComponentVision     = "vision" // descriptions of images for tools
)

// The actions of the ledger. Model calls carry tokens; the others are counted.
const (
	ActionModelCall = "llm_call"
	ActionRun       = "agent_run"       // a completed run
	ActionToolCall  = "agent_tool_call" // a tool call that was carried out and has no action of its own

	ActionCodeExecute            = "agent_tool_code_execute"
	ActionWebSearch              = "web_search"
	ActionWebSearchDeep          = "web_search_deep"
	ActionWebSearchDeepReasoning = "web_search_deep_reasoning"
	ActionWebScrape              = "web_scrape"
)

// UsageEntry is a line of the usage ledger, which outlives the run it tells of.
type UsageEntry struct {
	Action    string // ActionModelCall where ""
	Quantity  int64  // of the action; 1 where 0
	Tool      string // that the action is of, by the name it was called by; "" for model calls and runs
	Component string // of a model call: run, compaction …
	Model     string
	Step      int
	Usage     Usage
	Estimated bool // the provider told no usage
	Unpriced  bool // the model's price is not known, so that Usage.Cost is nothing
}

// UsageGroup is what a report of the ledger is grouped by.
type UsageGroup string

// The groups.
const (
	ByAction    UsageGroup = "action"
	ByComponent UsageGroup = "component"
	ByAgent     UsageGroup = "agent"
	ByModel     UsageGroup = "model"
	ByTool      UsageGroup = "tool"
	ByDay       UsageGroup = "day" // in UTC, as 2006-01-02
)

// UsageFilter narrows a report. Zero values mean no bound.
type UsageFilter struct {
	Since, Until Time // of the entries: from Since on, before Until
	Agent        AgentID
	Model        string
	Run          RunID
	GroupBy      UsageGroup // "" = one row of everything
}

// UsageRow is a group of ledger entries.
type UsageRow struct {
	Key      string `json:"key"`      // the group's action, component, agent id, model, tool or day; "" without a grouping
	Quantity int64  `json:"quantity"` // of actions: runs, calls
	Calls    int64  `json:"llm_calls"`
	Usage
	EstimatedCalls int64 `json:"estimated_calls"` // model calls whose tokens are our estimate
	UnpricedCalls  int64 `json:"unpriced_calls"`  // model calls whose cost is not known and counts nothing
}
