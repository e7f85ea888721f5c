package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hob"
)

// TestWiden: two tools allow together what either allows.
func TestWiden(t *testing.T) {
	t.Parallel()
	allows := func(d ...string) hob.WebSearchOptions { return hob.WebSearchOptions{AllowedDomains: d} }
	blocks := func(d ...string) hob.WebSearchOptions { return hob.WebSearchOptions{BlockedDomains: d} }
	for name, c := range map[string]struct{ a, b, want hob.WebSearchOptions }{
		"both allow some":        {allows("b", "a"), allows("a", "c"), allows("a", "b", "c")},
		"one allows all":         {allows("a"), hob.WebSearchOptions{}, hob.WebSearchOptions{}},
		"one allows what is not": {allows("a"), blocks("a", "b"), blocks("b")},
		"the other way":          {blocks("a", "b"), allows("a"), blocks("b")},
		"both block some":        {blocks("a", "b"), blocks("b", "c"), blocks("b")},
		"the larger number":      {hob.WebSearchOptions{MaxUses: 2}, hob.WebSearchOptions{MaxUses: 7}, hob.WebSearchOptions{MaxUses: 7}},
	} {
		if diff := cmp.Diff(&c.want, widen(&c.a, c.b), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := widen(nil, allows("a")); !cmp.Equal(*got, allows("a")) {
		t.Errorf("the first is %+v", got)
	}
}
