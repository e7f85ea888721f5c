package store_test

import (
	"fmt"
	"testing"
	"time"

	"hob"
	"hob/internal/store"
)

// TestSweepWrites_ForgetsAfterAWeek: until then a second try of a write finds the first, afterwards it writes.
func TestSweepWrites_ForgetsAfterAWeek(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c store.Config) {
		at := &clock{at: hob.SystemClock()}
		c.Clock = at.now
		db := open(t, c)
		if _, err := db.CreateBucket(t.Context(), system(), hob.Bucket{ID: "b"}); err != nil {
			t.Fatal(err)
		}
		put := func() bool {
			kept, err := db.PutFile(t.Context(), system(), hob.FilePut{File: hob.File{Bucket: "b", Name: "x", Blob: "one"}, Overwrite: true, Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			return kept.Replayed
		}
		var got []string
		for _, after := range []time.Duration{0, 7*24*time.Hour - time.Second, 2 * time.Second} {
			at.add(after)
			n, err := db.SweepWrites(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(n, " ", put()))
		}
		if want := "[0 false 0 true 1 false]"; fmt.Sprint(got) != want {
			t.Errorf("swept, replayed: %v, want %s", got, want)
		}
	})
}
