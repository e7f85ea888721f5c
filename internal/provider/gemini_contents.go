package provider

import (
	"encoding/json"
	"strings"

	"hob"
)

// geminiThought is an entry of the artefact: a thought, or the signature of a text or of a call. Signatures are sealed
// thoughts; the API wants each back with the part it came with.
type geminiThought struct {
	Part      string `json:"part"` // thought, text or call
	Call      int    `json:"call,omitempty"`
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// The parts of geminiThought.
const (
	thoughtPart = "thought"
	textPart    = "text"
	signedCall  = "call"
)

// geminiThoughts are the thoughts of a message, nil where it has none of this provider's.
func geminiThoughts(m *hob.Message) []geminiThought {
	if m.Reasoning == nil || m.Reasoning.Provider != geminiName || len(m.Reasoning.Artefact) == 0 {
		return nil
	}
	var list []geminiThought
	if json.Unmarshal(m.Reasoning.Artefact, &list) != nil {
		return nil
	}
	return list
}

// unsignedCall stands for the signature of a call that another model made. Google documents it for such histories;
// without it, families that check signatures refuse the turn.
const unsignedCall = "skip_thought_signature_validator"

// geminiGoOn stands where the API wants a user's message and the history has none.
const geminiGoOn = `{"text":"(The conversation goes on.)"}`

// The API's roles.
const (
	geminiUser  = "user"
	geminiModel = "model"
)

// appendContents writes the history as contents of user and model that alternate. Function responses, and system messages
// amid the history, belong to the user's content.
func appendContents(b []byte, history []hob.Message, f family, n names) []byte {
	b = append(b, '[')
	open := "" // role of the content under way
	content := func(role string) {
		switch {
		case role == open:
			b = append(b, ',')
			return
		case open != "":
			b = append(b, `]},`...)
		case role == geminiModel:
			b = append(b, `{"role":"user","parts":[`+geminiGoOn+`]},`...)
		}
		open = role
		b = append(b, `{"role":"`...)
		b = append(b, role...)
		b = append(b, `","parts":[`...)
	}
	var calls []hob.ToolCall // of the last assistant message
	for i := range history {
		m := &history[i]
		switch m.Role {
		case hob.RoleAssistant:
			content(geminiModel)
			b = appendModelParts(b, m, n, f.signed)
			calls = m.Calls
		case hob.RoleTool:
			content(geminiUser)
			b = appendFunctionResponse(b, m, calls, n)
		case hob.RoleSystem:
			content(geminiUser)
			b = appendGeminiText(b, "<system-context>\n"+m.Text()+"\n</system-context>")
		case hob.RoleUser:
			content(geminiUser)
			b = appendGeminiUser(b, m)
		}
	}
	if open == "" {
		content(geminiUser)
		b = append(b, geminiGoOn...)
	}
	return append(b, `]}]`...)
}

func appendGeminiText(b []byte, text string) []byte {
	b = append(b, `{"text":`...)
	b = appendString(b, text)
	return append(b, '}')
}

// appendModelParts writes thoughts, text and calls. sign tells that a turn under way whose calls have no signature would be
// refused; of several calls in one message only the first has one. Where a turn begins is the API's to say, so older
// calls get the stand-in too.
func appendModelParts(b []byte, m *hob.Message, n names, sign bool) []byte {
	start := len(b)
	thoughts := geminiThoughts(m)
	signed := func(part string, call int) bool {
		for _, t := range thoughts {
			if t.Part == part && t.Call == call && t.Signature != "" {
				b = append(b, `,"thoughtSignature":`...)
				b = appendString(b, t.Signature)
				return true
			}
		}
		return false
	}
	for _, t := range thoughts {
		if t.Part != thoughtPart {
			continue
		}
		b = comma(b, start)
		b = append(b, `{"text":`...)
		b = appendString(b, t.Text)
		b = append(b, `,"thought":true`...)
		if t.Signature != "" {
			b = append(b, `,"thoughtSignature":`...)
			b = appendString(b, t.Signature)
		}
		b = append(b, '}')
	}
	if m.Content != "" {
		b = comma(b, start)
		b = append(b, `{"text":`...)
		b = appendString(b, m.Content)
		signed(textPart, 0)
		b = append(b, '}')
	}
	for i, c := range m.Calls {
		b = comma(b, start)
		b = append(b, `{"functionCall":{"id":`...)
		b = appendString(b, string(c.ID))
		b = append(b, `,"name":`...)
		b = appendString(b, n.wire(c.Name))
		b = append(b, `,"args":`...)
		b = append(b, c.Arguments...)
		b = append(b, '}')
		if !signed(signedCall, i) && sign && i == 0 {
			b = append(b, `,"thoughtSignature":"`+unsignedCall+`"`...)
		}
		b = append(b, '}')
	}
	return b
}

// appendFunctionResponse writes a result under the name of the call it answers.
func appendFunctionResponse(b []byte, m *hob.Message, calls []hob.ToolCall, n names) []byte {
	name := m.Name
	for _, c := range calls {
		if c.ID == m.CallID {
			name = c.Name
		}
	}
	b = append(b, `{"functionResponse":{"id":`...)
	b = appendString(b, string(m.CallID))
	b = append(b, `,"name":`...)
	b = appendString(b, n.wire(name))
	if m.IsError {
		b = append(b, `,"response":{"error":`...)
	} else {
		b = append(b, `,"response":{"output":`...)
	}
	b = appendString(b, m.Content)
	return append(b, `}}}`...)
}

// appendGeminiUser writes a user's content. Images at an address are fetched by Google: Hob would have to reach an
// address that a user chose.
func appendGeminiUser(b []byte, m *hob.Message) []byte {
	if len(m.Parts) == 0 {
		return appendGeminiText(b, m.Content)
	}
	start := len(b)
	for _, p := range m.Parts {
		b = comma(b, start)
		if p.Type != hob.ImagePart {
			b = appendGeminiText(b, p.Text)
			continue
		}
		mediaType, data, inline := splitDataURL(p.URL)
		switch {
		case len(p.Data) > 0:
			b = append(b, `{"inlineData":{"mimeType":`...)
			b = appendString(b, strings.ToLower(p.MediaType))
			b = append(b, `,"data":`...)
			b = appendBase64(b, p.Data)
		case inline:
			b = append(b, `{"inlineData":{"mimeType":`...)
			b = appendString(b, strings.ToLower(mediaType))
			b = append(b, `,"data":`...)
			b = appendString(b, data)
		default:
			b = append(b, `{"fileData":{`...)
			if t := guessType(p.URL); t != "" {
				b = append(b, `"mimeType":`...)
				b = appendString(b, t)
				b = append(b, ',')
			}
			b = append(b, `"fileUri":`...)
			b = appendString(b, p.URL)
		}
		b = append(b, `}}`...)
	}
	return b
}
