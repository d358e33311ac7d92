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
// have taken for them, and what their models have used, in tokens and in billionths of
// a dollar. Each is counted by [Task.Counters].
const (
	CountTasks  = "tasks"
	CountTurns  = "turns" // with a team's task: of that team alone
	CountTokens = "spend.tokens"
	CountUSD    = "spend.usd"
)

// Counters count for all who share them: [jetstream.Counters] for a whole mesh.
// Add adds n to the counter that an owner, a kind and ids name, and returns its total,
// n included. The owner is an entity, or a tree: see [subject.Map.Count].
type Counters interface {
	Add(ctx context.Context, n int64, owner, kind string, ids ...string) (total int64, err error)
}

// treeKey is the key of the task's tree. Only those who work on the tree know it, so
// that no other agent of the mesh can add to what the tree has used. The agent that
// begins a tree makes it of the task's bytes: it is the same for each worker that has
// the task.
func (t *Task) treeKey() string {
	if t.tree != nil && t.tree.Key != "" {
		return t.tree.Key
	}
	e := t.Envelope
	h := sha256.New()
	for _, part := range []string{"aeemesh tree", e.From, e.To, e.ID, e.Corr, e.Intent, e.TS, string(e.Payload), string(e.Sig)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// A Counter is where something is counted: at an owner, under an id.
type Counter struct{ Owner, ID string }

// Counters are where what is done for the task counts. Each is held against the bounds
// by itself. One is of its tree, over all agents. The other is of its corr, over all
// tasks that its own agent does: it holds whatever a task says of its tree.
func (t *Task) Counters() []Counter {
	if t.host == nil {
		return nil // no worker has taken it in
	}
	return []Counter{{subject.TreeOwner + t.treeKey(), "all"}, {t.host.Entity, t.Envelope.Corr}}
}

// headcount counts the tasks of trees, and their turns. Those of one counter that
// come while others of it are being counted are counted together with the next.
type headcount struct {
	counters func() Counters // nil: this process counts for itself

	mu    sync.Mutex
	busy  map[string]*counting
	local map[string]int64
	down  time.Time // until then nobody is asked who counts for all
}

// counting is there while its counter is asked.
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

// Where the mesh's counters do not answer, the process counts for itself for a
// while before it asks again; maxHeads bounds the counters that it then knows.
const (
	countPatience = 2 * time.Second
	countPause    = 10 * time.Second
	maxHeads      = 1 << 16
)

// add adds n to a counter, and returns how many there are with these.
func (c *headcount) add(ctx context.Context, n int64, warn func(error), owner, kind string, ids ...string) (int64, error) {
	key := owner + "\x00" + kind + "\x00" + strings.Join(ids, "\x00")
	c.mu.Lock()
	if c.counters() == nil || time.Now().Before(c.down) {
		defer c.mu.Unlock()
		return c.here(key, n), nil
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
	place := mine.n
	c.mu.Unlock()
	select {
	case <-mine.done:
		return mine.total - mine.n + place, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// count asks for all who wait, until nobody does.
func (c *headcount) count(key string, cc *counting, warn func(error)) {
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
			total = c.here(key, batch.n)
			c.mu.Unlock()
		}
		batch.total = total
		close(batch.done)
	}
}

// here counts in this process. c.mu is held.
func (c *headcount) here(key string, n int64) int64 {
	if c.local == nil || len(c.local) >= maxHeads {
		c.local = map[string]int64{}
	}
	c.local[key] += n
	return c.local[key]
}

// count adds to t's counters, and returns the highest total. Two who count at once may
// each be second on one of the counters, and so both be refused at a bound that has
// room for one of them.
func (n *Node) count(ctx context.Context, t *Task, more int64, kind string, ids ...string) (int64, error) {
	warn := func(err error) {
		n.log.Warn("a tree is counted by this process alone for now", "corr", t.Envelope.Corr, "err", err)
	}
	tree, own := t.Counters()[0], t.Counters()[1]
	if t.Envelope.ReplyTo == "" && (t.tree == nil || t.tree.Key == "") { // it begins the tree
		return n.heads.add(ctx, more, warn, tree.Owner, kind, append([]string{tree.ID}, ids...)...)
	}
	type answer struct {
		total int64
		err   error
	}
	others := make(chan answer, 1)
	go func() {
		total, err := n.heads.add(ctx, more, warn, tree.Owner, kind, append([]string{tree.ID}, ids...)...)
		others <- answer{total, err}
	}()
	total, err := n.heads.add(ctx, more, warn, own.Owner, kind, append([]string{own.ID}, ids...)...)
	other := <-others
	return max(total, other.total), cmp.Or(err, other.err)
}

// countTask counts a task that t's agent is about to send, or t itself, and refuses
// it where its tree has too many.
func (n *Node) countTask(ctx context.Context, t *Task) error {
	most := n.bounds(t.tree).MaxTasks
	total, err := n.count(ctx, t, 1, CountTasks)
	if err != nil {
		return err
	}
	if total > most {
		return envelope.Errorf(envelope.CodeTreeLimit, "agents have sent one another %d tasks in this tree, and %d are allowed", total-1, most)
	}
	return nil
}

// solvent refuses a task whose tree has used up what its senders allow it.
func (n *Node) solvent(ctx context.Context, t *Task) error {
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
				return 0, envelope.Errorf(envelope.CodeUnavailable, "what this corr has spent cannot be counted now: %w", err).WithBackoff(time.Second)
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
