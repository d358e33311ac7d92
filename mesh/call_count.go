package mesh

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Kinds of counters: the tasks that agents have sent one another, the turns that they
// have taken for them, and the usage of their models, in tokens and in billionths of a
// dollar. Each kind is counted at each of [Task.Counters].
const (
	CountTasks  = "tasks"
	CountTurns  = "turns" // with the id of a team's task: the turns of that team only
	CountTokens = "spend.tokens"
	CountUSD    = "spend.usd"
)

// Counters are shared counters. All workers of a mesh share [jetstream.Counters].
// Add adds n to the counter that an owner, a kind and ids name, and returns the new total.
// The owner is an entity, or a tree: see [subject.Map.Count].
type Counters interface {
	Add(ctx context.Context, n int64, owner, kind string, ids ...string) (total int64, err error)
}

// treeKey returns the key of the task's tree. Only the agents that work on the tree know the
// key, so no other agent of the mesh can add to the tree's usage. The agent that begins a
// tree derives the key from the task, so every worker that has the task gets the same key.
func (t *Task) treeKey() string {
	if t.tree != nil && t.tree.Key != "" {
		return t.tree.Key
	}
	if key := t.derivedKey.Load(); key != nil {
		return *key
	}
	e := t.Envelope
	h := sha256.New()
	for _, part := range []string{"aeemesh tree", e.From, e.To, e.ID, e.Corr, e.Intent, e.TS, string(e.Payload), string(e.Sig)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	key := base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
	t.derivedKey.Store(&key)
	return key
}

// A Counter names a counter: by its owner and an id. A kind completes the name.
type Counter struct{ Owner, ID string }

// Counters returns the two counters at which the task's work is counted. Each of them must
// stay within the bounds. The first counts the tree over all agents. The second counts the
// corr over all tasks of this agent; it also limits senders that state a false tree.
func (t *Task) Counters() []Counter {
	if t.host == nil {
		return nil // no worker has received the task
	}
	return []Counter{{subject.TreeOwner + t.treeKey(), "all"}, {t.host.Entity, t.Envelope.Corr}}
}

// treeCounts counts the tasks and the turns of trees. Additions to a counter that arrive while
// a request for that counter is under way are sent together in the next request.
type treeCounts struct {
	counters func() Counters // returns nil: this process counts alone

	mu    sync.Mutex
	busy  map[string]*counting
	local map[string]int64
	down  time.Time // until then the shared counters are not used
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

// An addition is a part of a batch, which is perhaps still to be counted.
type addition struct {
	batch *countBatch
	upTo  int64 // what the batch adds up to and with this part
}

// total waits for the counter's total up to and with this addition.
func (a addition) total(ctx context.Context) (int64, error) {
	select {
	case <-a.batch.done:
		return a.batch.total - a.batch.n + a.upTo, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// add begins to add n to a counter.
func (c *treeCounts) add(n int64, warn func(error), owner, kind string, ids ...string) addition {
	key := owner + "\x00" + kind + "\x00" + strings.Join(ids, "\x00")
	c.mu.Lock()
	if c.counters() == nil || time.Now().Before(c.down) {
		defer c.mu.Unlock()
		done := make(chan struct{})
		close(done)
		return addition{&countBatch{n: n, total: c.addLocal(key, n), done: done}, n}
	}
	if c.busy == nil {
		c.busy = map[string]*counting{}
	}
	cc := c.busy[key]
	if cc == nil {
		cc = &counting{owner: owner, kind: kind, ids: ids}
		c.busy[key] = cc
		go c.count(key, cc, warn)
	}
	if cc.next == nil {
		cc.next = &countBatch{done: make(chan struct{})}
	}
	mine := cc.next
	mine.n += n
	upTo := mine.n
	c.mu.Unlock()
	return addition{mine, upTo}
}

// count sends the batches of one counter until none is left.
func (c *treeCounts) count(key string, cc *counting, warn func(error)) {
	for {
		c.mu.Lock()
		batch := cc.next
		cc.next = nil
		if batch == nil {
			delete(c.busy, key)
		}
		c.mu.Unlock()
		if batch == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), countPatience)
		total, err := c.counters().Add(ctx, batch.n, cc.owner, cc.kind, cc.ids...)
		cancel()
		if err != nil {
			warn(err)
			c.mu.Lock()
			c.down = time.Now().Add(countPause)
			total = c.addLocal(key, batch.n)
			c.mu.Unlock()
		}
		batch.total = total
		close(batch.done)
	}
}

// addLocal adds to a counter of this process. c.mu is held.
func (c *treeCounts) addLocal(key string, n int64) int64 {
	if c.local == nil || len(c.local) >= maxLocalCounters {
		c.local = map[string]int64{}
	}
	c.local[key] += n
	return c.local[key]
}

// additions are those to a task's counters.
type additions []addition

// total waits for the totals, and returns the highest.
func (as additions) total(ctx context.Context) (most int64, err error) {
	for _, a := range as {
		total, e := a.total(ctx)
		most, err = max(most, total), cmp.Or(err, e)
	}
	return most, err
}

// count begins to add to t's counters. Of two concurrent calls each may come second at one of
// the counters; then both are refused, although the bound has room for one.
func (n *Node) count(t *Task, more int64, kind string, ids ...string) additions {
	warn := func(err error) {
		n.log.Warn("shared counters unreachable, counting the tree in this process only", "corr", t.Envelope.Corr, "err", err)
	}
	counters := t.Counters()
	if t.Envelope.ReplyTo == "" && (t.tree == nil || t.tree.Key == "") { // t is the root of the tree
		counters = counters[:1]
	}
	var out additions
	for _, c := range counters {
		out = append(out, n.heads.add(more, warn, c.Owner, kind, append([]string{c.ID}, ids...)...))
	}
	return out
}

// countTask counts a task that t's agent is about to send, or t itself. It fails with
// E_TREE_LIMIT if the tree has more tasks than allowed.
func (n *Node) countTask(ctx context.Context, t *Task) error {
	return n.checkTasks(ctx, t, n.count(t, 1, CountTasks))
}

// checkTasks is the second half of countTask.
func (n *Node) checkTasks(ctx context.Context, t *Task, counted additions) error {
	most := n.bounds(t.tree).MaxTasks
	total, err := counted.total(ctx)
	if err != nil {
		return err
	}
	if total > most {
		return envelope.Errorf(envelope.CodeTreeLimit, "agents have sent one another %d tasks in this tree, and %d are allowed", total-1, most)
	}
	return nil
}

// checkBudget refuses a task whose tree has used up its token or cost budget.
func (n *Node) checkBudget(ctx context.Context, t *Task) error {
	b := n.bounds(t.tree)
	counters := n.counters()
	if counters == nil || b.Tokens == 0 && b.USD == 0 {
		return nil
	}
	used := func(kind string) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, countPatience)
		defer cancel()
		most := int64(0)
		for _, c := range t.Counters() {
			total, err := counters.Add(ctx, 0, c.Owner, kind, c.ID)
			if err != nil {
				return 0, envelope.Errorf(envelope.CodeUnavailable, "the usage of this corr cannot be read for now: %w", err).WithBackoff(time.Second)
			}
			most = max(most, total)
		}
		return most, nil
	}
	if b.Tokens > 0 {
		if spent, err := used(CountTokens); err != nil {
			return err
		} else if spent >= b.Tokens {
			return envelope.Errorf(envelope.CodeBudget, "the runs of this corr have used %d tokens, and %d are allowed", spent, b.Tokens)
		}
	}
	if b.USD > 0 {
		if spent, err := used(CountUSD); err != nil {
			return err
		} else if model.USD(spent) >= b.USD {
			return envelope.Errorf(envelope.CodeBudget, "the runs of this corr have cost $%s, and $%s are allowed", model.USD(spent), b.USD)
		}
	}
	return nil
}
