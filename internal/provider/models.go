package provider

import "strings"

// DefaultWindow is the context window of models the table does not know, in tokens.
const DefaultWindow = 128_000

// DefaultMaxOutput bounds an answer of models the table does not know, where a provider wants a bound. What is cut there
// is continued by the caller.
const DefaultMaxOutput = 16_384

// openaiDescription is how long OpenAI lets a tool's description be, in characters.
const openaiDescription = 1_024

// thinking is how a model of Anthropic's is told to think.
type thinking int

const (
	thinkNever    thinking = iota
	thinkBudget            // {"type":"enabled","budget_tokens":n}
	thinkAdaptive          // {"type":"adaptive"} with output_config.effort
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
	{prefix: "gpt-3.5", window: 16_385, description: openaiDescription},
	{prefix: "gpt-4", window: 8_192, description: openaiDescription},
	{prefix: "gpt-4-32k", window: 32_768, description: openaiDescription},
	{prefix: "gpt-4-turbo", window: 128_000, description: openaiDescription},
	{prefix: "gpt-4-1106", window: 128_000, description: openaiDescription},
	{prefix: "gpt-4-0125", window: 128_000, description: openaiDescription},
	{prefix: "gpt-4o", window: 128_000, description: openaiDescription},
	{prefix: "gpt-4.1", window: 1_047_576, description: openaiDescription},
	{prefix: "gpt-4.5", window: 128_000, description: openaiDescription},
	{prefix: "gpt-5", window: 400_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortMinimal, system: "developer", silent: true},
	{prefix: "gpt-5.", window: 400_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortNone, system: "developer", silent: true},
	{prefix: "gpt-5-chat", window: 128_000, description: openaiDescription, completionTokens: true},
	{prefix: "gpt-oss", window: 131_072, effort: effortClassic},
	{prefix: "o1", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true},
	{prefix: "o1-mini", window: 128_000, description: openaiDescription, completionTokens: true, noTemperature: true, system: "user", silent: true},
	{prefix: "o1-preview", window: 128_000, description: openaiDescription, completionTokens: true, noTemperature: true, system: "user", silent: true},
	{prefix: "o3", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true},
	{prefix: "o4", window: 200_000, description: openaiDescription, completionTokens: true, noTemperature: true, effort: effortClassic, system: "developer", silent: true},

	{prefix: "claude-", window: 200_000, output: 16_384, thinking: thinkAdaptive, noTemperature: true},
	{prefix: "claude-2", window: 100_000, output: 4_096},
	{prefix: "claude-3", window: 200_000, output: 4_096},
	{prefix: "claude-3-5", window: 200_000, output: 8_192},
	{prefix: "claude-3-7", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget},
	{prefix: "claude-sonnet-4", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget},
	{prefix: "claude-sonnet-4-6", window: 200_000, output: 16_384, thinking: thinkAdaptive},
	{prefix: "claude-opus-4", window: 200_000, output: 16_384, ceiling: 32_000, thinking: thinkBudget},
	{prefix: "claude-opus-4-6", window: 200_000, output: 16_384, thinking: thinkAdaptive},
	{prefix: "claude-opus-4-7", window: 200_000, output: 16_384, thinking: thinkAdaptive, noTemperature: true},
	{prefix: "claude-opus-4-8", window: 200_000, output: 16_384, thinking: thinkAdaptive, noTemperature: true},
	{prefix: "claude-haiku-4-5", window: 200_000, output: 16_384, ceiling: 64_000, thinking: thinkBudget},

	{prefix: "gemini-", window: 1_048_576},
	{prefix: "gemma-3", window: 131_072},
	{prefix: "llama-3", window: 131_072},
	{prefix: "llama3", window: 8_192},
	{prefix: "llama3.", window: 131_072},
	{prefix: "llama-4", window: 1_048_576},
	{prefix: "mistral-small", window: 131_072},
	{prefix: "mistral-7b", window: 32_768},
	{prefix: "mixtral-8x7b", window: 32_768},
	{prefix: "codestral", window: 262_144},
	{prefix: "deepseek-chat", window: 131_072},
	{prefix: "deepseek-reasoner", window: 131_072, silent: true, echo: true},
	{prefix: "deepseek-r1", window: 131_072, silent: true},
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
