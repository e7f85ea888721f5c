package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector is told how much garbage may pile up in bytes, not as a share of what lives: a small heap is collected
// rarely, a large one (ten thousand streams) does not double.
const (
	garbageBytes = 64 << 20
	leastGC      = 40  // percent, under a large heap
	mostGC       = 400 // percent, under a small one
)

// tuneGC follows the size of the heap until the context ends.
func tuneGC(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	now := 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		metrics.Read(sample)
		if want := gcPercent(sample[0].Value.Uint64() + sample[1].Value.Uint64()); want < now*4/5 || want > now*5/4 {
			now = want
			debug.SetGCPercent(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func gcPercent(live uint64) int {
	return int(min(max(garbageBytes*100/max(live, 1), leastGC), mostGC)) //nolint:gosec // between the two bounds
}
