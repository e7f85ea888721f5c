package engine

import (
	"hob"
)

// What a request is estimated at beside its texts, in tokens.
const (
	messageTokens = 4     // of the marks around a message
	imageTokens   = 1_000 // of a picture, whose size is not looked at
	schemaTokens  = 12    // of the marks around a tool
)

// defaultWindow is assumed where nobody knows a model's window.
const defaultWindow = 128_000

// window is how many tokens the run's model can read and write together.
func (p *plan) window() int {
	switch {
	case p.settings.ContextWindow != nil:
		return *p.settings.ContextWindow
	case p.model.Window > 0:
		return p.model.Window
	}
	return defaultWindow
}

// space is how a window is shared out, in tokens.
type space struct {
	window    int
	threshold int // a longer request is condensed before it is sent
	most      int // no request is longer, whatever has to go for it
}

// spaceOf leaves room for the answer and for what the estimate may be wrong about:
//
//	buffer    = min(max(13000, 8% of the window), 25% of the window)
//	reserve   = max(max_tokens, 8000), at most window − buffer − 25% of the window
//	threshold = window − reserve − buffer
func spaceOf(window, maxTokens int) space {
	buffer := min(max(13_000, window*8/100), window/4)
	reserve := min(max(maxTokens, 8000), window-buffer-window/4)
	s := space{window: window, threshold: window - reserve - buffer}
	s.most = max(s.threshold, window-min(max(maxTokens, window/8), reserve)-buffer/2)
	return s
}

// historyBudget is how many characters of earlier turns are read: what a summary can take in, but no more than a process
// may keep of one session.
func historyBudget(window int) int {
	const charsPerToken, most = 4, 4 << 20
	return min(summaryRounds*window*charsPerToken, most)
}

// tokensOf estimates a message.
func tokensOf(m *hob.Message) int { return messageTokens + tokensBy(estimateTokens, m) }

// tokensBy adds up a message's tokens by a way to count a text's.
func tokensBy(count func(string) int, m *hob.Message) int {
	n := 0
	if len(m.Parts) == 0 {
		n = count(m.Content)
	}
	for i := range m.Parts {
		if m.Parts[i].Type == hob.ImagePart {
			n += imageTokens
		} else {
			n += count(m.Parts[i].Text)
		}
	}
	for i := range m.Calls {
		n += messageTokens + count(m.Calls[i].Name) + count(string(m.Calls[i].Arguments))
	}
	if m.Reasoning != nil { // sent back by some providers
		n += len(m.Reasoning.Artefact) / 4
	}
	return n
}

// fixedTokens estimates what every request of a run holds beside its messages.
func (a *active) fixedTokens() int {
	n := messageTokens + estimateTokens(a.system()) + estimateTokens(string(a.plan.tuning.ResponseFormat))
	return n + a.toolTokens()
}

func (a *active) toolTokens() int {
	n := 0
	for _, t := range a.plan.functions() {
		n += schemaTokens + estimateTokens(t.Name) + estimateTokens(t.Description) + estimateTokens(string(t.Schema))
	}
	return n
}
