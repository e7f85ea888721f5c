package provider

import "bytes"

// scanText reads an event that holds a piece of answer text and nothing else of interest, the common one by far, without
// decoding the rest. It is false, and nothing has changed, for any other event. The events of one stream are alike but for
// their text, so what stands around the text is walked through once and compared from then on.
func (d *chatDecoder) scanText(data []byte) bool {
	if len(d.before) > 0 && bytes.HasPrefix(data, d.before) {
		s := scanner{b: data, i: len(d.before) - 1}
		raw, plain, ok := s.str()
		if ok && bytes.Equal(data[s.i:], d.behind) {
			return d.scanned(raw, plain)
		}
	}
	s := scanner{b: data}
	var f chatFrame
	if !f.read(&s) || !f.choices || !s.end() {
		return false
	}
	if !d.scanned(f.content, f.plain) {
		return false
	}
	if d.model == "" && len(f.model) > 0 {
		d.model = string(f.model)
	}
	if f.from > 0 && d.model != "" {
		d.before = append(d.before[:0], data[:f.from]...)
		d.behind = append(d.behind[:0], data[f.from+len(f.content)+1:]...)
	}
	return true
}

// scanned takes the raw inside of the content's string.
func (d *chatDecoder) scanned(raw []byte, plain bool) bool {
	if !plain {
		var ok bool
		if d.scratch, ok = appendUnescaped(d.scratch[:0], raw, false); !ok {
			return false
		}
		raw = d.scratch
	}
	d.chosen = true
	if len(raw) > 0 {
		d.addAnswer(raw)
	}
	return true
}

// chatFrame is what scanText finds.
type chatFrame struct {
	content []byte
	from    int // where the content begins, behind its quote; 0 = there is none
	plain   bool
	model   []byte
	choices bool
	seen    bool // content was met
}

func (f *chatFrame) read(s *scanner) bool {
	f.plain = true
	if !s.byte('{') {
		return false
	}
	for {
		key, ok := s.key()
		if !ok {
			return false
		}
		switch string(key) {
		case "id", "object", "created", "system_fingerprint", "service_tier", "obfuscation", "provider":
			if string(key) == "object" && !s.chunkObject() || string(key) != "object" && !s.scalar() {
				return false
			}
		case "model":
			raw, plain, ok := s.str()
			if !ok || !plain || f.model != nil {
				return false
			}
			f.model = raw
		case "usage":
			if !s.word("null") {
				return false
			}
		case "choices":
			if f.choices || !f.readChoice(s) {
				return false
			}
			f.choices = true
		default:
			return false
		}
		if s.byte(',') {
			continue
		}
		return s.byte('}')
	}
}

// chunkObject passes over the value of "object", which may not be the one that marks an error.
func (s *scanner) chunkObject() bool {
	raw, plain, ok := s.str()
	return ok && plain && string(raw) != "error"
}

// readChoice reads a list of exactly one choice, that of index 0, without a finish reason.
func (f *chatFrame) readChoice(s *scanner) bool {
	if !s.byte('[') || !s.byte('{') {
		return false
	}
	for {
		key, ok := s.key()
		if !ok {
			return false
		}
		switch string(key) {
		case "index":
			if !s.word("0") {
				return false
			}
		case "finish_reason", "logprobs", "native_finish_reason", "stop_reason":
			if !s.word("null") {
				return false
			}
		case "delta":
			if f.seen || !f.readDelta(s) {
				return false
			}
			f.seen = true
		default:
			return false
		}
		if s.byte(',') {
			continue
		}
		return s.byte('}') && s.byte(']')
	}
}

// readDelta reads a delta whose only members that are not null are role and content.
func (f *chatFrame) readDelta(s *scanner) bool {
	if !s.byte('{') {
		return false
	}
	if s.byte('}') {
		return true
	}
	content := false
	for {
		key, ok := s.key()
		if !ok {
			return false
		}
		switch string(key) {
		case "role":
			if raw, plain, ok := s.str(); !ok || !plain || len(raw) == 0 {
				return false
			}
		case "content":
			if content {
				return false
			}
			content = true
			if s.word("null") {
				break
			}
			if f.content, f.plain, ok = s.str(); !ok {
				return false
			}
			f.from = s.i - 1 - len(f.content)
		case "refusal", "tool_calls", "function_call", "reasoning", "reasoning_content", "reasoning_details", "audio":
			if !s.word("null") {
				return false
			}
		default:
			return false
		}
		if s.byte(',') {
			continue
		}
		return s.byte('}')
	}
}
