package provider

import (
	"strings"

	"hob"
)

// listed is the list price of a vendor's models, in US dollars for a million tokens: what is asked by default, for prompts
// of ordinary length, without batches, and without what writing to a cache costs.
type listed struct {
	vendor        string
	prefix        string // of the model's name; see fits
	input, output float64
	cached        float64 // 0 = as input
}

// priceList holds list prices as the vendors published them up to the spring of 2026. Prices change: the setting
// MODEL_PRICES comes before it. A model that is missing has no known price, which is better than a wrong one.
var priceList = []listed{
	{openaiName, "gpt-3.5-turbo", 0.5, 1.5, 0},
	{openaiName, "gpt-4", 30, 60, 0},
	{openaiName, "gpt-4-32k", 60, 120, 0},
	{openaiName, "gpt-4-turbo", 10, 30, 0},
	{openaiName, "gpt-4-1106-preview", 10, 30, 0},
	{openaiName, "gpt-4-0125-preview", 10, 30, 0},
	{openaiName, "gpt-4o", 2.5, 10, 1.25},
	{openaiName, "gpt-4o-2024-05-13", 5, 15, 0},
	{openaiName, "gpt-4o-mini", 0.15, 0.6, 0.075},
	{openaiName, "chatgpt-4o-latest", 5, 15, 0},
	{openaiName, "gpt-4.1", 2, 8, 0.5},
	{openaiName, "gpt-4.1-mini", 0.4, 1.6, 0.1},
	{openaiName, "gpt-4.1-nano", 0.1, 0.4, 0.025},
	{openaiName, "gpt-4.5-preview", 75, 150, 37.5},
	{openaiName, "gpt-5", 1.25, 10, 0.125},
	{openaiName, "gpt-5-mini", 0.25, 2, 0.025},
	{openaiName, "gpt-5-nano", 0.05, 0.4, 0.005},
	{openaiName, "gpt-5-pro", 15, 120, 0},
	{openaiName, "gpt-5.1", 1.25, 10, 0.125},
	{openaiName, "gpt-5.1-codex-mini", 0.25, 2, 0.025},
	{openaiName, "gpt-5.2", 1.75, 14, 0.175},
	{openaiName, "gpt-5.2-pro", 21, 168, 0},
	{openaiName, "gpt-5.4", 2.5, 15, 0.25},
	{openaiName, "gpt-5.4-mini", 0.75, 4.5, 0.075},
	{openaiName, "gpt-5.4-nano", 0.2, 1.25, 0.02},
	{openaiName, "gpt-5.4-pro", 30, 180, 0},
	{openaiName, "o1", 15, 60, 7.5},
	{openaiName, "o1-mini", 1.1, 4.4, 0.55},
	{openaiName, "o1-pro", 150, 600, 0},
	{openaiName, "o3", 2, 8, 0.5},
	{openaiName, "o3-mini", 1.1, 4.4, 0.55},
	{openaiName, "o3-pro", 20, 80, 0},
	{openaiName, "o3-deep-research", 10, 40, 2.5},
	{openaiName, "o4-mini", 1.1, 4.4, 0.275},
	{openaiName, "o4-mini-deep-research", 2, 8, 0.5},

	{anthropicName, "claude-3-haiku", 0.25, 1.25, 0.03},
	{anthropicName, "claude-3-sonnet", 3, 15, 0.3},
	{anthropicName, "claude-3-opus", 15, 75, 1.5},
	{anthropicName, "claude-3-5-haiku", 0.8, 4, 0.08},
	{anthropicName, "claude-3-5-sonnet", 3, 15, 0.3},
	{anthropicName, "claude-3-7-sonnet", 3, 15, 0.3},
	{anthropicName, "claude-haiku-4-5", 1, 5, 0.1},
	{anthropicName, "claude-sonnet-4", 3, 15, 0.3},
	{anthropicName, "claude-sonnet-4-0", 3, 15, 0.3},
	{anthropicName, "claude-sonnet-4-5", 3, 15, 0.3},
	{anthropicName, "claude-sonnet-4-6", 3, 15, 0.3},
	{anthropicName, "claude-opus-4", 15, 75, 1.5},
	{anthropicName, "claude-opus-4-0", 15, 75, 1.5},
	{anthropicName, "claude-opus-4-1", 15, 75, 1.5},
	{anthropicName, "claude-opus-4-5", 5, 25, 0.5},
	{anthropicName, "claude-opus-4-6", 5, 25, 0.5},
	{anthropicName, "claude-opus-4-7", 5, 25, 0.5},
	{anthropicName, "claude-opus-4-8", 5, 25, 0.5},

	{geminiName, "gemini-1.5-flash", 0.075, 0.3, 0},
	{geminiName, "gemini-1.5-flash-8b", 0.0375, 0.15, 0},
	{geminiName, "gemini-1.5-pro", 1.25, 5, 0},
	{geminiName, "gemini-2.0-flash", 0.1, 0.4, 0.025},
	{geminiName, "gemini-2.0-flash-lite", 0.075, 0.3, 0},
	{geminiName, "gemini-2.5-flash", 0.3, 2.5, 0.03},
	{geminiName, "gemini-2.5-flash-lite", 0.1, 0.4, 0.01},
	{geminiName, "gemini-2.5-pro", 1.25, 10, 0.125},
	{geminiName, "gemini-3-flash", 0.5, 3, 0.05},
	{geminiName, "gemini-3-pro", 2, 12, 0.2},
	{geminiName, "gemini-3.1-pro", 2, 12, 0.2},

	{"deepseek", "deepseek-chat", 0.28, 0.42, 0.028},
	{"deepseek", "deepseek-reasoner", 0.28, 0.42, 0.028},

	{"mistral", "mistral-large-2411", 2, 6, 0},
	{"mistral", "mistral-large-2512", 0.5, 1.5, 0},
	{"mistral", "mistral-large-latest", 0.5, 1.5, 0},
	{"mistral", "mistral-medium", 0.4, 2, 0},
	{"mistral", "mistral-small", 0.1, 0.3, 0},
	{"mistral", "open-mistral-nemo", 0.15, 0.15, 0},
	{"mistral", "pixtral-large", 2, 6, 0},
	{"mistral", "codestral", 0.3, 0.9, 0},
	{"mistral", "devstral-medium", 0.4, 2, 0},
	{"mistral", "magistral-medium", 2, 5, 0},
	{"mistral", "magistral-small", 0.5, 1.5, 0},

	{"xai", "grok-3", 3, 15, 0.75},
	{"xai", "grok-3-mini", 0.3, 0.5, 0.075},
	{"xai", "grok-4", 3, 15, 0.75},
	{"xai", "grok-4-fast", 0.2, 0.5, 0.05},
	{"xai", "grok-4-1-fast", 0.2, 0.5, 0.05},
	{"xai", "grok-4.20", 1.25, 2.5, 0.2},
	{"xai", "grok-4.3", 1.25, 2.5, 0.2},
	{"xai", "grok-code-fast-1", 0.2, 1.5, 0.02},
}

// resold are the vendors whose models OpenRouter sells at their list price, by the first part of its names. Models with
// open weights are left out: many serve them, each at a price of its own.
var resold = map[string]string{
	"openai": openaiName, "anthropic": anthropicName, "google": geminiName, "x-ai": "xai",
}

// freeMark ends the names of what OpenRouter gives away.
const freeMark = ":free"

// listPrice is the list price of a vendor's model, nil where it is not known.
func listPrice(vendor, model string) *hob.Price {
	model = strings.ToLower(model)
	if vendor == openrouterName {
		if strings.HasSuffix(model, freeMark) {
			return &hob.Price{}
		}
		var first string
		first, model, _ = strings.Cut(model, "/")
		vendor = resold[first]
	}
	if vendor == anthropicName {
		model = strings.ReplaceAll(model, ".", "-") // OpenRouter writes claude-sonnet-4.5
	}
	var best *listed
	for i := range priceList {
		l := &priceList[i]
		if l.vendor == vendor && l.fits(model) && (best == nil || len(l.prefix) > len(best.prefix)) {
			best = l
		}
	}
	if best == nil {
		return nil
	}
	price := &hob.Price{Input: best.input, Output: best.output}
	if best.cached > 0 {
		cached := best.cached
		price.Cached = &cached
	}
	return price
}

// fits says whether a model is one of the listed ones: the name itself, or the name with a date, a build or a mark behind
// a hyphen. Another version is another model, whose price may be any: gpt-5 is not gpt-5.9, and claude-opus-4 is not
// claude-opus-4-9. Another size is in the list under a longer name, which is taken before this one.
func (l *listed) fits(model string) bool {
	rest, ok := strings.CutPrefix(model, l.prefix)
	if !ok || rest == "" {
		return ok
	}
	if rest[0] == ':' || rest[0] == '@' {
		return true
	}
	if rest[0] != '-' {
		return false
	}
	word, _, _ := strings.Cut(rest[1:], "-")
	const version = 2 // digits of a version at most; dates and builds have more
	return len(word) > version || strings.Trim(word, "0123456789") != ""
}
