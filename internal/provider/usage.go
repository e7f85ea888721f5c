package provider

import "hob"

// maxTokens is more than any model reads or writes; a count beyond it is a fault of the server's.
const maxTokens = 1 << 30

// plausible puts reported counts in order, and is nil where they cannot be true: no count is better than one that would
// end a run for its budget. The parts of a count are never more than it, and the total is never less than both.
func plausible(u *hob.Usage) *hob.Usage {
	for _, n := range []int64{u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens} {
		if n < 0 || n > maxTokens {
			return nil
		}
	}
	apart := u.ReasoningTokens > 0 && u.TotalTokens == u.PromptTokens+u.CompletionTokens+u.ReasoningTokens
	if apart || u.ReasoningTokens > u.CompletionTokens { // some servers count thoughts beside the answer
		u.CompletionTokens += u.ReasoningTokens
	}
	u.CachedTokens = min(u.CachedTokens, u.PromptTokens)
	u.TotalTokens = max(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
	return u
}
