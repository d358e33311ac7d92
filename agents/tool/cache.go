package tool

import (
	"bytes"
	"context"
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

// Cached wraps a tool whose results are cached (AAIF
// tools[].cache_ttl_seconds): a call with arguments that are the same JSON as
// before gets the earlier result, without calling the tool. Failures are not
// cached. The cache is local to this process and bounded; if it is full, the
// oldest results are dropped.
func Cached(t Tool, ttl time.Duration) Tool {
	return &cached{Tool: t, ttl: ttl, results: make(map[[32]byte]*cachedResult)}
}

type cached struct {
	Tool
	ttl time.Duration

	mu      sync.Mutex
	results map[[32]byte]*cachedResult
	order   []*cachedResult // oldest first; all have the same time to live
	bytes   int
}

type cachedResult struct {
	key    [32]byte
	result json.RawMessage
	until  time.Time
}

func (t *cached) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := keyOf(args)
	if result, ok := t.get(key); ok {
		return result, nil
	}
	result, err := t.Tool.Call(ctx, args)
	if err == nil {
		t.put(key, result)
	}
	return result, err
}

func (t *cached) RepeatSafe() bool { return IsRepeatSafe(t.Tool) }

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

func (t *cached) get(key [32]byte) (json.RawMessage, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(time.Now())
	r := t.results[key]
	if r == nil {
		return nil, false
	}
	return bytes.Clone(r.result), true
}

func (t *cached) put(key [32]byte, result json.RawMessage) {
	if len(result) > maxCachedBytes/16 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.results[key] != nil {
		return // of a concurrent call
	}
	r := &cachedResult{key, bytes.Clone(result), time.Now().Add(t.ttl)}
	t.results[key] = r
	t.order = append(t.order, r)
	t.bytes += len(r.result)
	for len(t.order) > maxCached || t.bytes > maxCachedBytes {
		t.drop()
	}
}

// expire removes expired results. t.mu is held.
func (t *cached) expire(now time.Time) {
	for len(t.order) > 0 && !now.Before(t.order[0].until) {
		t.drop()
	}
}

// drop removes the oldest result. t.mu is held.
func (t *cached) drop() {
	r := t.order[0]
	t.order[0] = nil
	t.order = t.order[1:]
	delete(t.results, r.key)
	t.bytes -= len(r.result)
}
