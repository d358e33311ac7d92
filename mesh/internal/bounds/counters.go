package bounds

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Kinds of counters: the tasks that agents have sent one another, the turns that they
// have taken for them, and the usage of their models, in tokens and in billionths of a
// dollar. Each kind is counted at each of [Position.Counters].
const (
	CountTasks  = "tasks"
	CountTurns  = "turns" // with the id of a team's task: the turns of that team only
	CountTokens = "spend.tokens"
	CountUSD    = "spend.usd"
)

// Counters are shared counters. All workers of a mesh share those of package jetstream/counter.
// Add adds n to the counter that an owner, a kind and ids name, and returns the new total.
// The owner is an entity, or a tree: see [subject.Map.Count].
type Counters interface {
	Add(ctx context.Context, n int64, owner, kind string, ids ...string) (total int64, err error)
}

// A Keeper keeps the trees of a node's tasks within their bounds. It counts their tasks and
// turns. Additions to a counter that arrive while a request for that counter is under way are
// sent together in the next request.
type Keeper struct {
	limits   Limits
	counters func() Counters // returns nil: this process counts alone
	log      *slog.Logger

	mu    sync.Mutex
	busy  map[string]*counting
	local map[string]int64
	down  time.Time // until then the shared counters are not used
}

// NewKeeper makes a keeper with the operator's limits. counters returns the shared counters,
// nil while there are none.
func NewKeeper(limits Limits, counters func() Counters, log *slog.Logger) *Keeper {
	return &Keeper{limits: limits, counters: counters, log: log}
}

// counting exists while a request to its counter is under way.
type counting struct {
	owner, kind string
	ids         []string
	next        *countBatch
}

type countBatch struct {
	n     int64
	total int64
	done  chan struct{}
}

// countPatience is the timeout of a request to the shared counters. After a failed request
// the process counts alone for countPause. maxLocalCounters bounds the counters that the process
// then keeps; beyond it all of them start at 0 again.
const (
	countPatience    = 2 * time.Second
	countPause       = 10 * time.Second
	maxLocalCounters = 1 << 16
)

// An addition is a part of a batch, which may not be counted yet.
type addition struct {
	batch *countBatch
	upTo  int64 // the sum of the batch, up to this part and including it
}

// total waits for the counter's total after this addition.
func (a addition) total(ctx context.Context) (int64, error) {
	select {
	case <-a.batch.done:
		return a.batch.total - a.batch.n + a.upTo, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// add begins to add n to a counter.
func (k *Keeper) add(n int64, corr, owner, kind string, ids ...string) addition {
	key := owner + "\x00" + kind + "\x00" + strings.Join(ids, "\x00")
	k.mu.Lock()
	if k.counters() == nil || time.Now().Before(k.down) {
		defer k.mu.Unlock()
		done := make(chan struct{})
		close(done)
		return addition{&countBatch{n: n, total: k.addLocal(key, n), done: done}, n}
	}
	if k.busy == nil {
		k.busy = map[string]*counting{}
	}
	c := k.busy[key]
	if c == nil {
		c = &counting{owner: owner, kind: kind, ids: ids}
		k.busy[key] = c
		go k.count(key, c, corr)
	}
	if c.next == nil {
		c.next = &countBatch{done: make(chan struct{})}
	}
	mine := c.next
	mine.n += n
	upTo := mine.n
	k.mu.Unlock()
	return addition{mine, upTo}
}

// count sends the batches of one counter until none is left.
func (k *Keeper) count(key string, c *counting, corr string) {
	for {
		k.mu.Lock()
		batch := c.next
		c.next = nil
		if batch == nil {
			delete(k.busy, key)
		}
		k.mu.Unlock()
		if batch == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), countPatience)
		total, err := k.counters().Add(ctx, batch.n, c.owner, c.kind, c.ids...)
		cancel()
		if err != nil {
			k.log.Warn("shared counters unreachable, counting the tree in this process only", "corr", corr, "err", err)
			k.mu.Lock()
			k.down = time.Now().Add(countPause)
			total = k.addLocal(key, batch.n)
			k.mu.Unlock()
		}
		batch.total = total
		close(batch.done)
	}
}

// addLocal adds to a counter of this process. k.mu is held.
func (k *Keeper) addLocal(key string, n int64) int64 {
	if k.local == nil || len(k.local) >= maxLocalCounters {
		k.local = map[string]int64{}
	}
	k.local[key] += n
	return k.local[key]
}
