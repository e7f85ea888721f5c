package provider

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// maxTokenizedPiece is how much text is given to a tokenizer at once, in bytes. The tokenizer's copies of a text are
// several times as large as the text; this bounds them whatever the text's length.
const maxTokenizedPiece = 16 << 10

// maxBlankLines is how many lines with nothing but spaces the tokenizer is given behind each other: its time is their
// number multiplied by their length.
const maxBlankLines = 64

// The tokenizers are loaded by the first count: a vocabulary takes a tenth of a second and some twenty megabytes, which a
// server that counts nothing does not spend.
var (
	o200k  = sync.OnceValue(codec.NewO200kBase)
	cl100k = sync.OnceValue(codec.NewCl100kBase)
)

// tokenizers tells which models OpenAI's tokenizers belong to, by the longest prefix of the name behind its last slash.
var tokenizers = []struct {
	prefix string
	codec  func() *codec.Codec
}{
	{"gpt-3.5", cl100k},
	{"gpt-4", cl100k},
	{"gpt-4o", o200k},
	{"gpt-4.1", o200k},
	{"gpt-4.5", o200k},
	{"gpt-5", o200k},
	{"gpt-oss", o200k}, // its own vocabulary differs in the marks between messages only
	{"chatgpt-4o", o200k},
	{"o1", o200k},
	{"o3", o200k},
	{"o4", o200k},
}

// counterOf gives the exact token counter of a model, nil where its tokenizer is not known.
func counterOf(model string) func(string) int {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	if strings.HasPrefix(name, "o") && !oSeries(name) {
		return nil
	}
	var best func() *codec.Codec
	length := 0
	for _, t := range tokenizers {
		if len(t.prefix) > length && strings.HasPrefix(name, t.prefix) {
			best, length = t.codec, len(t.prefix)
		}
	}
	if best == nil {
		return nil
	}
	return func(text string) int { return countTokens(best(), text) }
}

// countTokens counts piece by piece. Memory is bounded, and time is linear in the text's length.
func countTokens(c *codec.Codec, text string) int {
	total := 0
	for len(text) > 0 {
		piece := text[:tokenCut(text)]
		text = text[len(piece):]
		n, err := c.Count(piece)
		if err != nil {
			n = len(piece) // no count is lower than the truth; the tokenizer fails for no text that is known
		}
		total += n
	}
	return total
}

// tokenCut is where the next piece of a text ends. A token never spans the place between a character that is no space and
// a space, nor that between a line's end and a letter or digit of the next line, so cutting there changes no count. Text
// without such a place, and a long run of blank lines, is cut between two characters, which may count one token more.
func tokenCut(text string) int {
	end := len(text)
	if end > maxTokenizedPiece {
		end = softCut(text)
	}
	lines, after := 0, false // line ends in this run of spaces, and whether the last character was one
	for i, r := range text[:end] {
		ended := r == '\n' || r == '\r'
		switch {
		case !unicode.IsSpace(r):
			lines = 0
		case after && !ended && lines >= maxBlankLines:
			return i
		case ended && !after:
			lines++
		}
		after = ended
	}
	return end
}

// softCut is where a text is best cut that is longer than a piece.
func softCut(text string) int {
	for i := maxTokenizedPiece; i > maxTokenizedPiece/2; i-- {
		before, at := text[i-1], text[i]
		if at == ' ' && !blank(before) || before == '\n' && (letter(at) || digit(at)) {
			return i
		}
	}
	i := maxTokenizedPiece
	for i > maxTokenizedPiece-utf8.UTFMax && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}

// blank tells ASCII's spaces, and the last byte of others: U+0085, U+00A0, U+2000 to U+200A, U+2028, U+2029, U+202F,
// U+205F and U+3000. Taking another character for one costs nothing but another place to cut.
func blank(b byte) bool {
	return b <= ' ' || b >= 0x80 && b <= 0x8A || b == 0x9F || b == 0xA0 || b == 0xA8 || b == 0xA9 || b == 0xAF || b == 0x85
}

func letter(b byte) bool { b |= 0x20; return b >= 'a' && b <= 'z' }

func digit(b byte) bool { return b >= '0' && b <= '9' }
