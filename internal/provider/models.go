package provider

import "strings"

// DefaultWindow is the context window of models the table does not know, in tokens.
const DefaultWindow = 128_000

// DefaultMaxOutput bounds an answer of models the table does not know, where a provider wants a bound. What is cut there
// is continued by the caller.
const DefaultMaxOutput = 16_384

// openaiDescription is how long OpenAI lets a tool's description be, in characters.
const openaiDescription = 1_024

// thinking is how a model of Anthropic's or Google's is told to think.
type thinking int

const (
	thinkNever    thinking = iota
	thinkBudget            // a number of tokens
	thinkAdaptive          // Anthropic's {"type":"adaptive"} with output_config.effort
	thinkLevel             // Google's thinkingLevel, a word
)

// formKind is what a family does with a wanted form of answer.
type formKind int

const (
	formNative formKind = iota // takes a JSON Schema
	formObject                 // promises JSON, but takes no schema: that is said in words
	formWords                  // takes neither: both are said in words
)

// family is what a group of models needs. The zero value of a field is the lenient default.
type family struct {
	prefix  string // of the model's name behind its last slash
	window  int
	output  int // tokens of one answer by default
	ceiling int // tokens of one answer at most, thoughts included; 0 = not known

	completionTokens bool   // max_completion_tokens instead of max_tokens
	description      int    // characters of a tool's description at most; 0 = no limit
	noTemperature    bool   // refuses any temperature but its own
	effort           effort // which reasoning_effort it knows
	system           string // role of the instructions: "" = system
	silent           bool   // may think for minutes before the first byte
	echo             bool   // wants its reasoning_content back within a turn
	thinking         thinking
	leastBudget      int    // tokens of thinking that cannot be switched off
	levels           string // words of thinkLevel, the least first
	signed           bool   // refuses a turn under way whose calls lack their signature
	form             formKind
	formAlone        bool   // takes a form only where no tools are offered
	textOnly         bool   // takes no images
	search           bool   // searches the web itself where it is asked to
	quirks           quirks // of one model at one endpoint, from its profile
}

type effort int

const (
	effortUnknown effort = iota // the field is not sent
	effortClassic               // low, medium, high
	effortMinimal               // minimal, low, medium, high
	effortNone                  // none, low, medium, high
)

// families is searched for the longest prefix that fits.
var families = []family{
	{prefix: "gpt-3.5", window: 16_385, description: openaiDescription, form: formObject, textOnly: true},
	{prefix: "gpt-4", window: 8_192, description: openaiDescription, form: formWords, textOnly: true},
	{prefix: "gpt-4-32k", window: 32_768, description: openaiDescription, form: formWords, textOnly: true},
	{prefix: "gpt-4-turbo", window: 128_000, description: openaiDescription, form: formObject},
	{prefix: "gpt-4-1106-vision", window: 128_000, description: openaiDescription, form: formWords},
	{prefix: "gpt-4-vision", window: 128_000, description: openaiDescription, form: formWords},
	{prefix: "gpt-4-1106", window: 128_000, description: openaiDescription, form: formObject, textOnly: true},
	{prefix: "gpt-4-0125", window: 128_000, description: openaiDescription, form: formObject, textOnly: true},
	{prefix: "gpt-4o", window: 128_000, description: openaiDescription},
	{prefix: "gpt-4o-search", window: 128_000, description: openaiDescription, noTemperature: true, search: true},
	{prefix: "gpt-4o-mini-search", window: 128_000, description: openaiDescription, noTemperature: true, search: true},
	{prefix: "gpt-4.1", window: 1_047_576, description: openaiDescription},
	{prefix: "gpt-4.5", window: 128_000, description: openaiDescription},
	{prefix: "gpt-5", window: 400_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortMinimal, system: "developer", silent: true},
	{prefix: "gpt-5.", window: 400_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortNone, system: "developer", silent: true},
	{prefix: "gpt-5-chat", window: 128_000, description: openaiDescription, completionTokens: true},
	{prefix: "gpt-oss", window: 131_072, effort: effortClassic, textOnly: true},
	{prefix: "o1", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true},
	{prefix: "o1-mini", window: 128_000, description: openaiDescription, completionTokens: true, noTemperature: true, system: "user", silent: true, form: formWords, textOnly: true},
	{prefix: "o1-preview", window: 128_000, description: openaiDescription, completionTokens: true, noTemperature: true, system: "user", silent: true, form: formWords, textOnly: true},
	{prefix: "o3-mini", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true, textOnly: true},
	{prefix: "o3", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true},
	{prefix: "o4", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true},

	{prefix: "claude-", window: 200_000, output: 16_384, thinking: thinkAdaptive, noTemperature: true, search: true},
	{prefix: "claude-2", window: 100_000, output: 4_096, form: formWords, textOnly: true},
	{prefix: "claude-3", window: 200_000, output: 4_096, form: formWords},
	{prefix: "claude-3-5", window: 200_000, output: 8_192, form: formWords, search: true},
	{prefix: "claude-3-7", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget, form: formWords, search: true},
	{prefix: "claude-sonnet-4", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget, form: formWords, search: true},
	{prefix: "claude-sonnet-4-5", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget, search: true},
	{prefix: "claude-sonnet-4-6", window: 200_000, output: 16_384, thinking: thinkAdaptive, search: true},
	{prefix: "claude-opus-4", window: 200_000, output: 16_384, ceiling: 32_000, thinking: thinkBudget, form: formWords, search: true},
	{prefix: "claude-opus-4-5", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget, search: true},
	{prefix: "claude-opus-4-6", window: 200_000, output: 16_384, thinking: thinkAdaptive, search: true},
	{prefix: "claude-opus-4-7", window: 200_000, output: 16_384, thinking: thinkAdaptive, noTemperature: true, search: true},
	{prefix: "claude-opus-4-8", window: 200_000, output: 16_384, thinking: thinkAdaptive, noTemperature: true, search: true},
	{prefix: "claude-haiku-4-5", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget, search: true},

	{prefix: "gemini-", window: 1_048_576, ceiling: 65_536, thinking: thinkLevel, levels: "low high", signed: true, search: true},
	{prefix: "gemini-1.", window: 1_048_576, ceiling: 8_192, form: formObject, formAlone: true},
	{prefix: "gemini-1.5-pro", window: 2_097_152, ceiling: 8_192, form: formObject, formAlone: true},
	{prefix: "gemini-2", window: 1_048_576, ceiling: 65_536, formAlone: true, search: true},
	{prefix: "gemini-2.0", window: 1_048_576, ceiling: 8_192, form: formObject, formAlone: true, search: true},
	{prefix: "gemini-2.5-pro", window: 1_048_576, ceiling: 65_536, thinking: thinkBudget, leastBudget: 128, formAlone: true, search: true},
	{prefix: "gemini-2.5-flash", window: 1_048_576, ceiling: 65_536, thinking: thinkBudget, formAlone: true, search: true},
	{prefix: "gemini-2.5-flash-image", window: 32_768, ceiling: 32_768, form: formWords, search: true},
	{prefix: "gemini-3-flash", window: 1_048_576, ceiling: 65_536, thinking: thinkLevel, levels: "minimal low medium high", signed: true, search: true},
	{prefix: "gemini-3.1-pro", window: 1_048_576, ceiling: 65_536, thinking: thinkLevel, levels: "low medium high", signed: true, search: true},
	{prefix: "gemini-3.1-flash", window: 1_048_576, ceiling: 65_536, thinking: thinkLevel, levels: "minimal low medium high", signed: true, search: true},
	{prefix: "gemini-flash", window: 1_048_576, ceiling: 65_536, formAlone: true, search: true},
	{prefix: "gemini-pro", window: 1_048_576, ceiling: 65_536, formAlone: true, search: true},
	{prefix: "gemma-3", window: 131_072},
	{prefix: "llama-3", window: 131_072},
	{prefix: "llama3", window: 8_192},
	{prefix: "llama3.", window: 131_072},
	{prefix: "llama-4", window: 1_048_576},
	{prefix: "mistral-small", window: 131_072},
	{prefix: "mistral-7b", window: 32_768, textOnly: true},
	{prefix: "mixtral-8x7b", window: 32_768, textOnly: true},
	{prefix: "codestral", window: 262_144, textOnly: true},
	{prefix: "deepseek-chat", window: 131_072, form: formObject, textOnly: true},
	{prefix: "deepseek-reasoner", window: 131_072, silent: true, echo: true, form: formObject, textOnly: true},
	{prefix: "deepseek-r1", window: 131_072, silent: true, textOnly: true},
	{prefix: "kimi-k2", window: 131_072},
	{prefix: "kimi-k2-thinking", window: 262_144, echo: true},
	{prefix: "qwen2.5", window: 32_768},
	{prefix: "qwen3", window: 131_072},
	{prefix: "grok-3", window: 131_072},
	{prefix: "grok-3-mini", window: 131_072, effort: effortClassic},
	{prefix: "grok-4", window: 262_144, silent: true},
}

// familyOf finds what is known of a model, by its name behind the last slash.
func familyOf(model string) family {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	best := family{}
	for _, f := range families {
		if len(f.prefix) > len(best.prefix) && strings.HasPrefix(name, f.prefix) {
			best = f
		}
	}
	if best.window == 0 {
		best.window = DefaultWindow
	}
	if best.output == 0 {
		best.output = DefaultMaxOutput
	}
	return best
}
