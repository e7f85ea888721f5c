package builtin

import (
	"bytes"
	"encoding/json"
	"sort"
	"unicode/utf8"
)

const (
	// leastText is the length below which a result's text is of no use: rather one result fewer.
	leastText = 200
	// keptFacts is how many characters of a page's metadata are kept whatever its text needs.
	keptFacts = 4000
	// keptFact is how many characters of one text in the metadata are kept where there is too much of it.
	keptFact = 200
)

// runes is the length of JSON in characters.
func runes(b []byte) int { return utf8.RuneCount(b) }

// largest is the greatest n from 0 to most for which fits holds, given that it holds for all below.
func largest(most int, fits func(n int) bool) int {
	return sort.Search(most, func(n int) bool { return !fits(n + 1) })
}

// cutResults is the answer of a search that is longer than it may be.
type cutResults struct {
	Results   []searchResult `json:"results"`
	Truncated bool           `json:"truncated"`
}

// fitResults encodes the results of a search in at most so many characters: the list where it fits; else texts and
// highlights are cut to one length, and where that would be too short the last results are left out.
func fitResults(results []searchResult, most int) json.RawMessage {
	if whole := encode(results); runes(whole) <= most {
		return whole
	}
	for n := len(results); n > 0; n-- {
		fitting := func(length int) json.RawMessage { return encode(cutResults{shortened(results[:n], length), true}) }
		length := largest(most, func(l int) bool { return runes(fitting(l)) <= most })
		if out := fitting(length); runes(out) <= most && (length >= leastText || n == 1) {
			return out
		}
	}
	return encode(cutResults{[]searchResult{}, true})
}

// shortened are results none of whose texts has more than length characters.
func shortened(results []searchResult, length int) []searchResult {
	out := make([]searchResult, len(results))
	for i, r := range results {
		r.Text, _ = cut(r.Text, length)
		r.Title, _ = cut(r.Title, max(length, leastText))
		kept := make([]string, 0, len(r.Highlights))
		for room := length; room > 0 && len(kept) < len(r.Highlights); {
			h, _ := cut(r.Highlights[len(kept)], room)
			kept = append(kept, h)
			room -= utf8.RuneCountInString(h) + 1
		}
		r.Highlights = kept
		out[i] = r
	}
	return out
}

// fitPage encodes a page in at most so many characters, marked with "truncated" where something had to go: texts and
// lists are cut to one length, metadata to its short texts.
func fitPage(page []member, most int, truncated bool) json.RawMessage {
	if whole := object(marked(page, truncated)); runes(whole) <= most {
		return whole
	}
	fields := make([]field, len(page))
	for i, m := range page {
		fields[i] = newField(m)
	}
	fitting := func(length int) json.RawMessage {
		out := make([]member, len(fields))
		for i, f := range fields {
			out[i] = member{f.name, f.cut(length)}
		}
		return object(marked(out, true))
	}
	length := largest(most, func(l int) bool { return runes(fitting(l)) <= most })
	if out := fitting(length); runes(out) <= most {
		return out
	}
	return json.RawMessage(`{"truncated":true}`)
}

func marked(page []member, truncated bool) []member {
	if truncated {
		return append(page[:len(page):len(page)], member{"truncated", json.RawMessage("true")})
	}
	return page
}

// field is a member that can be shortened.
type field struct {
	member
	text string
	list []json.RawMessage
	obj  []member
}

func newField(m member) field {
	f := field{member: m}
	switch v := bytes.TrimSpace(m.value); {
	case len(v) == 0:
	case v[0] == '"':
		_ = json.Unmarshal(v, &f.text)
	case v[0] == '[':
		_ = json.Unmarshal(v, &f.list)
	case v[0] == '{':
		f.obj, _ = members(v)
	}
	return f
}

// cut is the field's value in about so many characters.
func (f *field) cut(length int) json.RawMessage {
	switch {
	case f.text != "":
		short, _ := cut(f.text, length)
		return encode(short)
	case f.list != nil:
		kept := f.list[:0:0]
		for _, v := range f.list {
			if length -= runes(v) + 1; length < 0 {
				break
			}
			kept = append(kept, v)
		}
		return encode(append([]json.RawMessage{}, kept...))
	case f.obj != nil && runes(f.value) > max(length, keptFacts):
		return object(facts(f.obj))
	}
	return f.value
}

// facts are the plain values of an object that is too long, its texts cut.
func facts(all []member) []member {
	var kept []member
	room := keptFacts
	for _, m := range all {
		v := m.value
		var text string
		if json.Unmarshal(v, &text) == nil {
			text, _ = cut(text, keptFact)
			v = encode(text)
		}
		if v[0] == '{' || v[0] == '[' {
			continue
		}
		if room -= runes(v) + utf8.RuneCountInString(m.name) + 4; room < 0 {
			break
		}
		kept = append(kept, member{m.name, v})
	}
	return kept
}
