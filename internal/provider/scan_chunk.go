package provider

import "strconv"

// scanChunk reads the usual chunks of a tool-using answer by hand: the role, tool calls in OpenAI's own form, the finish
// reason, the counts. It is false for anything else, which the general decoder then reads; what it accepts it reads as
// that decoder would. The result's raw members lie in data.
func scanChunk(data []byte, c *chatChunk) bool {
	s := scanner{b: data}
	return s.members(func(k string) bool {
		switch k {
		case "object":
			return s.text(&c.Object)
		case "model":
			return s.text(&c.Model)
		case "id", "created", "system_fingerprint", "service_tier", "provider":
			return s.scalar()
		case "choices":
			return s.items(func() bool {
				c.Choices = append(c.Choices, chatChoice{})
				return s.choice(&c.Choices[len(c.Choices)-1])
			})
		case "usage":
			if s.word("null") {
				return true
			}
			c.Usage = &chatUsage{}
			return s.usage(c.Usage)
		}
		return false
	}) && s.end()
}

// members walks an object whose names are plain and stand once each; read takes the value behind a name.
func (s *scanner) members(read func(name string) bool) bool {
	var seen [12]string
	n := 0
	if !s.byte('{') {
		return false
	}
	if s.byte('}') {
		return true
	}
	for {
		k, ok := s.key()
		if !ok || n == len(seen) {
			return false
		}
		name := string(k)
		for _, other := range seen[:n] {
			if other == name {
				return false
			}
		}
		seen[n] = name
		n++
		if !read(name) {
			return false
		}
		if s.byte('}') {
			return true
		}
		if !s.byte(',') {
			return false
		}
	}
}

// items walks a list; read takes an item.
func (s *scanner) items(read func() bool) bool {
	if !s.byte('[') {
		return false
	}
	if s.byte(']') {
		return true
	}
	for {
		if !read() {
			return false
		}
		if s.byte(']') {
			return true
		}
		if !s.byte(',') {
			return false
		}
	}
}

// text reads a string without escapes.
func (s *scanner) text(out *string) bool {
	raw, plain, ok := s.str()
	*out = string(raw)
	return ok && plain
}

// raw reads a string or null as it stands.
func (s *scanner) raw(out *[]byte) bool {
	s.blank()
	from := s.i
	if s.i < len(s.b) && s.b[s.i] != '"' && s.b[s.i] != 'n' || !s.scalar() {
		return false
	}
	*out = s.b[from:s.i]
	return true
}

// count reads a number of at most nine digits.
func (s *scanner) count(out *int64) bool {
	s.blank()
	from := s.i
	if !s.digits() || s.i-from > 9 || (s.b[from] == '0' && s.i-from > 1) {
		return false
	}
	n, err := strconv.ParseInt(string(s.b[from:s.i]), 10, 64)
	*out = n
	return err == nil && (s.i == len(s.b) || s.b[s.i] != '.' && s.b[s.i] != 'e' && s.b[s.i] != 'E')
}

func (s *scanner) choice(c *chatChoice) bool {
	return s.members(func(k string) bool {
		switch k {
		case "index":
			var n int64
			ok := s.count(&n)
			c.Index = int(n)
			return ok
		case "finish_reason":
			return s.word("null") || s.text(&c.FinishReason)
		case "logprobs":
			return s.word("null")
		case "delta":
			c.Delta = &chatMessage{}
			return s.message(c.Delta)
		}
		return false
	})
}

func (s *scanner) message(m *chatMessage) bool {
	return s.members(func(k string) bool {
		switch k {
		case "role":
			return s.scalar()
		case "content":
			return s.raw((*[]byte)(&m.Content))
		case "refusal":
			return s.raw((*[]byte)(&m.Refusal))
		case "tool_calls":
			return s.items(func() bool {
				m.ToolCalls = append(m.ToolCalls, chatCall{})
				return s.call(&m.ToolCalls[len(m.ToolCalls)-1])
			})
		}
		return false
	})
}

func (s *scanner) call(c *chatCall) bool {
	return s.members(func(k string) bool {
		switch k {
		case "index":
			var n int64
			if !s.count(&n) {
				return false
			}
			index := int(n)
			c.Index = &index
			return true
		case "id":
			return s.text(&c.ID)
		case "type":
			return s.scalar()
		case "function":
			return s.members(func(k string) bool {
				switch k {
				case "name":
					return s.text(&c.Function.Name)
				case "arguments":
					return s.raw((*[]byte)(&c.Function.Arguments))
				}
				return false
			})
		}
		return false
	})
}

func (s *scanner) usage(u *chatUsage) bool {
	return s.members(func(k string) bool {
		switch k {
		case "prompt_tokens":
			return s.count(&u.Prompt)
		case "completion_tokens":
			return s.count(&u.Completion)
		case "total_tokens":
			return s.count(&u.Total)
		}
		return false
	})
}
