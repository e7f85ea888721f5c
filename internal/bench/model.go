//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// modelName is the name agents and clients call the fake model by; it answers to any.
const modelName = "bench"

// kind is what a fake model says.
type kind string

// The kinds of model: text in one write, ten tool steps before the text, a token every 50 ms, and a few words that take a
// second.
const (
	textModel  kind = "text"
	toolModel  kind = "tools"
	pacedModel kind = "paced"
	slowModel  kind = "slow" // two tokens, within slowAnswer
)

// Numbers of the models.
const (
	textTokens    = 50
	toolSteps     = 10 // tool calls of a ten-tool run, one per step
	pacedInterval = 50 * time.Millisecond
	slowTokens    = 2
	slowAnswer    = time.Second // of an answer with slowTokens, which has slowPauses pauses
	slowPauses    = slowTokens + 3
)

// model is a fake model's process.
type model struct {
	*process
	addr string
}

// modelOf gives the model of a kind; it is started when it is first asked for and lives until the end.
func (b *bench) modelOf(ctx context.Context, k kind) (*model, error) {
	if m := b.models[k]; m != nil {
		return m, m.ended()
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"-addr", addr, "-mode", "text", "-tokens", strconv.Itoa(textTokens)}
	switch k {
	case toolModel:
		args = []string{"-addr", addr, "-mode", "tools", "-steps", strconv.Itoa(toolSteps), "-tokens", strconv.Itoa(textTokens)}
	case pacedModel:
		args = []string{"-addr", addr, "-mode", "text", "-interval", pacedInterval.String(), "-tokens", strconv.Itoa(b.plan.pacedTokens)}
	case slowModel:
		args = []string{"-addr", addr, "-mode", "text", "-interval", (slowAnswer / slowPauses).String(), "-tokens", strconv.Itoa(slowTokens)}
	case textModel:
	}
	p, err := start(launch{name: "the fake model", bin: b.modelBin, args: args, log: filepath.Join(b.folder, "model-"+string(k)+".log")})
	if err != nil {
		return nil, err
	}
	if err := listening(ctx, p, addr); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	b.models[k] = &model{p, addr}
	return b.models[k], nil
}

// stopModels ends all models.
func (b *bench) stopModels() error {
	var errs []error
	for k, m := range b.models {
		if err := m.stop(); err != nil {
			errs = append(errs, fmt.Errorf("model %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}
