package fakeai

import (
	"encoding/json"
	"slices"
	"strings"
)

// unsigned is what Google lets stand for the signature of a call that another model made.
const unsigned = "skip_thought_signature_validator"

// geminiImages are the image types the API reads.
var geminiImages = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

// kinds counts the data of a part; there must be one.
func (p geminiPart) kinds() int {
	n := 0
	for _, is := range []bool{p.Text != nil, p.Inline != nil, p.File != nil, p.Call != nil, p.Response != nil} {
		if is {
			n++
		}
	}
	return n
}

// contentState walks through the contents of a request.
type contentState struct {
	p       *Parsed
	open    []geminiCall // calls of the last model content
	before  string       // role of the last content
	missing string       // a call of the turn under way without its signature
}

func checkContents(b *geminiBody, p *Parsed) error {
	if len(b.Contents) == 0 {
		return badArgument("* GenerateContentRequest.contents: contents is not specified")
	}
	s := &contentState{p: p}
	for i, c := range b.Contents {
		if len(c.Parts) == 0 {
			return badArgument("* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.", i)
		}
		for n, part := range c.Parts {
			empty := part.Text != nil && *part.Text == "" && part.Signature == ""
			if part.kinds() != 1 || empty {
				return badArgument("* GenerateContentRequest.contents[%d].parts[%d].data: required oneof field 'data' must have one initialized field", i, n)
			}
			if part.Signature != "" && part.Signature != Signature && part.Signature != unsigned {
				return badArgument("Thought signature is not valid.")
			}
		}
		var err error
		switch c.Role {
		case "user", "":
			err = s.user(c.Parts)
		case "model":
			err = s.model(c.Parts)
		default:
			err = badArgument("Please use a valid role: user, model.")
		}
		if err != nil {
			return err
		}
		s.before = c.Role
	}
	switch {
	case len(s.open) > 0:
		return unequal()
	case s.missing != "" && generation(p.Model) >= 3:
		return badArgument("Function call is missing a thought_signature in functionCall parts. This is required for tools to work "+
			"correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `%s`.", s.missing)
	}
	return nil
}

func unequal() error {
	return badArgument("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
}

func (s *contentState) user(parts []geminiPart) error {
	said := Message{Role: "user"}
	spoke, answers := false, 0
	for _, part := range parts {
		switch {
		case part.Call != nil || part.Thought:
			return badArgument("Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
		case part.Response != nil:
			answers++
			if err := s.response(part.Response); err != nil {
				return err
			}
			continue
		case part.Inline != nil:
			if !slices.Contains(geminiImages, part.Inline.MimeType) || len(part.Inline.Data) == 0 {
				return badArgument("Unsupported MIME type: %s", part.Inline.MimeType)
			}
			said.Images++
		case part.File != nil:
			if !strings.HasPrefix(part.File.URI, "https://") && !strings.HasPrefix(part.File.URI, "http://") && !strings.HasPrefix(part.File.URI, "gs://") {
				return badArgument("Invalid or unsupported file uri: %s", part.File.URI)
			}
			said.Images++
		case part.Text != nil:
			said.Text += *part.Text
		}
		spoke = true
	}
	if len(s.open) > 0 {
		return unequal()
	}
	if spoke {
		s.p.Messages = append(s.p.Messages, said)
		if answers == 0 { // a new turn
			s.missing = ""
		}
	}
	return nil
}

func (s *contentState) response(r *geminiResponse) error {
	if len(s.open) == 0 {
		return badArgument("Please ensure that function response turn comes immediately after a function call turn.")
	}
	at := slices.IndexFunc(s.open, func(c geminiCall) bool { return c.ID == r.ID && c.Name == r.Name })
	if at < 0 {
		return badArgument("Please ensure that the function response for `%s` (id %q) has the name and the id of its function call.", r.Name, r.ID)
	}
	if !object(r.Response) {
		return badArgument("Invalid value at 'contents.parts.function_response.response' (type.googleapis.com/google.protobuf.Struct)")
	}
	s.open = slices.Delete(s.open, at, at+1)
	m := Message{Role: "tool", CallID: r.ID}
	var known struct {
		Output *string `json:"output"`
		Error  *string `json:"error"`
	}
	switch err := json.Unmarshal(r.Response, &known); {
	case err == nil && known.Error != nil:
		m.Text, m.IsError = *known.Error, true
	case err == nil && known.Output != nil:
		m.Text = *known.Output
	default:
		m.Text = string(r.Response)
	}
	s.p.Messages = append(s.p.Messages, m)
	return nil
}

func (s *contentState) model(parts []geminiPart) error {
	if len(s.open) > 0 {
		return unequal()
	}
	out := Message{Role: "assistant"}
	for _, part := range parts {
		if part.Signature == Signature {
			out.Thoughts++
		}
		switch {
		case part.Response != nil:
			return badArgument("Please ensure that function response turn comes immediately after a function call turn.")
		case part.Inline != nil || part.File != nil:
			return badArgument("Model turns must not hold files.")
		case part.Call != nil:
			if s.before != "user" && s.before != "" || len(s.p.Messages) == 0 {
				return badArgument("Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
			}
			if !geminiName.MatchString(part.Call.Name) {
				return badArgument("* GenerateContentRequest.contents.parts.function_call.name: Name cannot be empty or is invalid.")
			}
			if len(part.Call.Args) > 0 && !object(part.Call.Args) {
				return badArgument("Invalid value at 'contents.parts.function_call.args' (type.googleapis.com/google.protobuf.Struct)")
			}
			if len(out.Calls) == 0 && part.Signature == "" {
				s.missing = part.Call.Name
			}
			s.open = append(s.open, *part.Call)
			out.Calls = append(out.Calls, Call{part.Call.ID, part.Call.Name, string(part.Call.Args)})
		case part.Text != nil && !part.Thought:
			out.Text += *part.Text
		}
	}
	s.p.Messages = append(s.p.Messages, out)
	return nil
}
