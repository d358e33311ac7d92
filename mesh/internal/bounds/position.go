package bounds

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// A Position is the position of a task in its tree, at the worker that has the task. The zero
// value is that of a task that no worker has received: it has no bounds and no counters. After
// Join its methods may be called from many goroutines.
type Position struct {
	keeper *Keeper // nil before Join
	entity string  // of the worker's agent
	task   *envelope.Envelope
	tree   *Tree // the task's requires.tree; nil: absent

	derivedKey atomic.Pointer[string]    // see treeKey
	inherited  atomic.Pointer[inherited] // what its hops inherit

	turns turns
}

// Join reads the task's requires.tree; nil: absent. It refuses a task that is deeper in its
// tree than allowed.
func (p *Position) Join(k *Keeper, entity string, task *envelope.Envelope, raw json.RawMessage) (err error) {
	p.keeper, p.entity, p.task = k, entity, task
	if p.tree, err = ReadTree(raw); err != nil || p.tree == nil {
		return err
	}
	if most := p.bounds().MaxDepth; p.tree.Depth > most {
		return tooDeep(p.tree.Depth, most)
	}
	return nil
}

// Deadline returns the deadline of the tree by the server's clock; zero: the task states none.
func (p *Position) Deadline() time.Time {
	if p.tree == nil {
		return time.Time{}
	}
	return p.tree.Deadline
}

// DropDeadline makes the deadline of the tree that of a tree without one: the hops get the deadline
// that Inherit is told. It must be called before the task begins.
func (p *Position) DropDeadline() {
	if p.tree != nil {
		p.tree.Deadline = time.Time{}
	}
}

// Hop reports whether the task is part of a tree, by what its sender states.
func (p *Position) Hop() bool { return p.tree != nil || p.task != nil && p.task.ReplyTo != "" }

// bounds returns the bounds of the tree.
func (p *Position) bounds() Tree { return p.tree.within(p.keeper.limits) }

// Budget returns the bounds on the model usage of the tree, as its senders and this node's
// operator set them; 0: no bound.
func (p *Position) Budget() (tokens int64, usd model.USD) {
	if p.keeper == nil {
		return 0, 0
	}
	b := p.bounds()
	return b.Tokens, b.USD
}

func tooDeep(depth, most int) *envelope.Error {
	return envelope.Errorf(envelope.CodeTreeLimit, "the task would be %d hops away from the root task of its tree, and %d are allowed", depth, most)
}

// treeKey returns the key of the task's tree. Only the agents that work on the tree know the
// key, so no other agent of the mesh can add to the tree's usage. The agent that begins a
// tree derives the key from the task, so every worker that has the task gets the same key.
func (p *Position) treeKey() string {
	if p.tree != nil && p.tree.Key != "" {
		return p.tree.Key
	}
	if key := p.derivedKey.Load(); key != nil {
		return *key
	}
	key := DerivedKey(p.task)
	p.derivedKey.Store(&key)
	return key
}

// DerivedKey returns the key of the tree that a task begins.
func DerivedKey(e *envelope.Envelope) string {
	h := sha256.New()
	for _, part := range []string{"aeemesh tree", e.From, e.To, e.ID, e.Corr, e.Intent, e.TS, string(e.Payload), string(e.Sig)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// A Counter names a counter: by its owner and an id. A kind completes the name.
type Counter struct{ Owner, ID string }

// Counters returns the two counters at which the task's work is counted. Each of them must stay
// within the bounds. The first counts the tree over all agents. The second counts the corr over
// all tasks of this agent; it also limits senders that state a false tree. The work of a root task
// is counted only at the first.
func (p *Position) Counters() []Counter {
	if p.keeper == nil {
		return nil
	}
	return []Counter{{subject.TreeOwner + p.treeKey(), "all"}, {p.entity, p.task.Corr}}
}

// Admit makes the checks of an arriving task that need the shared counters. A hop without
// requires.tree comes from an agent that does not count its tasks, so the hop is counted
// here. Then the tree's budget is checked.
func (p *Position) Admit(ctx context.Context) error {
	if p.task.ReplyTo != "" && p.tree == nil {
		if err := p.CountTask().Check(ctx); err != nil {
			return err
		}
	}
	return p.CheckBudget(ctx)
}

// Inherit sets the member tree of the requires of a hop that the task's agent is about to send.
// If waits is true, it names the task as one that waits for the hop. deadline returns the deadline
// of a tree that has none yet; zero: unknown. Inherit fails with E_TREE_LIMIT if the hop is too
// deep, or is in too many teams.
func (p *Position) Inherit(members map[string]json.RawMessage, waits bool, deadline func() time.Time) error {
	next := p.bounds()
	next.Depth++
	if next.Depth > next.MaxDepth {
		return tooDeep(next.Depth, next.MaxDepth)
	}
	if next.Deadline.IsZero() {
		if end := deadline(); !end.IsZero() {
			next.Deadline = end.UTC().Truncate(time.Millisecond)
		}
	}
	if next.Teams = p.teams(); len(next.Teams) > maxTeams {
		return envelope.Errorf(envelope.CodeTreeLimit, "more than %d nested teams", maxTeams)
	}
	was := p.inherited.Load()
	if was == nil || was.waits != waits || !was.deadline.Equal(next.Deadline) || !slices.Equal(was.teams, next.Teams) {
		next.Root = cmp.Or(next.Root, p.task.ID)
		next.Key = p.treeKey()
		if waits {
			next.Waiting = p.waiters()
		}
		was = &inherited{waits, next.Deadline, next.Teams, wire.MustJSON(next)}
		p.inherited.Store(was)
	}
	members[requires.Tree] = was.raw
	return nil
}

// inherited is requires.tree of a task's hops. All hops have the same one, until the task's agent
// bounds their turns or the server's clock is known more exactly.
type inherited struct {
	waits    bool
	deadline time.Time
	teams    []team
	raw      json.RawMessage
}

// waiters returns the tasks that wait for a call of the task: the tasks that wait for the
// task, then the task itself.
func (p *Position) waiters() []waitingTask {
	var all []waitingTask
	if p.tree != nil {
		all = p.tree.Waiting
	}
	all = append(all[:len(all):len(all)], waitingTask{p.entity, p.task.ID})
	return all[max(0, len(all)-maxAbove):]
}

// Waits reports whether a task of an entity would wait for a call of the task: the task itself,
// or one above it in the tree.
func (p *Position) Waits(entity string) bool {
	return slices.ContainsFunc(p.waiters(), func(w waitingTask) bool { return w.Entity == entity })
}

// Above returns the ids of the agent's own tasks that wait for the task; nil: there are none.
func (p *Position) Above() map[string]bool {
	if p.tree == nil {
		return nil
	}
	var above map[string]bool
	for _, w := range p.tree.Waiting {
		if w.Entity == p.entity {
			if above == nil {
				above = map[string]bool{}
			}
			above[w.Task] = true
		}
	}
	return above
}
