package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/maphash"
	"slices"
	"sync"

	"hob"
)

// rulesKey is the key of config_override that holds rules: for every tool, judged by the engine.
const rulesKey = "rules"

// maxBindingBytes bounds the schemas and configurations that are remembered; over it all are forgotten at once.
const maxBindingBytes = 32 << 20

// source is what an assignment is bound to.
type source struct {
	name    string
	schema  json.RawMessage
	keys    []string // of config_override that are no arguments
	options func(keys map[string]json.RawMessage) (any, error)
	// argumentsFirst: an argument of the name of a key means the argument, but for rulesKey.
	argumentsFirst bool
}

// isKey says whether a member of config_override is no argument.
func (s *source) isKey(name string, schema *inputSchema) bool {
	return slices.Contains(s.keys, name) && (!s.argumentsFirst || name == rulesKey || !schema.has(name))
}

func (b *builtin) source(s *Set) source {
	src := source{name: b.name, schema: b.schema, keys: b.keys}
	if b.options != nil {
		src.options = func(keys map[string]json.RawMessage) (any, error) { return b.options(s, keys) }
	}
	return src
}

func customSource(t *hob.Tool) source {
	if t.Type == hob.WebTool {
		return webSource(t)
	}
	return source{
		schema: t.InputSchema, argumentsFirst: true,
		keys:    []string{rulesKey, allowedHostsKey, timeoutKey, maxCharsKey, maxCallsKey},
		options: func(keys map[string]json.RawMessage) (any, error) { return readLimits(keys) },
	}
}

// binding is what a config_override makes of a tool: immutable and shared by all runs that have the same one.
type binding struct {
	schema  json.RawMessage // for the model
	full    json.RawMessage // with the pinned arguments, where it differs
	pinned  hob.PinnedArgs
	rules   []hob.Rule
	options any
	ignored []string // keys that mean nothing
	err     error    // the configuration cannot be used; its kind is Invalid

	name       string
	fromSchema json.RawMessage
	fromConfig json.RawMessage
}

// bindings remembers bindings by content, so that runs compute no schema twice and a changed row is never served old.
type bindings struct {
	mu    sync.RWMutex
	seed  maphash.Seed
	byKey map[uint64]*binding
	size  int
	most  int
}

func newBindings(most int) *bindings {
	return &bindings{seed: maphash.MakeSeed(), byKey: map[uint64]*binding{}, most: most}
}

func (c *bindings) key(src source, config json.RawMessage) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(src.name)
	_ = h.WriteByte(0xff) // occurs in no valid UTF-8: the parts stay apart
	_, _ = h.Write(src.schema)
	_ = h.WriteByte(0xff)
	_, _ = h.Write(config)
	return h.Sum64()
}

func (c *bindings) get(key uint64) *binding {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byKey[key]
}

func (c *bindings) put(key uint64, b *binding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byKey[key]; old != nil {
		c.size -= old.bytes()
	}
	if c.size += b.bytes(); c.size > c.most {
		clear(c.byKey)
		c.size = b.bytes()
	}
	c.byKey[key] = b
}

// bytes estimates what a binding holds on to.
func (b *binding) bytes() int {
	return 512 + 2*(len(b.schema)+len(b.fromConfig)) + len(b.full) + len(b.fromSchema)
}

// bind applies a config_override to a tool. Equal inputs share one result.
func (s *Set) bind(src source, config json.RawMessage) *binding {
	key := s.bindings.key(src, config)
	if b := s.bindings.get(key); b != nil && b.name == src.name &&
		bytes.Equal(b.fromSchema, src.schema) && bytes.Equal(b.fromConfig, config) {
		return b
	}
	b := newBinding(src, config)
	b.name, b.fromSchema, b.fromConfig = src.name, bytes.Clone(src.schema), bytes.Clone(config)
	s.bindings.put(key, b)
	return b
}

func newBinding(src source, config json.RawMessage) *binding {
	schema, err := readSchema(src.schema)
	if err != nil {
		return &binding{err: err}
	}
	keys, err := overrides(config)
	if err != nil {
		return &binding{err: err}
	}
	b := &binding{schema: schema.raw}
	own := map[string]json.RawMessage{}
	for _, k := range keys {
		switch {
		case src.isKey(k.name, schema):
			own[k.name] = k.value
		case schema.forbids(k.name):
			b.ignored = append(b.ignored, k.name)
		default: // whatever the model would give for it
			if err := b.pin(schema, k); err != nil {
				return &binding{err: err}
			}
		}
	}
	if b.rules, err = readRules(own[rulesKey]); err != nil {
		return &binding{err: err}
	}
	if len(b.pinned) > 0 {
		b.full, b.schema = schema.raw, without(schema.raw, b.pinned)
	}
	if src.options != nil {
		b.options, b.err = src.options(own)
	}
	return b
}

// readRules reads the rules of a config_override. What cannot be read is an error, never a rule less: a tool does not run
// without the rules that somebody wrote for it. Their conditions are the engine's to read.
func readRules(raw json.RawMessage) ([]hob.Rule, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return nil, badKey(rulesKey, "must be a list of rules, each an object with a condition")
	}
	if len(list) > hob.MaxRules {
		return nil, badKey(rulesKey, "has %d rules, those that the workspace set included; %d are allowed", len(list), hob.MaxRules)
	}
	rules := make([]hob.Rule, len(list))
	for i, members := range list {
		r := &rules[i]
		for name, value := range members {
			var err error
			switch name {
			case "condition":
				err = json.Unmarshal(value, &r.Condition)
			case "action":
				err = json.Unmarshal(value, &r.Action)
			case "message":
				err = json.Unmarshal(value, &r.Message)
			case "ignore_case":
				err = json.Unmarshal(value, &r.IgnoreCase)
			default:
				err = errNoRuleKey
			}
			if err != nil {
				return nil, badKey(rulesKey, "has at %d, counted from 0, the key %q, which is no key of a rule or has a wrong type; a rule has condition, action and message, which are text, and ignore_case, true or false", i, shorten(name))
			}
		}
		if r.Condition == "" {
			return nil, badKey(rulesKey, "has at %d, counted from 0, a rule without condition", i)
		}
	}
	return rules, nil
}

var errNoRuleKey = errors.New("no key of a rule")

// pin fixes an argument.
func (b *binding) pin(schema *inputSchema, k member) error {
	if schema.has(k.name) {
		if err := schema.checkProperty(k.name, k.value); err != nil {
			return err
		}
	}
	if b.pinned == nil {
		b.pinned = hob.PinnedArgs{}
	}
	b.pinned[k.name] = k.value
	return nil
}

// overrides reads config_override. Nothing and null are the empty object.
func overrides(config json.RawMessage) ([]member, error) {
	if c := bytes.TrimSpace(config); len(c) == 0 || string(c) == "null" {
		return nil, nil
	}
	if err := hob.CheckJSON(config); err != nil {
		return nil, hob.Errorf(hob.Invalid, "config_override: %s", messageOf(err)).With("field", "config_override")
	}
	keys, ok := members(config)
	if !ok {
		return nil, hob.Errorf(hob.Invalid, "config_override must be an object").With("field", "config_override")
	}
	return keys, nil
}

// badKey is the error about one key of config_override.
func badKey(key, format string, args ...any) error {
	e := hob.Errorf(hob.Invalid, format, args...)
	e.Message = "config_override." + key + " " + e.Message
	return e.With("field", "config_override."+key)
}

// messageOf is the text of an error that callers may see.
func messageOf(err error) string {
	var e *hob.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return "internal error"
}
