package engine

import (
	"fmt"
	"strings"
	"testing"

	"hob"
)

func TestRecall_IsBoundedHoweverTurnsCome(t *testing.T) {
	t.Parallel()
	var r recall
	turn := func(n int64) hob.PastRun {
		return hob.PastRun{Turn: n, Messages: []hob.Message{{Role: hob.RoleUser, Content: strings.Repeat("x", 1<<20)}}}
	}
	for s := range 20 {
		id := fmt.Sprint(s)
		r.put(id, hob.History{Runs: []hob.PastRun{turn(1)}})
		for n := int64(2); n <= 10; n++ {
			r.add(id, turn(n), false)
		}
	}
	sum := 0
	for at := r.order.Front(); at != nil; at = at.Next() {
		sum += at.Value.(*remembered).bytes
	}
	if r.bytes > recallBytes || sum != r.bytes || len(r.byID) != r.order.Len() || len(r.byID) == 0 {
		t.Fatalf("%d bytes are kept (%d counted) of at most %d", r.bytes, sum, recallBytes)
	}
	if runs := r.get("19", 100).Runs; len(runs) != 10 {
		t.Fatalf("the latest session has %d turns", len(runs))
	}
	if runs := r.get("0", 100).Runs; runs != nil {
		t.Fatal("the oldest session is still kept")
	}
}
