package provider

import "hob"

// goOn stands where the API wants a user's message and the history has none: at its beginning, when what came before was
// cut off.
const goOn = `{"type":"text","text":"(The conversation goes on.)"}`

// appendTurns writes the history as turns of user and assistant that alternate. Tool results, and system messages amid
// the history, belong to the user's turn. searching: searches of the turn under way go back with it.
func appendTurns(b []byte, history []hob.Message, n names, searching bool) []byte {
	b = append(b, '[')
	current := len(history)
	if searching {
		current = lastUser(history)
	}
	open := "" // role of the turn under way
	turn := func(role string) {
		switch {
		case role == open:
			b = append(b, ',')
			return
		case open != "":
			b = append(b, `]},`...)
		case role == string(hob.RoleAssistant):
			b = append(b, `{"role":"user","content":[`+goOn+`]},`...)
		}
		open = role
		b = append(b, `{"role":"`...)
		b = append(b, role...)
		b = append(b, `","content":[`...)
	}
	for i := range history {
		m := &history[i]
		if m.Role == hob.RoleAssistant {
			turn(string(hob.RoleAssistant))
			b = appendAssistantBlocks(b, m, n, i > current)
			continue
		}
		turn(string(hob.RoleUser))
		switch m.Role {
		case hob.RoleTool:
			b = appendToolResult(b, m)
		case hob.RoleSystem:
			b = appendTextBlock(b, "<system-context>\n"+m.Text()+"\n</system-context>")
		case hob.RoleUser, hob.RoleAssistant:
			b = appendUserBlocks(b, m)
		}
	}
	if open == "" {
		turn(string(hob.RoleUser))
		b = append(b, goOn...)
	}
	return append(b, turnsEnd...)
}

func appendTextBlock(b []byte, text string) []byte {
	b = append(b, `{"type":"text","text":`...)
	b = appendString(b, text)
	return append(b, '}')
}

func appendToolResult(b []byte, m *hob.Message) []byte {
	b = append(b, `{"type":"tool_result","tool_use_id":`...)
	b = appendString(b, string(m.CallID))
	if m.Content != "" {
		b = append(b, `,"content":`...)
		b = appendString(b, m.Content)
	}
	if m.IsError {
		b = append(b, `,"is_error":true`...)
	}
	return append(b, '}')
}

// appendAssistantBlocks writes thoughts, text and calls, in this order, which is the one the API wants them back in. The
// searches among the thoughts are written where served is set.
func appendAssistantBlocks(b []byte, m *hob.Message, n names, served bool) []byte {
	start := len(b)
	if hasArtefact(m) {
		a := m.Reasoning.Artefact
		if !served {
			a = withoutServed(a)
		}
		if len(a) > 0 && a[0] == '[' { // the blocks, as they came
			a = a[1 : len(a)-1]
		}
		b = append(b, a...)
	}
	if m.Content != "" {
		b = comma(b, start)
		b = appendTextBlock(b, m.Content)
	}
	for _, c := range m.Calls {
		b = comma(b, start)
		b = append(b, `{"type":"tool_use","id":`...)
		b = appendString(b, string(c.ID))
		b = append(b, `,"name":`...)
		b = appendString(b, n.wire(c.Name))
		b = append(b, `,"input":`...)
		b = append(b, c.Arguments...)
		b = append(b, '}')
	}
	return b
}

// comma parts an element from those since start.
func comma(b []byte, start int) []byte {
	if len(b) > start {
		return append(b, ',')
	}
	return b
}

func appendUserBlocks(b []byte, m *hob.Message) []byte {
	if len(m.Parts) == 0 {
		return appendTextBlock(b, m.Content)
	}
	start := len(b)
	for _, p := range m.Parts {
		b = comma(b, start)
		if p.Type != hob.ImagePart {
			b = appendTextBlock(b, p.Text)
			continue
		}
		b = append(b, `{"type":"image","source":`...)
		mediaType, data, inline := splitDataURL(p.URL)
		switch {
		case len(p.Data) > 0:
			b = append(b, `{"type":"base64","media_type":`...)
			b = appendString(b, p.MediaType)
			b = append(b, `,"data":`...)
			b = appendBase64(b, p.Data)
		case inline:
			b = append(b, `{"type":"base64","media_type":`...)
			b = appendString(b, mediaType)
			b = append(b, `,"data":`...)
			b = appendString(b, data)
		default:
			b = append(b, `{"type":"url","url":`...)
			b = appendString(b, p.URL)
		}
		b = append(b, `}}`...)
	}
	return b
}
