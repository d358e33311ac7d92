package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// Limits of one tool's cache.
const (
	maxCached      = 1024     // results
	maxCachedBytes = 16 << 20 // all of them together
)

// cache keeps the results of a tool's calls (AAIF tools[].cache_ttl_seconds): a call with
// arguments that are the same JSON as before gets the earlier result. It is local to this
// process and bounded; if it is full, the oldest results are dropped.
type cache struct {
	ttl time.Duration

	mu      sync.Mutex
	results map[[32]byte]*cachedResult
	order   []*cachedResult // oldest first; all have the same time to live
	bytes   int
}

func newCache(ttl time.Duration) *cache {
	return &cache{ttl: ttl, results: make(map[[32]byte]*cachedResult)}
}

type cachedResult struct {
	key    [32]byte
	result json.RawMessage
	until  time.Time
}

// keyOf returns the same key for arguments that differ only in form. Arguments
// without a canonical form, such as those with numbers that a float would change,
// are compared byte for byte.
func keyOf(args json.RawMessage) [32]byte {
	canonical, err := envelope.Canonical(args)
	if err != nil {
		return sha256.Sum256(args)
	}
	return sha256.Sum256(canonical)
}

// get returns the result of a call with the same arguments.
func (c *cache) get(key [32]byte) (json.RawMessage, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(time.Now())
	r := c.results[key]
	if r == nil {
		return nil, false
	}
	return bytes.Clone(r.result), true
}

func (c *cache) put(key [32]byte, result json.RawMessage) {
	if len(result) > maxCachedBytes/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results[key] != nil {
		return // of a concurrent call
	}
	r := &cachedResult{key, bytes.Clone(result), time.Now().Add(c.ttl)}
	c.results[key] = r
	c.order = append(c.order, r)
	c.bytes += len(r.result)
	for len(c.order) > maxCached || c.bytes > maxCachedBytes {
		c.drop()
	}
}

// expire removes expired results. c.mu is held.
func (c *cache) expire(now time.Time) {
	for len(c.order) > 0 && !now.Before(c.order[0].until) {
		c.drop()
	}
}

// drop removes the oldest result. c.mu is held.
func (c *cache) drop() {
	r := c.order[0]
	c.order[0] = nil
	c.order = c.order[1:]
	delete(c.results, r.key)
	c.bytes -= len(r.result)
}
