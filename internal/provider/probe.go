package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"hob"
)

// Defaults of probing.
const (
	DefaultProbeEach  = 60 * time.Second // of one call
	DefaultProbeTotal = 10 * time.Minute // of all
)

// ProbeConfig says which model at which endpoint is probed.
type ProbeConfig struct {
	Dialect string // openai, anthropic or gemini
	BaseURL string // as the dialect's variable has it: with the version for openai, without it for the others
	Key     hob.Secret
	KeyName string // how messages call what holds the key; "" = the key
	Model   string // as the endpoint names it
	Clients Clients
	Each    time.Duration // of one call; 0 = DefaultProbeEach
	Total   time.Duration // of all; 0 = DefaultProbeTotal
	Told    func(Check)   // gets each check when it is done; nil = nobody
}

// Outcome is how a check came out.
type Outcome string

// The outcomes.
const (
	Yes     Outcome = "yes"
	No      Outcome = "no"
	Unclear Outcome = "unclear" // the endpoint failed, or the model did not do what would have shown it
)

// Check is one line of a report.
type Check struct {
	Name    string  `json:"check"`
	Outcome Outcome `json:"outcome"`
	Note    string  `json:"note"`
}

// ProbeReport is what probing found.
type ProbeReport struct {
	Endpoint  string  `json:"endpoint"`
	Model     string  `json:"model"`
	Dialect   string  `json:"dialect"`
	Usable    bool    `json:"usable"` // a plain question was answered
	Checks    []Check `json:"checks"`
	Facts     Facts   `json:"facts"`
	Calls     int     `json:"calls"`
	Tokens    int64   `json:"tokens"`    // used by all calls
	Estimated bool    `json:"estimated"` // some of the tokens were counted by their characters
}

// Profile is the report as it is stored.
func (r ProbeReport) Profile(at time.Time) (hob.ModelProfile, error) {
	facts, err := json.Marshal(r.Facts)
	return hob.ModelProfile{Endpoint: r.Endpoint, Model: r.Model, TestedAt: hob.Time{Time: at}, Facts: facts}, err
}

// Dialects are the names of the dialects that can be probed.
func Dialects() []string { return []string{openaiName, anthropicName, geminiName} }

// GuessDialect is the dialect of a vendor's own address; all others speak OpenAI's as a rule.
func GuessDialect(baseURL string) string {
	switch {
	case strings.Contains(baseURL, "://api.anthropic.com"):
		return anthropicName
	case strings.Contains(baseURL, "://generativelanguage.googleapis.com"):
		return geminiName
	}
	return openaiName
}

// Probe asks a model a series of small questions and finds out how it and its server deviate from what the tables say.
// Each question is made by the same code that later makes a run's calls, under trial facts, so what it finds to work works.
// The questions are independent: where one fails the others are asked all the same, but for the first, a plain one,
// without whose answer the endpoint is of no use. The error is for a wrong configuration; what the endpoint does wrong is
// in the report.
func Probe(ctx context.Context, c ProbeConfig) (ProbeReport, error) {
	p := &prober{config: c, tap: &tap{Clients: c.Clients}, report: ProbeReport{
		Endpoint: strings.TrimRight(strings.TrimSpace(c.BaseURL), "/"), Model: c.Model, Dialect: c.Dialect,
	}}
	switch {
	case !slices.Contains(Dialects(), c.Dialect):
		return p.report, hob.Errorf(hob.Invalid, "there is no dialect %q; it is one of %s", c.Dialect, strings.Join(Dialects(), ", "))
	case p.report.Endpoint == "":
		return p.report, hob.Errorf(hob.Invalid, "an address is needed, as https://host/v1")
	case c.Model == "":
		return p.report, hob.Errorf(hob.Invalid, "a model is needed, as the endpoint names it")
	case c.Clients == nil:
		return p.report, hob.Errorf(hob.Internal, "probe a provider: no HTTP clients were given")
	}
	if p.config.Each <= 0 {
		p.config.Each = DefaultProbeEach
	}
	if p.config.Total <= 0 {
		p.config.Total = DefaultProbeTotal
	}
	if _, err := p.open(ctx, Facts{}); err != nil {
		return p.report, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Total)
	defer cancel()
	for i, one := range probes {
		check := one.run(p, ctx)
		check.Name = one.name
		p.report.Checks = append(p.report.Checks, check)
		if c.Told != nil {
			c.Told(check)
		}
		if p.report.Usable = i > 0 || check.Outcome == Yes; !p.report.Usable {
			break
		}
	}
	p.report.Facts = p.facts
	return p.report, nil
}

// prober is probing under way.
type prober struct {
	config  ProbeConfig
	tap     *tap
	facts   Facts // found so far
	report  ProbeReport
	first   heard // the plain answer
	called  heard // an answer that calls the tool; without calls where the model made none
	thought bool  // some answer had reasoning
	usual   bool  // a tool's name of MaxToolName characters was taken
}

// openai says whether the dialect is the one that servers of all kinds speak, so that fields may be unknown to them.
func (p *prober) openai() bool { return p.config.Dialect == openaiName }

// table is what the tables say about the model.
func (p *prober) table() family { return familyOf(p.config.Model) }

// open makes the model as a registry does for a run, under trial facts.
func (p *prober) open(ctx context.Context, trial Facts) (hob.Model, error) {
	facts, err := json.Marshal(trial)
	if err != nil {
		return hob.Model{}, err
	}
	at := Endpoint{Key: p.config.Key, BaseURL: p.report.Endpoint}
	c := Config{
		Clients: p.tap, names: &endpointNames{key: cmp.Or(p.config.KeyName, "the key"), url: "the address " + quote(p.report.Endpoint)}, Retries: 1, BreakAfter: -1,
		FirstWait: p.config.Each, ThinkerWait: p.config.Each, Idle: p.config.Each, Stall: p.config.Each, Total: p.config.Each,
		Profiles: func(context.Context) ([]hob.ModelProfile, error) {
			return []hob.ModelProfile{{Endpoint: p.report.Endpoint, Model: p.config.Model, Facts: facts}}, nil
		},
	}
	switch p.config.Dialect {
	case anthropicName:
		c.Anthropic = at
	case geminiName:
		c.Gemini = at
	default:
		c.OpenAI = at
	}
	return New(c).Open(ctx, hob.DefaultWorkspace, p.config.Dialect+"/"+p.config.Model)
}

// heard is the answer to a call.
type heard struct {
	text, reasoning string
	calls           []hob.ModelCall
	artefact        json.RawMessage
	finish          string
	err             *hob.ProviderError
	wire            wire // as it came
}

// answered says whether the call was answered at all.
func (h heard) answered() bool { return h.err == nil }

// refused says whether the endpoint did not take the request, as opposed to having a bad day: an invalid request, or the
// fault of its own that some servers make of one.
func (h heard) refused() bool {
	return h.err != nil && h.err.Status != 0 &&
		(h.err.Class == hob.ClassBadRequest || h.err.Class == hob.ClassPromptTooLong || h.err.Class == hob.ClassModelError)
}

// why is the error as a note.
// words is the beginning of what the model said, for a table.
func (h heard) words() string {
	const most = 60 // characters
	text := []rune(quote(strings.TrimSpace(h.text)))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	return string(text)
}

func (h heard) why() string { return quote(h.err.Message) }

// call makes one call under trial facts.
func (p *prober) call(ctx context.Context, trial Facts, r hob.Request) heard {
	var h heard
	m, err := p.open(ctx, trial)
	if err != nil {
		return heard{err: &hob.ProviderError{Class: hob.ClassBadRequest, Message: err.Error()}}
	}
	r.Model, r.Step = m.Model, 1
	p.report.Calls++
	p.tap.forget()
	var usage *hob.Usage
	for d, err := range m.Provider.Stream(ctx, r) {
		if err != nil {
			if !errors.As(err, &h.err) {
				h.err = &hob.ProviderError{Class: hob.ClassModelError, Message: err.Error()}
			}
			break
		}
		h.text += d.Text
		h.reasoning += d.Reasoning
		if d.Call != nil {
			h.calls = append(h.calls, *d.Call)
		}
		if len(d.Artefact) > 0 {
			h.artefact = d.Artefact
		}
		if d.Finish != "" {
			h.finish, usage = d.Finish, d.Usage
		}
	}
	if h.err == nil {
		p.spend(r, h, usage)
		h.wire = observe(p.config.Dialect, p.tap.body)
		p.note(h.wire)
	}
	return h
}

// spend counts the tokens of a call that was answered.
func (p *prober) spend(r hob.Request, h heard, told *hob.Usage) {
	if told != nil && told.TotalTokens > 0 {
		p.report.Tokens += told.TotalTokens
		return
	}
	const perToken = 4 // characters
	_, text := requestSize(r)
	p.report.Tokens += int64(text+len(h.text)+len(h.reasoning))/perToken + 1
	p.report.Estimated = true
}

// note keeps what every answer may show.
func (p *prober) note(w wire) {
	for _, f := range w.finish {
		if !slices.Contains(p.facts.FinishReasons, f) {
			p.facts.FinishReasons = append(p.facts.FinishReasons, f)
			slices.Sort(p.facts.FinishReasons)
		}
	}
	if w.reasoning != "" {
		p.thought = true
		p.facts.Reasoning = w.reasoning
	}
}

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

func plainAsk(text string) hob.Request {
	return hob.Request{Messages: []hob.Message{{Role: hob.RoleUser, Content: text}}}
}

// unclear is the check of an endpoint that failed for another reason than the one that was to be found out.
func unclear(h heard) Check { return Check{Outcome: Unclear, Note: h.why()} }

// said says whether an answer has a word, in whatever case.
func (h heard) said(word string) bool {
	return strings.Contains(strings.ToLower(h.text), strings.ToLower(word))
}
