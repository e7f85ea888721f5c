//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"hob"
)

// story is what Hob shows of one run afterwards.
type story struct {
	record hob.RunRecord
	log    []frame // all events, from the first
}

// found is what Hob shows when all is over: every run of an agent there is, whether or not anybody was told of it.
type found struct {
	runs     map[hob.RunID]*story
	sessions map[hob.SessionID][]hob.RunID // in the order of their turns
}

// The pages in which lists are read, and how many things are asked for at once.
const (
	pageSize = 100
	atOnce   = 4
)

// find reads all runs of an agent from a server that is up.
func find(ctx context.Context, addr string, agent hob.AgentID) (found, error) {
	f := found{runs: map[hob.RunID]*story{}, sessions: map[hob.SessionID][]hob.RunID{}}
	api := newAPI()
	defer api.close()
	var ids []hob.SessionID
	for offset := 0; ; offset += pageSize {
		var page struct {
			Sessions []hob.SessionRow
			Total    int
		}
		q := request{addr: addr, method: http.MethodGet, path: fmt.Sprintf("/api/agents/%s/sessions?limit=%d&offset=%d", agent, pageSize, offset)}
		if err := api.persist(ctx, q, &page); err != nil {
			return f, err
		}
		for _, row := range page.Sessions {
			ids = append(ids, row.ID)
		}
		if len(page.Sessions) < pageSize {
			break
		}
	}
	var mu sync.Mutex
	var first error
	each(ids, func(id hob.SessionID) {
		stories, err := readSession(ctx, api, addr, id)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && first == nil {
			first = err
		}
		for _, s := range stories {
			f.sessions[id] = append(f.sessions[id], s.record.ID)
			f.runs[s.record.ID] = s
		}
	})
	return f, first
}

// each calls do for all items, some at once.
func each[T any](items []T, do func(T)) {
	var group sync.WaitGroup
	next := make(chan T)
	for range atOnce {
		group.Go(func() {
			for item := range next {
				do(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	group.Wait()
}

// readSession reads the records and the logs of a session's runs.
func readSession(ctx context.Context, api *hobAPI, addr string, id hob.SessionID) ([]*story, error) {
	var stories []*story
	for offset := 0; ; {
		var page struct{ Runs []hob.RunRecord }
		q := request{addr: addr, method: http.MethodGet, path: "/api/sessions/" + string(id) + "/runs?offset=" + strconv.Itoa(offset)}
		if err := api.persist(ctx, q, &page); err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			s := &story{record: r}
			if err := s.readLog(ctx, api, addr); err != nil {
				return nil, err
			}
			stories = append(stories, s)
		}
		if offset += len(page.Runs); len(page.Runs) == 0 {
			return stories, nil
		}
	}
}

// readLog reads the log of a run. Of one that has not ended it reads what there is.
func (s *story) readLog(ctx context.Context, api *hobAPI, addr string) error {
	q := request{addr: addr, method: http.MethodGet, path: "/api/agents/runs/" + string(s.record.ID) + "/events?after=0"}
	err := api.stream(ctx, q, -1, func(f frame) bool {
		s.log = append(s.log, f)
		return f.kind != hob.EventComplete && (s.record.Status.Final() || f.seq < s.record.LastSeq)
	})
	if err != nil && len(s.log) == 0 {
		return fmt.Errorf("read the log of run %s: %w", s.record.ID, err)
	}
	return nil // a log that ends too early is for the checker
}
