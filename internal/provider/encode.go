package provider

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/bits"
	"strings"
	"unicode/utf8"

	"hob"
)

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; < > & stay as they are. A long history is written
// anew for every step, so plain text is looked through eight bytes at a time.
func appendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // each byte that is none
	}
	dst = append(dst, '"')
	from := 0
	for i := plainBytes(s, 0); i < len(s); i = plainBytes(s, i+1) {
		dst = append(dst, s[from:i]...)
		dst = appendEscape(dst, s[i])
		from = i + 1
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// plainBytes is the index of the first byte from i on that cannot stand in a JSON string as it is, else the length of s.
func plainBytes(s string, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		found := ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if found != 0 { // the lowest of these marks is exact
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendDataURL appends a data: address as a JSON string.
func appendDataURL(dst []byte, mediaType string, data []byte) []byte {
	dst = append(dst, `"data:`...)
	dst = append(dst, mediaType...)
	dst = append(dst, ";base64,"...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

// splitDataURL parts a base64 data: address; ok is false for any other address.
func splitDataURL(address string) (mediaType, data string, ok bool) {
	rest, ok := strings.CutPrefix(address, "data:")
	if !ok {
		return "", "", false
	}
	head, data, ok := strings.Cut(rest, ",")
	mediaType, base64Form := strings.CutSuffix(head, ";base64")
	mediaType, _, _ = strings.Cut(mediaType, ";")
	return mediaType, data, ok && base64Form
}

// requestSize estimates the bytes of a request's JSON, so that it is built in one allocation, and counts its text.
func requestSize(r hob.Request) (size, text int) {
	text = len(r.System) + len(r.ResponseFormat)
	for _, m := range r.Messages {
		text += len(m.Content) + 64
		for _, p := range m.Parts {
			text += len(p.Text)
			size += base64.StdEncoding.EncodedLen(len(p.Data)) + len(p.URL) + 96
		}
		for _, c := range m.Calls {
			text += len(c.Name) + len(c.Arguments) + 96
		}
		if m.Reasoning != nil {
			size += len(m.Reasoning.Artefact) + len(m.Reasoning.Text)
		}
	}
	for _, t := range r.Tools {
		text += len(t.Name) + len(t.Description) + len(t.Schema) + 64
	}
	return size + text + text/16 + 512, text
}

// MaxToolName is the longest tool name that every provider takes, in bytes.
const MaxToolName = 64

// names maps tool names that a provider would refuse to ones it takes, and back. Its zero value maps nothing.
type names struct {
	sent map[string]string // ours → theirs
	back map[string]string // theirs → ours
}

// newNames looks through a request's tools for names that takes, the vendor's rule, refuses. Names within the limits, all
// as a rule, cost nothing.
func newNames(r hob.Request, takes func(name string) bool) names {
	var n names
	for _, t := range r.Tools {
		n.note(t.Name, takes)
	}
	for _, m := range r.Messages {
		for _, c := range m.Calls {
			n.note(c.Name, takes)
		}
	}
	return n
}

func (n *names) note(name string, takes func(string) bool) {
	if takes(name) {
		return
	}
	if n.sent == nil {
		n.sent, n.back = map[string]string{}, map[string]string{}
	}
	if _, ok := n.sent[name]; ok {
		return
	}
	sum := sha256.Sum256([]byte(name))
	short := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && plainName(string(r)) {
			return r
		}
		return '_'
	}, name)
	if !takes(short[:min(len(short), 1)]) { // it begins as no name may
		short = "t_" + short
	}
	const suffix = 1 + 8
	tail := "_" + hex.EncodeToString(sum[:4])
	keep := min(len(short), MaxToolName-suffix)
	for keep > 1 && !takes(short[:keep]+tail) { // a server may take less than the vendor
		keep--
	}
	short = short[:keep] + tail
	n.sent[name], n.back[short] = short, name
}

func plainName(name string) bool { return len(name) <= MaxToolName && plainLetters(name) }

// plainLetters says whether a name consists of what every provider takes in names.
func plainLetters(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func (n names) wire(name string) string {
	if s, ok := n.sent[name]; ok {
		return s
	}
	return name
}

func (n names) original(name string) string {
	if s, ok := n.back[name]; ok {
		return s
	}
	return name
}

// emptySchema is the schema of a tool that has none: an object without members.
const emptySchema = `{"type":"object","properties":{}}`

func appendSchema(dst []byte, t hob.ToolSpec) []byte {
	if len(t.Schema) == 0 || string(t.Schema) == "null" {
		return append(dst, emptySchema...)
	}
	return append(dst, t.Schema...)
}

// appendBase64 appends data as a JSON string.
func appendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}
