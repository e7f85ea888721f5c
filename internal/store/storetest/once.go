package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"hob"
)

func onceCases() map[string]func(*world) {
	return map[string]func(*world){
		"OnceGivesTheSameAnswerAgain":     onceAgain,
		"OnceKeepsNothingOfAFailure":      onceFails,
		"OnceMakesOneOfManyAtTheSameTime": onceTogether,
		"OnceMakesOneOfManyWithOneName":   onceTogetherByName,
	}
}

func onceKey(key, digest string) hob.Idempotency {
	return hob.Idempotency{Scope: "alice POST /api/agents", Key: key, Digest: digest, Keep: time.Hour}
}

// creates makes an agent and answers with its id.
func (w *world) creates(name string) func(context.Context, hob.Store) (hob.Answer, error) {
	return func(ctx context.Context, s hob.Store) (hob.Answer, error) {
		a, err := s.CreateAgent(ctx, w.service, hob.Agent{Name: name, Model: "m"})
		if err != nil {
			return hob.Answer{}, err
		}
		if a, err = s.Agent(ctx, w.service, a.ID); err != nil { // it is there within the transaction
			return hob.Answer{}, err
		}
		return hob.Answer{Status: 201, Body: []byte(a.ID)}, nil
	}
}

func (w *world) named(name string) int64 {
	w.t.Helper()
	page, err := w.s.Agents(w.ctx, w.service, hob.ListOptions{Limit: 1, Query: name})
	w.must(err)
	return page.Total
}

func onceAgain(w *world) {
	first, replayed, err := w.s.Once(w.ctx, onceKey("k", "d"), w.creates("unique"))
	w.must(err)
	same(w, "replayed", replayed, false)
	same(w, "status", first.Status, 201)
	again, replayed, err := w.s.Once(w.ctx, onceKey("k", "d"), w.creates("unique"))
	w.must(err)
	same(w, "replayed", replayed, true)
	same(w, "answer", string(again.Body), string(first.Body))
	same(w, "status", again.Status, 201)
	_, _, err = w.s.Once(w.ctx, onceKey("k", "another body"), w.creates("unique"))
	w.want(hob.Unprocessable, err)
	same(w, "agents", w.named("unique"), int64(1))
	other := onceKey("k", "d")
	other.Scope = "bob POST /api/agents"
	_, replayed, err = w.s.Once(w.ctx, other, w.creates("unique"))
	w.must(err)
	same(w, "replayed to another caller", replayed, false)
	late := onceKey("late", "d")
	late.Keep = -time.Second
	for range 2 { // a key that is past its time is free again
		_, replayed, err = w.s.Once(w.ctx, late, w.creates("late"))
		w.must(err)
		same(w, "replayed after its time", replayed, false)
	}
	same(w, "agents", w.named("late"), int64(2))
}

func onceFails(w *world) {
	refusal := hob.Errorf(hob.Conflict, "no")
	_, _, err := w.s.Once(w.ctx, onceKey("k", "d"), func(ctx context.Context, s hob.Store) (hob.Answer, error) {
		if _, err := w.creates("halfway")(ctx, s); err != nil {
			return hob.Answer{}, err
		}
		return hob.Answer{}, refusal
	})
	w.want(hob.Conflict, err)
	same(w, "agents", w.named("halfway"), int64(0))
	_, replayed, err := w.s.Once(w.ctx, onceKey("k", "d"), w.creates("halfway"))
	w.must(err)
	same(w, "replayed", replayed, false)
	same(w, "agents", w.named("halfway"), int64(1))
}

func onceTogether(w *world) {
	w.together(w.creates("together"))
	same(w, "agents", w.named("together"), int64(1))
}

// What is made has a name that only one may have: whoever comes second must find the answer, not the name.
func onceTogetherByName(w *world) {
	w.together(func(ctx context.Context, s hob.Store) (hob.Answer, error) {
		time.Sleep(50 * time.Millisecond) // whoever is let in beside this one has looked for an answer by then
		t, err := s.CreateTool(ctx, w.service, hob.Tool{
			Name: "together", Description: "d", Type: hob.HTTPTool, InputSchema: []byte(`{"type":"object"}`),
			Config: hob.ToolConfig{Endpoint: "https://x.example", Method: "POST"}, IsActive: true,
		})
		return hob.Answer{Status: 201, Body: []byte(t.ID)}, err
	})
	tools, err := w.s.Tools(w.ctx, w.service)
	w.must(err)
	same(w, "tools", len(tools), 1)
}

// together carries do out under one key, for many callers at the same time.
func (w *world) together(do func(context.Context, hob.Store) (hob.Answer, error)) {
	w.t.Helper()
	const callers = 8
	var wg sync.WaitGroup
	var fresh atomic.Int64
	answers := make([]string, callers)
	for i := range callers {
		wg.Go(func() {
			a, replayed, err := w.s.Once(w.ctx, onceKey("k", "d"), do)
			if err != nil {
				w.t.Error(err)
				return
			}
			if !replayed {
				fresh.Add(1)
			}
			answers[i] = string(a.Body)
		})
	}
	wg.Wait()
	same(w, "made", fresh.Load(), int64(1))
	for _, a := range answers {
		same(w, "answer", a, answers[0])
	}
}
