package provider

import "regexp"

// tooLong are the sentences with which vendors refuse a prompt that is too long and which have no typed code: Anthropic,
// Gemini, vLLM, llama.cpp, Mistral, Groq. Each is told by its wording and its numbers together, so that a message that
// only quotes a number or a word is not taken for one; only refusals as invalid are looked at.
var tooLong = regexp.MustCompile(`(?i)` +
	`\bprompt is too long: \d+ tokens > \d+` +
	`|\binput token count \(?\d+\)? exceeds the maximum number of tokens allowed` +
	`|\bmaximum context length is \d+ tokens` +
	`|\binput length and .max_tokens. exceed context limit: \d+` +
	`|\bexceeds? the available context size` +
	`|\bprompt contains \d+ tokens .*too large for model with \d+ maximum context length` +
	`|\breduce the length of the messages or completion`)

// exceedContext is llama.cpp's type of the same error.
const exceedContext = "exceed_context_size_error"

func saysTooLong(e vendorError) bool {
	return e.Type == exceedContext || e.Code == exceedContext || tooLong.MatchString(e.Message)
}
