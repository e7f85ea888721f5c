package main

import "testing"

func TestGC_GarbageIsBoundedInBytesNotAsAShare(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 400, 5 << 20: 400, 32 << 20: 200, 64 << 20: 100, 128 << 20: 50, 1 << 30: 40} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes live: %d %%, want %d", live, got, want)
		}
	}
}
