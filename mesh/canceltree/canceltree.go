package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// Below says what became of the tasks that came of a cancelled one, as far as
// records name them.
type Below struct {
	// Ended counts the tasks that have been told to end, or had ended.
	Ended int `json:"ended"`
	// Waiting are those whose agents did not answer: they end when a worker of
	// theirs comes, which finds the command in its queue, or at their deadline.
	Waiting []TreeTask `json:"waiting,omitempty"`
	// Silent are tasks of the live lane whose caller's worker is gone, and for
	// which nobody answered: they have ended, or end at their deadline.
	Silent []TreeTask `json:"silent,omitempty"`
	// Refused are those whose agents do not obey whoever cancels.
	Refused []TreeTask `json:"refused,omitempty"`
	// Unread are those whose records could not be read: what they had others do is
	// stopped by their workers only.
	Unread []TreeTask `json:"unread,omitempty"`
	// Asked counts the questions to people that stay open until a worker of those
	// that wait comes.
	Asked int `json:"asked,omitempty"`
	// More says that the tree goes on beyond what one cancel looks at.
	More bool `json:"more,omitempty"`
}

// A TreeTask is a task of a tree.
type TreeTask struct {
	Entity string `json:"entity"` // who has it
	TaskID string `json:"task_id"`
}

// Bounds of a walk down a tree.
const (
	maxCancelDepth = 64 // beyond [DefaultMaxDepth]: each hop may have been handed on
	maxCancelTasks = DefaultMaxTasks
	cancelsAtOnce  = 32
	cancelWait     = 5 * time.Second // for a worker that is there, and draws the command from its queue
)

// CancelTree is [Node.Command] with a cancel, which then goes down the tree
// itself: from the records of the run and of those below it, it reads what they
// have others do, and cancels that too. So a cancel by somebody whom all of these
// agents obey, an operator, ends what is below an agent that has no worker just
// now. Without that each worker stops what its own run has others do.
func (n *Node) CancelTree(ctx context.Context, entity string, cmd intents.CancelTask) (out intents.CommandResult, below Below, err error) {
	if n.cfg.Durable == nil {
		return out, below, errLiveOnly
	}
	if cmd.ID == "" && cmd.Run == "" {
		out, err = n.Command(ctx, entity, cmd)
		return out, below, err
	}
	w := &treeCancel{node: n, reason: cmd.Reason, seen: map[string]bool{}}
	root := branch{run: cmd.Run, call: state.Call{To: entity, ID: cmd.ID}}
	if root.run == "" {
		root.run = state.RunID(entity, cmd.ID)
	}
	before, known := w.read(ctx, root)
	e := newCommand(n.cfg.Entity, entity, durably(cmd))
	reply, err := n.tryCommand(ctx, e)
	answered := err == nil
	if unheard(err) && ctx.Err() == nil {
		if cmd.ID != "" && n.withdrawn(ctx, entity, cmd, &err) {
			return intents.CommandResult{Cancelled: err == nil, Status: StatusWithdrawn}, below, err
		}
		_, err = n.Submit(ctx, e, SubmitOptions{})
	}
	if err != nil {
		return out, below, err
	}
	if answered {
		if err := json.Unmarshal(reply.Payload, &out); err != nil {
			return out, below, err
		}
	}
	after, still := w.read(ctx, root)
	if !known || !still {
		w.unread(root)
	}
	w.walk(ctx, branches(!answered, before, after))
	if !answered {
		if reply, err = n.await(ctx, e, ResultOptions{}); err == nil {
			err = json.Unmarshal(reply.Payload, &out)
		}
	}
	return out, w.below, err
}

// StatusWithdrawn is the status of a cancel that took the task out of the queue,
// where no worker had begun it.
const StatusWithdrawn = "withdrawn"

// withdrawn withdraws a task whose agent has no worker. It reports whether that is
// the end of it: with an error where there is no such task. Else, where this node
// may not or it is too late, a worker has to be told.
func (n *Node) withdrawn(ctx context.Context, entity string, cmd intents.CancelTask, err *error) bool {
	if there, asked := n.served(ctx, entity); there || asked != nil {
		return false
	}
	failed := n.Withdraw(ctx, entity, cmd.ID, cmd.Reason)
	switch {
	case failed == nil, errors.Is(failed, jetstream.ErrNotFound) && !errors.Is(failed, jetstream.ErrUnavailable):
		*err = failed
		return true
	}
	n.log.Info("task not withdrawn, its agent is told", "id", cmd.ID, "to", entity, "err", failed)
	return false
}

// A branch is one task of the tree.
type branch struct {
	call state.Call
	run  string
	// orphan says that no worker has answered for the run that sent the task.
	orphan bool
}

func (b branch) task() TreeTask { return TreeTask{b.call.To, b.call.ID} }

// branches are the tasks that checkpoints of one run name.
func branches(orphans bool, of ...*state.Checkpoint) (out []branch) {
	for _, c := range of {
		if c == nil {
			continue
		}
		calls := c.Mesh.Calls
		if h := c.Mesh.Handed; h != nil {
			calls = append(calls[:len(calls):len(calls)], state.Call{To: h.To, ID: h.TaskID})
		}
		for _, call := range calls {
			if !PublishesTo(call.To) {
				out = append(out, branch{call, state.RunID(call.To, call.ID), orphans})
			}
		}
	}
	return out
}

// treeCancel is a walk down a tree.
type treeCancel struct {
	node   *Node
	reason string

	mu    sync.Mutex
	seen  map[string]bool // runs
	below Below
}

// walk cancels tasks and what is below them, one level after the other: a run that
// was told to end does not have done again what then ends below it.
func (w *treeCancel) walk(ctx context.Context, level []branch) {
	for depth := 0; ; depth++ {
		if level = w.fresh(level); len(level) == 0 {
			return
		}
		if depth == maxCancelDepth || ctx.Err() != nil {
			w.below.More = true
			return
		}
		found := make([][]branch, len(level))
		var all sync.WaitGroup
		places := make(chan struct{}, cancelsAtOnce)
		for i, b := range level {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				found[i] = w.cancel(ctx, b)
			})
		}
		all.Wait()
		level = nil
		for _, f := range found {
			level = append(level, f...)
		}
	}
}

// fresh are the tasks that were not met before.
func (w *treeCancel) fresh(level []branch) (out []branch) {
	for _, b := range level {
		switch {
		case w.seen[b.run]:
		case len(w.seen) >= maxCancelTasks:
			w.below.More = true
		default:
			w.seen[b.run] = true
			out = append(out, b)
		}
	}
	return out
}

// cancel ends one task, and returns those below it.
func (w *treeCancel) cancel(ctx context.Context, b branch) []branch {
	before, known := w.read(ctx, b)
	if b.call.Live && before == nil && known {
		if b.orphan { // else the worker that ended its caller tells it
			w.cancelLive(ctx, b)
		}
		return nil
	}
	if before != nil && before.Terminal() {
		w.count(func(s *Below) { s.Ended++ })
		return branches(false, before)
	}
	err := w.command(ctx, b)
	after, still := w.read(ctx, b)
	if !known || !still {
		w.unread(b)
	}
	var problem *envelope.Error
	switch {
	case err == nil || isCode(err, envelope.CodeNotFound):
		w.count(func(s *Below) { s.Ended++ })
	case errors.As(err, &problem) && problem.FromPeer() && !problem.Retryable:
		w.count(func(s *Below) { s.Refused = append(s.Refused, b.task()) })
	default:
		w.count(func(s *Below) {
			s.Waiting = append(s.Waiting, b.task())
			if after != nil {
				s.Asked += open(after.Mesh.Waits)
			}
		})
	}
	return branches(err != nil, before, after)
}

// open counts the questions that wait for an answer.
func open(waits []state.Wait) (n int) {
	for _, w := range waits {
		if !w.Void {
			n++
		}
	}
	return n
}

// command tells the workers of a task's agent to end it. Where nobody hears that
// it is queued; where somebody does, who has not got the run, he draws it.
func (w *treeCancel) command(ctx context.Context, b branch) error {
	e := newCommand(w.node.cfg.Entity, b.call.To, intents.CancelTask{ID: b.call.ID, Reason: w.reason, Durable: true})
	_, err := w.node.tryCommand(ctx, e)
	if !unheard(err) || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	if errors.Is(err, nats.ErrNoResponders) {
		if _, bad := w.node.Submit(ctx, e, SubmitOptions{}); bad != nil {
			return bad
		}
		return err
	}
	_, _, err = w.node.Perform(ctx, e, SubmitOptions{}, ResultOptions{})
	return err
}

// cancelLive tells the workers of an agent to end a task of the live lane. Where
// none hears it the task has gone with them.
func (w *treeCancel) cancelLive(ctx context.Context, b branch) {
	e := newCommand(w.node.cfg.Entity, b.call.To, intents.CancelTask{ID: b.call.ID, Reason: w.reason})
	_, err := w.node.tryCommand(ctx, e)
	w.count(func(s *Below) {
		if err == nil || errors.Is(err, nats.ErrNoResponders) {
			s.Ended++
		} else {
			s.Silent = append(s.Silent, b.task())
		}
	})
}

// read reads the last checkpoint of a task's run, nil where there is none. known
// is false where there may be one that cannot be read.
func (w *treeCancel) read(ctx context.Context, b branch) (c *state.Checkpoint, known bool) {
	d := w.node.cfg.Durable
	rec, err := d.States.Get(ctx, state.ID{Entity: b.call.To, Run: b.run})
	if err != nil {
		return nil, errors.Is(err, state.ErrNotFound)
	}
	c, err = d.Codec.Read(rec)
	return c, err == nil
}

func (w *treeCancel) unread(b branch) {
	task := b.task()
	if task.TaskID == "" {
		task.TaskID = b.run // of the first, which was named so
	}
	w.count(func(s *Below) { s.Unread = append(s.Unread, task) })
}

func (w *treeCancel) count(change func(*Below)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.below)
}
