//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// What agents are told and asked, on the way through Hob and on the straight one.
const (
	systemPrompt = "You are a helpful assistant of a shop. Answer briefly."
	question     = "What do the articles cost?"
)

// stand is a running server with an agent, beside the straight way to the model that the agent talks to.
type stand struct {
	*server
	agent string
	tool  string // its HTTP tool, where the model asks for tools
	model *model
}

// standing is what a stand is made of.
type standing struct {
	folder string
	kind   kind // of the model; for toolModel the agent has the tool
	pprof  string
}

// stand starts a server on a fresh folder and makes the agent.
func (b *bench) stand(ctx context.Context, w standing) (*stand, error) {
	m, err := b.modelOf(ctx, w.kind)
	if err != nil {
		return nil, err
	}
	v, err := b.serve(ctx, setting{data: b.newData(w.folder), model: baseURL(m.addr), tool: b.tools.addr, pprof: w.pprof})
	if err != nil {
		return nil, err
	}
	s := &stand{server: v, model: m}
	s.agent, err = v.agent(ctx, "bench")
	if err == nil && w.kind == toolModel {
		s.tool, err = v.tool(ctx, b.tools.endpoint())
	}
	if err == nil && w.kind == toolModel {
		err = v.give(ctx, s.agent, s.tool)
	}
	if err == nil && w.kind != pacedModel { // one whole paced stream takes as long as its measurement
		err = s.prove(ctx, w.kind)
	}
	if err != nil {
		return nil, errors.Join(err, v.stop())
	}
	return s, nil
}

// raw is the straight way of a run without tools.
func (s *stand) raw() target {
	return to(s.model.addr, chats, chat(s.model.addr, firstMessages(), nil))
}

// through is the same run through Hob, each in a new session.
func (s *stand) through() target {
	return to(s.addr, runs, s.runRequest(s.agent, "", question))
}

func firstMessages() []any {
	return []any{
		map[string]string{"role": "system", "content": systemPrompt},
		map[string]string{"role": "user", "content": question},
	}
}

// chat is a streamed request to a model.
func chat(addr string, messages []any, tools []chatTool) []byte {
	return request{
		method: http.MethodPost, host: addr, path: "/v1/chat/completions", key: "bench", body: encode(struct {
			Model    string          `json:"model"`
			Messages []any           `json:"messages"`
			Stream   bool            `json:"stream"`
			Options  map[string]bool `json:"stream_options"`
			Tools    []chatTool      `json:"tools,omitempty"`
		}{modelName, messages, true, map[string]bool{"include_usage": true}, tools}),
	}.bytes()
}

// chatTool is a tool as a model is told of it, members in the usual order.
type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  map[string]any `json:"parameters"`
}

func chatTools() []chatTool {
	return []chatTool{{"function", chatFunction{toolName, toolAbout, toolSchema()}}}
}

// textRuns is part 1.
func (b *bench) textRuns(ctx context.Context) error {
	s, err := b.stand(ctx, standing{"text", textModel, b.pprof})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	profile := b.profile(ctx, 1, 2)
	defer profile()
	raw, hob := streams(b.clock, s.raw()), streams(b.clock, s.through())
	var base float64
	for _, clients := range []int{32, 256} {
		r, err := b.compare(ctx, s.pid(), comparison{raw: raw, hob: hob, clients: clients})
		if err != nil {
			return fmt.Errorf("%d clients: %w", clients, err)
		}
		what := fmt.Sprintf("50-token text runs, %d clients", clients)
		b.report.rates(1, what, r.raw.rate(), r.hob.rate(), atMost(15, 6.5))
		b.report.measured(1, what+": p95 ÷ p50", "", ratio(float64(r.hob.times.p95()), float64(r.hob.times.p50())), atMost(0, 2))
		b.report.measured(1, what+": CPU per run", "ms", inMS(r.cpu), atMost(1, 0.35))
		b.report.quantiles(1, fmt.Sprintf("%d clients, raw, one run", clients), &r.raw.times)
		b.report.quantiles(1, fmt.Sprintf("%d clients, hob, one run", clients), &r.hob.times)
		b.report.quantiles(1, fmt.Sprintf("%d clients, hob, first text", clients), &r.hob.firsts)
		if base == 0 {
			base = r.hob.rate()
			continue
		}
		b.report.measured(1, "text runs/s, 256 clients ÷ 32 clients", "", ratio(r.hob.rate(), base), atLeast(0, 1))
	}
	return b.memoryLine(1, s.pid())
}

// toolRuns is part 2.
func (b *bench) toolRuns(ctx context.Context) error {
	const clients = 64
	s, err := b.stand(ctx, standing{"tools", toolModel, b.pprof})
	if err != nil {
		return err
	}
	defer b.end(s.process)
	turns, err := b.converse(ctx, s.model)
	if err != nil {
		return err
	}
	profile := b.profile(ctx, 2, 1)
	defer profile()
	r, err := b.compare(ctx, s.pid(), comparison{
		raw: b.conversations(s.model, turns), hob: streams(b.clock, s.through()), clients: clients,
	})
	if err != nil {
		return err
	}
	b.report.rates(2, "ten-tool runs, 64 clients", r.raw.rate(), r.hob.rate(), atMost(8, 4))
	b.report.measured(2, "ten-tool runs: CPU per run", "ms", inMS(r.cpu), atMost(5, 2.6))
	b.report.quantiles(2, "raw, 11 model and 10 tool calls", &r.raw.times)
	b.report.quantiles(2, "hob, one run", &r.hob.times)
	return b.memoryLine(2, s.pid())
}

// memoryLine notes the memory of a process after its load.
func (b *bench) memoryLine(part, pid int) error {
	rss, err := rssOf(pid)
	if err != nil {
		return err
	}
	b.report.line(part, "RSS of hob after the load: %s", mib(rss))
	return nil
}

// comparison is what is measured against what.
type comparison struct {
	raw, hob opener
	clients  int
}

// compared is what came of it. cpu is the processor time of Hob's process per run.
type compared struct {
	raw, hob outcome
	cpu      time.Duration
}

// compare loads the floor and Hob in turns, in short slices, so that a machine that becomes slower or faster does so for
// both. A first round warms up and does not count.
func (b *bench) compare(ctx context.Context, pid int, c comparison) (compared, error) {
	var r compared
	var cpu time.Duration
	for round := range b.plan.rounds + 1 {
		lasts := b.plan.slice
		if round == 0 {
			lasts = b.plan.warm
		}
		s := slice{clock: b.clock, clients: c.clients, lasts: lasts, open: c.raw}
		raw, err := s.load(ctx)
		if err != nil {
			return r, fmt.Errorf("raw: %w", err)
		}
		s.open = c.hob
		m, err := startMeter(pid, b.clock)
		if err != nil {
			return r, err
		}
		hob, err := s.load(ctx)
		if err != nil {
			return r, fmt.Errorf("hob: %w", err)
		}
		used, _, err := m.stop()
		if err != nil {
			return r, err
		}
		if round == 0 {
			if err := errors.Join(raw.err(), hob.err()); err != nil {
				return r, err
			}
			continue
		}
		r.raw.add(raw)
		r.hob.add(hob)
		cpu += used
	}
	if r.hob.runs > 0 {
		r.cpu = cpu / time.Duration(r.hob.runs)
	}
	return r, errors.Join(r.raw.err(), r.hob.err())
}
