//go:build linux

package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// The arrivals are tried on a server that completes, refuses and fails in turns.
func TestArrivals_TellApartWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the first on a connection
			return
		}
		switch asked.Add(1) % 5 {
		case 0, 1:
			fmt.Fprint(w, "data: {\"event\":\"complete\",\"status\":\"completed\"}\n\n")
			_ = http.NewResponseController(w).Flush()
		case 2:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "{}", http.StatusTooManyRequests)
		case 3:
			http.Error(w, "{}", http.StatusServiceUnavailable)
		case 4:
			fmt.Fprint(w, "data: {\"event\":\"complete\",\"status\":\"failed\"}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	a := arrivals{
		clock: newClock(), rate: 200, lasts: time.Second, settle: 500 * time.Millisecond, conns: 8,
		target: to(addr, runs, request{method: http.MethodPost, host: addr, path: "/", body: []byte("{}")}.bytes()),
	}
	o, err := a.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made := int(asked.Load())
	if o.offered < 190 || o.offered > 201 || made != o.offered-o.unmade {
		t.Fatalf("offered %d, not made %d, came %d", o.offered, o.unmade, made)
	}
	want := [5]int{made / 5, (made + 4) / 5, (made + 3) / 5, (made + 2) / 5, (made + 1) / 5}
	if o.accepted != want[0]+want[1] || o.refused != want[2]+want[3] || o.untold != want[3] || o.failed != want[4] || o.why == nil {
		t.Fatalf("of %d requests %+v", made, [4]int{o.accepted, o.refused, o.untold, o.failed})
	}
	if o.times.count() == 0 || o.settling.count() == 0 || o.times.count()+o.settling.count() != o.accepted ||
		o.refusals.count() != o.refused || o.lag.count() != made {
		t.Fatalf("%d settling, %d behind, %d refusals, %d sent", o.settling.count(), o.times.count(), o.refusals.count(), o.lag.count())
	}
}

func TestArrivals_WhatFindsNoConnectionIsNotMade(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		<-release
		w.Header().Set("Retry-After", "1")
		http.Error(w, "{}", http.StatusServiceUnavailable)
	})
	time.AfterFunc(400*time.Millisecond, func() { close(release) })
	a := arrivals{
		clock: newClock(), rate: 100, lasts: 300 * time.Millisecond, conns: 2,
		target: to(addr, runs, request{method: http.MethodPost, host: addr, path: "/", body: []byte("{}")}.bytes()),
	}
	o, err := a.run(t.Context())
	if err != nil || o.offered < 20 || o.unmade != o.offered-2 || o.refused != 2 || o.untold != 0 {
		t.Fatalf("offered %d, not made %d, refused %d, untold %d, %v", o.offered, o.unmade, o.refused, o.untold, err)
	}
}
