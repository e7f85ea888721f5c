package settings

import (
	"slices"

	"hob"
)

// The keys. Readers name them as text, since they do not import this package; a test per key shows that the reader exists.
const (
	AgentDefaultModel     = "AGENT_DEFAULT_MODEL"
	CustomToolTimeout     = "CUSTOM_TOOL_TIMEOUT"
	MaxToolOutputLength   = "MAX_TOOL_OUTPUT_LENGTH"
	DefaultMaxResultChars = "DEFAULT_MAX_RESULT_CHARS"
	ModelCallTimeout      = "MODEL_CALL_TIMEOUT"
	CompactionModel       = "COMPACTION_MODEL"
	CompactionMaxTokens   = "COMPACTION_MAX_TOKENS"
	CompactionKeepTurns   = "COMPACTION_KEEP_TURNS"
	ModelPrices           = "MODEL_PRICES"

	ExaAPIKey          = "EXA_API_KEY"
	ExaRateLimit       = "EXA_RATE_LIMIT_PER_MINUTE"
	FirecrawlAPIKey    = "FIRECRAWL_API_KEY"
	FirecrawlAPIBase   = "FIRECRAWL_API_BASE"
	FirecrawlRateLimit = "FIRECRAWL_RATE_LIMIT_PER_MINUTE"
	WebScrapeMaxChars  = "WEB_SCRAPE_MAX_CHARS"
	WebScrapeMaxImages = "WEB_SCRAPE_MAX_IMAGES"
	VisionModel        = "VISION_MODEL"
	VisionTimeout      = "VISION_TIMEOUT"
	VisionMaxWorkers   = "VISION_MAX_WORKERS"
)

// MaxKey is the longest key or address of an outside service, in bytes.
const MaxKey = 2048

// The categories.
const (
	agents     = "agents"
	tools      = "tools"
	compaction = "compaction"
	usage      = "usage"
)

// Category is a group of keys.
type Category struct{ Name, Label string }

// Categories lists the categories in the order in which they are shown.
func Categories() []Category {
	return []Category{
		{agents, "Agents"},
		{tools, "Tools"},
		{compaction, "Context compaction"},
		{usage, "Usage and cost"},
	}
}

// Key describes one setting.
type Key struct {
	Name        string
	Category    string
	Subcategory string
	Label       string
	Description string
	Type        hob.SettingType
	Default     string   // in text form
	Min, Max    *float64 // of numbers
	MaxBytes    int      // of text; MaxText where 0
	Choices     []string // nil = any
	JSON        bool     // text only: a JSON object, which may be sent as one and is kept as compact text
	Secret      bool     // text only: sealed at rest, reads as a mask
	Receives    string   // of an address: the secret that is sent to it, and that does not follow it elsewhere
	Advanced    bool
	Env         string // the operator's variable that stands in where a workspace set nothing; "" = HOB_ and the name
}

// Registry lists every key in the order in which they are shown. No key is here that nothing reads: a new one comes with its
// reader, and with a proof in the tests of cmd/hob, which run the program with and without it.
func Registry() []Key {
	return slices.Concat(agentKeys(), toolKeys(), compactionKeys(), usageKeys())
}

func agentKeys() []Key {
	return []Key{
		{
			Name: AgentDefaultModel, Category: agents, Label: "Default model", Type: hob.StringSetting, MaxBytes: hob.MaxName,
			Description: "Model of agents that are made without one; empty: that of the first configured provider",
		},
		{
			Name: CustomToolTimeout, Category: agents, Label: "Time of custom tools", Type: hob.IntSetting,
			Default: "30", Min: number(5), Max: number(300),
			Description: "Seconds that a call of a custom HTTP tool may take which names no timeout of its own",
		},
		{
			Name: MaxToolOutputLength, Category: agents, Label: "Length of HTTP answers", Type: hob.IntSetting,
			Default: "10000", Min: number(1000), Max: number(200_000), Advanced: true,
			Description: "Characters of an answer to a custom HTTP tool or to http_request that the model is shown",
		},
		{
			Name: DefaultMaxResultChars, Category: agents, Label: "Length of tool results", Type: hob.IntSetting,
			Default: "50000", Min: number(1000), Max: number(500_000), Advanced: true,
			Description: "Characters of any tool's result that the model is shown",
		},
		{
			Name: ModelCallTimeout, Category: agents, Label: "Time of a model call", Type: hob.IntSetting,
			Default: "600", Min: number(10), Max: number(3600), Advanced: true,
			Description: "Seconds that one model call may take, its retries included",
		},
	}
}

// toolKeys are what web_search and web_scrape work with. The operator's variables of services have the names that the
// services themselves give them.
func toolKeys() []Key {
	const search, scrape, vision = "web search", "web scraping", "images"
	return []Key{
		{
			Name: ExaAPIKey, Category: tools, Subcategory: search, Label: "Exa key", Type: hob.StringSetting, MaxBytes: MaxKey, Secret: true,
			Env: ExaAPIKey, Description: "Key for Exa, which web_search asks; without one the tool answers that it is missing",
		},
		{
			Name: ExaRateLimit, Category: tools, Subcategory: search, Label: "Searches a minute", Type: hob.IntSetting,
			Default: "60", Min: number(1), Max: number(5000), Advanced: true,
			Description: "Requests to Exa in a minute, counted by each server for itself; a further one waits up to 10 seconds for its turn",
		},
		{
			Name: FirecrawlAPIKey, Category: tools, Subcategory: scrape, Label: "Firecrawl key", Type: hob.StringSetting, MaxBytes: MaxKey, Secret: true,
			Env: FirecrawlAPIKey, Description: "Key for Firecrawl, which web_scrape asks; without one Hob reads pages by itself, and no scripts of theirs are run",
		},
		{
			Name: FirecrawlAPIBase, Category: tools, Subcategory: scrape, Label: "Firecrawl address", Type: hob.StringSetting, MaxBytes: MaxKey,
			Default: "https://api.firecrawl.dev/v1", Advanced: true, Env: FirecrawlAPIBase, Receives: FirecrawlAPIKey,
			Description: "Address of Firecrawl, with the version; one of a workspace must be on the public internet and gets the workspace's own key only",
		},
		{
			Name: FirecrawlRateLimit, Category: tools, Subcategory: scrape, Label: "Pages a minute", Type: hob.IntSetting,
			Default: "30", Min: number(1), Max: number(5000), Advanced: true,
			Description: "Requests to Firecrawl in a minute, counted by each server for itself; a further one waits up to 10 seconds for its turn",
		},
		{
			Name: WebScrapeMaxChars, Category: tools, Subcategory: scrape, Label: "Length of a page", Type: hob.IntSetting,
			Default: "200000", Min: number(10_000), Max: number(500_000), Advanced: true,
			Description: "Characters of a page that the model is shown; no more than DEFAULT_MAX_RESULT_CHARS",
		},
		{
			Name: WebScrapeMaxImages, Category: tools, Subcategory: vision, Label: "Images of a page", Type: hob.IntSetting,
			Default: "10", Min: number(1), Max: number(50), Advanced: true,
			Description: "Images of one page that are described",
		},
		{
			Name: VisionModel, Category: tools, Subcategory: vision, Label: "Model for images", Type: hob.StringSetting, MaxBytes: hob.MaxName,
			Default: "gpt-4.1-mini", Description: "Model that describes images for web_scrape",
		},
		{
			Name: VisionTimeout, Category: tools, Subcategory: vision, Label: "Time of an image", Type: hob.IntSetting,
			Default: "30", Min: number(10), Max: number(120), Advanced: true,
			Description: "Seconds that fetching and describing one image may take; all images of a page together 120",
		},
		{
			Name: VisionMaxWorkers, Category: tools, Subcategory: vision, Label: "Images at once", Type: hob.IntSetting,
			Default: "3", Min: number(1), Max: number(10), Advanced: true,
			Description: "Images of one page that are described at the same time",
		},
	}
}

func compactionKeys() []Key {
	return []Key{
		{
			Name: CompactionModel, Category: compaction, Label: "Model for summaries", Type: hob.StringSetting, MaxBytes: hob.MaxName,
			Description: "Model that sums up what no longer fits into the context; empty: a lightweight model of the run's provider, same: the run's own",
		},
		{
			Name: CompactionMaxTokens, Category: compaction, Label: "Length of a summary", Type: hob.IntSetting,
			Default: "8000", Min: number(500), Max: number(32_000), Advanced: true,
			Description: "Tokens that a summary may have",
		},
		{
			Name: CompactionKeepTurns, Category: compaction, Label: "Turns kept as they are", Type: hob.IntSetting,
			Default: "3", Min: number(1), Max: number(50), Advanced: true,
			Description: "Newest turns of a conversation, the one under way included, whose tool results are not left out to save room; beside a summary they stay as they are as far as they fit",
		},
	}
}

func usageKeys() []Key {
	return []Key{
		{
			Name: ModelPrices, Category: usage, Label: "Prices of models", Type: hob.StringSetting, JSON: true,
			Description: "JSON object of prices by model, in US dollars for a million tokens, sent as an object or as its text; they come before the built-in ones",
		},
	}
}

func number(n float64) *float64 { return &n }

// variable is the environment variable that stands in where a workspace set nothing.
func (k Key) variable() string {
	if k.Env != "" {
		return k.Env
	}
	return "HOB_" + k.Name
}
