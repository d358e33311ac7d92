package schema

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
)

// MaxTogether is the most that the schemas of one origin may cost together. A schema
// costs one for each JSON value, 30 for each subschema, one for each hundred bytes, and
// the size of its regular expressions ([PatternSize]). A unit takes about a microsecond
// to compile. 500 tools of 30 subschemas each are within the limit.
const MaxTogether = 500_000

// A Pool compiles the schemas of one origin: an agent's document, or the tools that a
// server lists. [Compile] limits one schema; a pool limits the total cost of many. It
// compiles and counts equal texts once. The zero Pool is ready to use, by any number of
// goroutines at once.
type Pool struct {
	mu     sync.Mutex
	spent  int
	known  map[[sha256.Size]byte]*pooled
	before *Pool
}

// pooled is the result for one text.
type pooled struct {
	cost   int
	schema *Schema
	err    error
}

// Next returns a pool for the next list of the same origin, with the full limit. A schema
// that this pool has compiled counts in the new pool, too, but is not compiled again.
func (p *Pool) Next() *Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = nil // two generations are enough
	return &Pool{before: p}
}

// Compile is [Compile] within the pool's limit.
func (p *Pool) Compile(raw json.RawMessage) (*Schema, error) {
	key := sha256.Sum256(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	one, there := p.known[key]
	if there {
		return one.schema, one.err
	}
	if p.before != nil {
		one, there = p.before.lookup(key)
	}
	if !there && p.spent <= MaxTogether {
		one = &pooled{}
		one.cost, one.err = vet(raw)
	}
	if one != nil {
		p.spent += one.cost
	}
	if p.spent > MaxTogether {
		return nil, refuse("limit", fmt.Sprintf("is one too many: the schemas of one document or server may cost %d together", MaxTogether))
	}
	if one.err == nil && one.schema == nil {
		one.schema, one.err = build(raw)
	}
	if p.known == nil {
		p.known = make(map[[sha256.Size]byte]*pooled)
	}
	p.known[key] = one
	return one.schema, one.err
}

func (p *Pool) lookup(key [sha256.Size]byte) (*pooled, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, there := p.known[key]
	return one, there
}
