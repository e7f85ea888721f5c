package fakeai

import (
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// What a message and an image count in tokens, besides their texts.
const (
	messageTokens = 4
	imageTokens   = 1_000
)

// o200k is a tokenizer; it is large, and loaded by the first server that has a window.
var o200k = sync.OnceValue(codec.NewO200kBase) //nolint:gochecknoglobals // one for all servers of a process

// measure counts a request's tokens and refuses it where they exceed the server's window. It does nothing without one.
func (s *Server) measure(p *Parsed, refusal func(tokens, most int) fault) error {
	if s.opts.Window <= 0 {
		return nil
	}
	p.Tokens = count(p)
	if p.Tokens > s.opts.Window {
		return refusal(p.Tokens, s.opts.Window)
	}
	return nil
}

// count is the number of tokens of all texts, names, arguments and schemas, with a share for every message and image. It
// is made without the help of the code under test.
func count(p *Parsed) int {
	n := 0
	add := func(text string) {
		if c, err := o200k().Count(text); err == nil {
			n += c
		} else {
			n += len(text) // text that cannot be tokenized counts its bytes
		}
	}
	if p.System != "" {
		n += messageTokens
		add(p.System)
	}
	for _, m := range p.Messages {
		n += messageTokens + m.Images*imageTokens
		add(m.Text)
		for _, c := range m.Calls {
			add(c.Name)
			add(c.Arguments)
		}
	}
	for _, t := range p.Tools {
		add(t.Name)
		add(t.Description)
		add(string(t.Schema))
	}
	return n
}
