package provider

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var chunkSeeds = []string{
	`{"id":"c1","object":"chat.completion.chunk","created":17,"model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"look","arguments":""}}]},"logprobs":null,"finish_reason":null}],"usage":null}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"q\": \"ä\\n\"}"}}]}}]}`,
	`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
	`{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}}`,
	` { "choices" : [ { "delta" : { "content" : "x" , "refusal" : null } } ] } `,
}

// TestScanChunk_ReadsTheUsualChunksByHand keeps the seeds on the short way: without it they would be slow in silence.
func TestScanChunk_ReadsTheUsualChunksByHand(t *testing.T) {
	t.Parallel()
	for _, in := range chunkSeeds {
		var c chatChunk
		if !scanChunk([]byte(in), &c) {
			t.Errorf("not read by hand: %s", in)
		}
	}
	for _, in := range []string{
		`{"choices":[{"index":-1}]}`, `{"choices":[{"index":1.5}]}`, `{"choices":[{"index":01}]}`, `{"choices":[]} x`, `{"choices":[],"choices":[]}`,
		`{"error":{}}`, `{"choices":[{"delta":{"reasoning":"x"}}]}`, `{"usage":{"prompt_tokens":12345678901}}`, `{"model":"a\u0062"}`, `{`, ``,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":{"a":1}}}]}}]}`, `{"choices":[{"delta":{"content":"\ud800x`,
	} {
		var c chatChunk
		if scanChunk([]byte(in), &c) {
			t.Errorf("read by hand, but is the general decoder's: %s", in)
		}
	}
}

// FuzzScanChunk holds what is read by hand against encoding/json.
func FuzzScanChunk(f *testing.F) {
	for _, in := range chunkSeeds {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var byHand, general chatChunk
		if !scanChunk(data, &byHand) {
			return
		}
		if err := json.Unmarshal(data, &general); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", data, err)
		}
		if diff := cmp.Diff(general, byHand, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q (-encoding/json +by hand):\n%s", data, diff)
		}
	})
}
