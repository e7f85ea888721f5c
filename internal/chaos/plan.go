//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"hob"
)

// The tools, one for each recovery class; they are served by the harness itself.
const (
	toolOnce  = "once"
	toolKeyed = "keyed"
	toolRead  = "read"
)

// plan is what the model plays for a message: a step of tool calls for each element, and a text of so many words.
type plan struct {
	steps [][]string // tools that are called in each step
	words int
}

// String is the plan as it stands in a message: "once,keyed+read,text40".
func (p plan) String() string {
	var parts []string
	for _, s := range p.steps {
		parts = append(parts, strings.Join(s, "+"))
	}
	return strings.Join(append(parts, "text"+strconv.Itoa(p.words)), ",")
}

// readPlan is the inverse of String.
func readPlan(text string) (plan, error) {
	var p plan
	for part := range strings.SplitSeq(text, ",") {
		if n, found := strings.CutPrefix(part, "text"); found {
			words, err := strconv.Atoi(n)
			if err != nil {
				return p, fmt.Errorf("read the plan %q: %w", text, err)
			}
			p.words = words
			return p, nil
		}
		p.steps = append(p.steps, strings.Split(part, "+"))
	}
	return p, fmt.Errorf("the plan %q has no text", text)
}

// anyPlan draws a plan with at most so many steps and words.
func anyPlan(r *rand.Rand, steps, words int) plan {
	tools := []string{toolOnce, toolKeyed, toolRead}
	p := plan{words: 1 + r.IntN(words)}
	for range r.IntN(steps + 1) {
		var step []string
		for range 1 + r.IntN(3)*r.IntN(2) {
			step = append(step, tools[r.IntN(len(tools))])
		}
		p.steps = append(p.steps, step)
	}
	return p
}

// The message of a plan, and how the mark and the plan are found in it again.
var marked = regexp.MustCompile(`mark=(\S+) plan=(\S+)`)

func messageText(mark string, p plan) string { return fmt.Sprintf("mark=%s plan=%s", mark, p) }

// readMessage finds the mark and the plan in a message.
func readMessage(text string) (mark string, p plan, err error) {
	m := marked.FindStringSubmatch(text)
	if m == nil {
		return "", p, fmt.Errorf("no mark and plan in %q", text[:min(len(text), 100)])
	}
	p, err = readPlan(m[2])
	return m[1], p, err
}

// word is the i-th word of the answer to a message.
func word(mark string, i int) string { return fmt.Sprintf("%s.%d ", mark, i) }

// digest stands for the results that the model has read when it answers. It is part of each of its answers, so that one
// can be told from an answer to other results.
func digest(results []string) string {
	return strconv.FormatUint(hash(strings.Join(results, "\x00")), 36)
}

// answer is the whole answer to a message behind the results of all calls.
func answer(mark string, p plan, results []string) string {
	var b strings.Builder
	for i := range p.words {
		b.WriteString(word(mark, i))
	}
	return b.String() + digest(results)
}

// arguments are those of a call of a plan, behind the results of the steps before.
func arguments(mark string, step, i int, results []string) map[string]any {
	return map[string]any{"mark": mark, "step": step, "n": i, "behind": digest(results)}
}

// callID names a call of a plan: the i-th of a step.
func callID(mark string, step, i int) hob.CallID {
	return hob.CallID(fmt.Sprintf("call_%s_%d_%d", mark, step, i))
}
