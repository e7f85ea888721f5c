package provider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob"
)

// TestMessages_AResultOfASearchBegunBeforeThePause is told of with the query that it was begun with, and goes back behind it.
func TestMessages_AResultOfASearchBegunBeforeThePause(t *testing.T) {
	t.Parallel()
	begun := json.RawMessage(`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"weather"}}`)
	stream := `data: {"type":"message_start","message":{"model":"m"}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://yr.no","title":"Yr","encrypted_content":"eA=="}]}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"weather","input":{}}}

data: {"type":"content_block_stop","index":1}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}

data: {"type":"message_stop"}

`
	turn := &pausedTurn{blocks: []json.RawMessage{begun}}
	got := replay(t, func() decoder { return &messagesDecoder{keeps: true, pauses: true, turn: turn} }, strings.NewReader(stream))
	want := []hob.WebSearch{{Query: "weather", Results: []hob.WebResult{{Title: "Yr", URL: "https://yr.no"}}}}
	if diff := cmp.Diff(want, got.Searches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(string(got.Artefact), "["+string(begun)+",{"+servedMark) {
		t.Errorf("to be sent back: %s", got.Artefact)
	}
}
