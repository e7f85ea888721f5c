package engine

import (
	"sync"

	"hob"
)

// maxRuleLists is how many compiled lists are kept; at the bound the cache begins anew.
const maxRuleLists = 1024

// ruleCache keeps compiled rules by their text: the runs of an agent have the same ones.
type ruleCache struct {
	mu    sync.Mutex
	lists map[string]*Rules
}

// of compiles a list, nil where it is empty. The error is that of CompileRules.
func (c *ruleCache) of(list []hob.Rule) (*Rules, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	key := string(encodeFrame(list))
	c.mu.Lock()
	r := c.lists[key]
	c.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := CompileRules(list)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil || len(c.lists) >= maxRuleLists {
		c.lists = map[string]*Rules{}
	}
	c.lists[key] = r
	return r, nil
}
