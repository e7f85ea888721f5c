package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"sync"

	"hob"
)

// PricesSetting is the setting with a workspace's own prices, in the form that ParsePrices reads.
const PricesSetting = "MODEL_PRICES"

// Bounds of what ParsePrices takes.
const (
	MaxPricesBytes = 64 << 10
	MaxPrice       = 1_000.0 // US dollars for a million tokens
)

// maxPriceTexts is how many texts of PricesSetting are kept parsed: one for each workspace that has its own.
const maxPriceTexts = 256

// vendors are those whose lightweight models and list prices are known, by the host of their own address. Behind any
// other address a model's name says nothing of what it costs, and there may be no lightweight one.
var vendors = map[string]string{
	"api.openai.com":                    openaiName,
	"api.anthropic.com":                 anthropicName,
	"generativelanguage.googleapis.com": geminiName,
	"openrouter.ai":                     openrouterName,
	"api.deepseek.com":                  "deepseek",
	"api.mistral.ai":                    "mistral",
	"api.x.ai":                          "xai",
}

// openrouterName is the provider's name in model strings.
const openrouterName = "openrouter"

// lightModels are the vendors' lightweight models, as model strings.
var lightModels = map[string]string{
	openaiName:     openaiName + "/gpt-4.1-nano",
	anthropicName:  anthropicName + "/claude-haiku-4-5",
	geminiName:     geminiName + "/gemini-2.5-flash-lite",
	openrouterName: openrouterName + "/openai/gpt-4.1-nano",
}

// vendor is whose own address a route leads to, "" for any other.
func (r *Registry) vendor(to route) string {
	base := ""
	switch {
	case to.key != nil:
		base = to.key.BaseURL
	case to.maker.endpoint != nil:
		e, _ := to.maker.endpoint(r.config)
		base = e.BaseURL
	}
	if strings.TrimSpace(base) == "" {
		return to.maker.name
	}
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil {
		return ""
	}
	return vendors[strings.ToLower(u.Hostname())]
}

// light is the lightweight model of the same provider with the same key, "" for the model itself: where the vendor's own
// address is not the one that is used, or the model is the lightweight one.
func (r *Registry) light(to route) string {
	light := lightModels[to.maker.name]
	if r.vendor(to) != to.maker.name || light == to.maker.name+"/"+to.model {
		return ""
	}
	return light
}

// price is what a model costs: what the workspace says, else the list price, else nil. Models that play a script or run
// on Ollama cost nothing.
func (r *Registry) price(ctx context.Context, ws hob.WorkspaceID, to route) (*hob.Price, error) {
	if r.config.Settings != nil {
		text, err := r.config.Settings(ctx, ws, PricesSetting)
		if err != nil {
			return nil, hob.Wrap("read the workspace's prices", err)
		}
		if own := r.prices.get(text); own != nil {
			if p := own.Of(to.maker.name, to.model); p != nil {
				return p, nil
			}
		}
	}
	if to.maker.name == ollamaName || to.maker.name == scriptedName {
		return &hob.Price{}, nil
	}
	return listPrice(r.vendor(to), to.model), nil
}

// Prices are a workspace's own prices of models.
type Prices struct {
	exact    map[string]hob.Price
	prefixes map[string]hob.Price // without the star
}

// ParsePrices reads the setting MODEL_PRICES: a JSON object like
//
//	{"openai/gpt-4o": {"input": 2.5, "output": 10, "cached_input": 1.25}, "my-model-*": {"input": 0, "output": 0}}
//
// in US dollars for a million tokens. A key is a whole model string, a model as its provider names it, or the part behind
// the name's last slash; with a star at its end it holds for every model that begins so. Case does not matter. An empty
// text sets no price. The error is Invalid and names the key.
func ParsePrices(text string) (*Prices, error) {
	p := &Prices{exact: map[string]hob.Price{}, prefixes: map[string]hob.Price{}}
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	bad := func(format string, args ...any) (*Prices, error) {
		return nil, hob.Errorf(hob.Invalid, format, args...).With("field", PricesSetting)
	}
	if len(text) > MaxPricesBytes {
		return bad("prices are longer than %d bytes", MaxPricesBytes)
	}
	var list map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil || list == nil {
		return bad(`prices must be a JSON object like {"openai/gpt-4o": {"input": 2.5, "output": 10, "cached_input": 1.25}}`)
	}
	for key, raw := range list {
		name, prefix := strings.CutSuffix(strings.ToLower(strings.TrimSpace(key)), "*")
		if name == "" && !prefix || strings.Contains(name, "*") {
			return bad("price of %q: the name must be that of a model, with a star at its end only", key)
		}
		price, err := parsePrice(raw)
		if err != nil {
			return bad("price of %q: %s", key, err)
		}
		if prefix {
			p.prefixes[name] = price
		} else {
			p.exact[name] = price
		}
	}
	return p, nil
}

func parsePrice(raw json.RawMessage) (hob.Price, error) {
	var v struct {
		Input  *float64 `json:"input"`
		Output *float64 `json:"output"`
		Cached *float64 `json:"cached_input"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	const form = "must be an object with the numbers input and output, and cached_input where it differs"
	var wrong *json.UnmarshalTypeError
	switch err := d.Decode(&v); {
	case errors.As(err, &wrong) && wrong.Field != "":
		return hob.Price{}, fmt.Errorf("%s is no number; it %s", wrong.Field, form)
	case err != nil:
		return hob.Price{}, errors.New(form)
	case v.Input == nil:
		return hob.Price{}, errors.New("input is missing; it " + form)
	case v.Output == nil:
		return hob.Price{}, errors.New("output is missing; it " + form)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return hob.Price{}, errors.New("must be one object")
	}
	for _, n := range []struct {
		name string
		is   *float64
	}{{"input", v.Input}, {"output", v.Output}, {"cached_input", v.Cached}} {
		if n.is != nil && (*n.is < 0 || *n.is > MaxPrice || math.IsNaN(*n.is)) {
			return hob.Price{}, fmt.Errorf("%s must be 0 to %g US dollars for a million tokens", n.name, MaxPrice)
		}
	}
	return hob.Price{Input: *v.Input, Output: *v.Output, Cached: v.Cached}, nil
}

// Of is the price of a provider's model, nil where none was set: the one under the whole model string before those under
// shorter names, and the longest beginning of them where only stars fit.
func (p *Prices) Of(provider, model string) *hob.Price {
	model = strings.ToLower(model)
	names := []string{provider + "/" + model, model, model[strings.LastIndexByte(model, '/')+1:]}
	for _, name := range names {
		if price, ok := p.exact[name]; ok {
			return &price
		}
	}
	length, best := -1, hob.Price{}
	for prefix, price := range p.prefixes {
		for _, name := range names {
			if len(prefix) > length && strings.HasPrefix(name, prefix) {
				length, best = len(prefix), price
			}
		}
	}
	if length < 0 {
		return nil
	}
	return &best
}

// priceCache keeps texts parsed. A broken one is kept as nil: it sets no price, and whoever sets it is told by ParsePrices.
type priceCache struct {
	mu     sync.Mutex
	byText map[string]*Prices
}

func (c *priceCache) get(text string) *Prices {
	if text == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.byText[text]; ok {
		return p
	}
	if len(c.byText) >= maxPriceTexts || c.byText == nil {
		c.byText = map[string]*Prices{}
	}
	p, err := ParsePrices(text)
	if err != nil {
		p = nil
	}
	c.byText[text] = p
	return p
}
