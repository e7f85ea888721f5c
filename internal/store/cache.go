package store

import "sync"

// cacheBound is how many entries a cache holds; at the bound it begins anew. What it holds is a few hundred bytes each.
const cacheBound = 16 << 10

// cache remembers rows that nothing changes, to spare looking them up. Losing an entry costs a statement and nothing else.
type cache[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]V
}

func (c *cache[K, V]) get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.m[k]
	return v, ok
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= cacheBound {
		c.m = map[K]V{}
	}
	c.m[k] = v
}

func (c *cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, k)
}
