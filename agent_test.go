package hob_test

import (
	"testing"

	"hob"
)

// A run may hold its answer back where its agent does not, and never show what its agent holds back.
func TestTuning_ARunCannotLiftAHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ agent, run, want hob.Buffering }{
		{"", "", ""},
		{"", hob.BufferStream, hob.BufferStream},
		{"", hob.BufferHold, hob.BufferHold},
		{hob.BufferStream, "", hob.BufferStream},
		{hob.BufferStream, hob.BufferHold, hob.BufferHold},
		{hob.BufferHold, "", hob.BufferHold},
		{hob.BufferHold, hob.BufferStream, hob.BufferHold},
		{hob.BufferHold, hob.BufferHold, hob.BufferHold},
	} {
		got := hob.Tuning{ResponseBuffering: c.run}.Over(hob.Tuning{ResponseBuffering: c.agent})
		if got.ResponseBuffering != c.want {
			t.Errorf("a run with %q of an agent with %q has %q, want %q", c.run, c.agent, got.ResponseBuffering, c.want)
		}
	}
}
