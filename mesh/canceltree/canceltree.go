package canceltree

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// Below is what became of the tasks below a cancelled one, as far as checkpoints name
// them.
type Below struct {
	// Ended counts the tasks that were cancelled now or had ended before.
	Ended int `json:"ended"`
	// Waiting are tasks whose agents did not answer, or refused the cancel for a while. The cancel is
	// queued for them; they end when a worker of the agent can obey it, or at their deadline.
	Waiting []Task `json:"waiting,omitempty"`
	// Failed are tasks whose agents have not obeyed, and for which the cancel is not queued, or it is
	// not known whether it is. They may go on until their deadline.
	Failed []Task `json:"failed,omitempty"`
	// Silent are live tasks whose caller has no worker, and for which no worker
	// answered. They have ended, or end at their deadline.
	Silent []Task `json:"silent,omitempty"`
	// Refused are tasks whose agents do not obey the sender of the cancel, and tasks that another
	// caller has sent than the agent whose checkpoint names them.
	Refused []Task `json:"refused,omitempty"`
	// Unread are tasks whose checkpoints could not be read. Only their own workers cancel
	// what is below them.
	Unread []Task `json:"unread,omitempty"`
	// Asked counts the questions to people that stay open until a worker comes for a task
	// in Waiting.
	Asked int `json:"asked,omitempty"`
	// More reports that the tree is larger than one cancel visits.
	More bool `json:"more,omitempty"`
}

// A Task is one task of a tree.
type Task struct {
	Entity string `json:"entity"` // the agent that has the task
	TaskID string `json:"task_id"`
}

// Limits of a walk.
const (
	maxDepth = 64 // more than mesh.DefaultMaxDepth, because each task may have been delegated
	maxTasks = mesh.DefaultMaxTasks
	atOnce   = 32
	wait     = 5 * time.Second // for a worker that is online and draws the command from its queue
)

// Cancel sends a cancel as [mesh.Node.Command] does, and then cancels the tasks below: it
// reads from the checkpoints of the run, and of the runs below it, which tasks they sent.
// So a cancel by an operator, whom all these agents obey, also ends the tasks below an
// agent that has no worker at the moment. Without Cancel, each worker cancels only the
// tasks that its own run sent.
//
// A task that no worker has begun, and that has no run, is withdrawn from the queue where the node may do that
// (CancelQueued of [mesh.Node]); the status is then [StatusWithdrawn]. log, which must not be nil,
// gets the reason if a task was not withdrawn.
func Cancel(ctx context.Context, node *mesh.Node, log *slog.Logger, entity string, cmd intents.CancelTask) (out intents.CommandResult, below Below, err error) {
	if node.Durable() == nil || cmd.ID == "" && cmd.Run == "" {
		out, err = node.Command(ctx, entity, cmd)
		return out, below, err
	}
	w := &walk{node: node, reason: cmd.Reason, seen: map[visit]bool{}}
	root := branch{run: cmd.Run, call: state.Call{To: entity, ID: cmd.ID}}
	if root.run == "" {
		root.run = state.RunID(entity, cmd.ID)
	}
	before, known := w.read(ctx, root)
	cmd.Durable = true
	e := mesh.NewCommand(node.Entity(), entity, cmd)
	reply, err := node.TryCommand(ctx, e)
	answered := err == nil
	if mesh.IsUnanswered(err) && ctx.Err() == nil {
		if cmd.ID != "" && known && (before == nil || before.Terminal()) && withdrawn(ctx, node, log, entity, cmd, &err) {
			return intents.CommandResult{Cancelled: err == nil, Status: StatusWithdrawn}, below, err
		}
		_, err = node.Submit(ctx, e, mesh.SubmitOptions{})
	}
	if err != nil {
		return out, below, err
	}
	if answered {
		if err := wire.ReadJSON(reply.Payload, &out); err != nil {
			return out, below, err
		}
	}
	after, still := w.read(ctx, root)
	if !known || !still {
		w.unread(root)
	}
	w.walk(ctx, branches(entity, !answered, before, after))
	if !answered {
		if reply, err = node.Await(ctx, e, mesh.ResultOptions{}); err == nil {
			err = wire.ReadJSON(reply.Payload, &out)
		} else {
			err = client.Queued(err)
		}
	}
	return out, w.below, err
}

// StatusWithdrawn is the status of a cancel that removed the task from the queue before
// any worker had begun it.
const StatusWithdrawn = "withdrawn"

// withdrawn withdraws a task whose agent has no worker. It reports whether the cancel is
// done with that; err is then the result, an error if there is no such task. It returns
// false if this node may not withdraw the task or it is too late: a worker has to cancel
// it.
func withdrawn(ctx context.Context, node *mesh.Node, log *slog.Logger, entity string, cmd intents.CancelTask, err *error) bool {
	since := denial.Now(node.Conn())
	if workers, asked := node.Discover(ctx, entity, time.Second); len(workers) > 0 || asked != nil {
		return false
	}
	if d, denied := since.Find(func(d denial.Denial) bool { return strings.HasPrefix(d.Subject, "$SRV.") }); denied && !errors.Is(*err, nats.ErrNoResponders) {
		log.Info("cancel sent to its agent, because it is not known whether it has workers", "id", cmd.ID, "to", entity, "err", d.Err)
		return false
	}
	failed := node.CancelQueued(ctx, entity, cmd.ID, cmd.Reason)
	if failed == nil || errors.Is(failed, jetstream.ErrNotFound) && !errors.Is(failed, jetstream.ErrUnavailable) {
		*err = failed
		return true
	}
	log.Info("task not withdrawn, cancel sent to its agent", "id", cmd.ID, "to", entity, "err", failed)
	return false
}

// A branch is one task of the tree and what is below it.
type branch struct {
	call state.Call
	run  string
	from string // the agent whose checkpoint names the task; "" of the root
	// orphan: no worker has answered for the run that sent the task.
	orphan bool
}

func (b branch) task() Task { return Task{b.call.To, b.call.ID} }

// foreign reports whether the task of a run was not sent by the agent whose checkpoint names it: an
// agent could name the tasks of any other, so that an operator would cancel them. c may be nil.
func (b branch) foreign(c *state.Checkpoint) bool {
	if b.from == "" || c == nil || c.Mesh.Task == nil && !c.Terminal() {
		return false // its worker compares them, see command
	}
	task, err := c.ReadTask()
	return err != nil || task.From != b.from
}

// branches returns the tasks that checkpoints of one run name: those that it sent, and the
// one that it was delegated to. from is the run's agent, which has sent both.
func branches(from string, orphans bool, of ...*state.Checkpoint) (out []branch) {
	for _, c := range of {
		if c == nil {
			continue
		}
		calls := c.Mesh.Calls
		if h := c.Mesh.Handed; h != nil {
			calls = append(calls[:len(calls):len(calls)], state.Call{To: h.To, ID: h.TaskID})
		}
		for _, call := range calls {
			if !mesh.PublishesTo(call.To) {
				out = append(out, branch{call, state.RunID(call.To, call.ID), from, orphans})
			}
		}
	}
	return out
}

// A visit is of one run, as a call of one agent: a run that names the calls of another hides none.
type visit struct{ run, from string }

// A walk goes down one tree.
type walk struct {
	node   *mesh.Node
	reason string

	mu    sync.Mutex
	seen  map[visit]bool
	below Below
}

// walk cancels tasks and those below them, level by level: a run that is already
// cancelled does not send a task again when that task ends below it.
func (w *walk) walk(ctx context.Context, level []branch) {
	for depth := 0; ; depth++ {
		if level = w.fresh(level); len(level) == 0 {
			return
		}
		if depth == maxDepth || ctx.Err() != nil {
			w.below.More = true
			return
		}
		found := make([][]branch, len(level))
		var all sync.WaitGroup
		places := make(chan struct{}, atOnce)
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

// fresh returns the tasks that were not visited before, and marks them as visited.
func (w *walk) fresh(level []branch) (out []branch) {
	for _, b := range level {
		key := visit{b.run, b.from}
		switch {
		case w.seen[key]:
		case len(w.seen) >= maxTasks:
			w.below.More = true
		default:
			w.seen[key] = true
			out = append(out, b)
		}
	}
	return out
}

// cancel cancels one task and returns those below it.
func (w *walk) cancel(ctx context.Context, b branch) []branch {
	before, known := w.read(ctx, b)
	if b.foreign(before) {
		w.count(func(s *Below) { s.Refused = append(s.Refused, b.task()) })
		return nil
	}
	if b.call.Live && !b.call.Job && before == nil && known {
		if b.orphan { // otherwise the worker that ends its caller cancels it
			w.cancelLive(ctx, b)
		}
		return nil
	}
	if before != nil && before.Terminal() {
		w.count(func(s *Below) { s.Ended++ })
		return branches(b.call.To, false, before)
	}
	queued, err := w.command(ctx, b)
	after, still := w.read(ctx, b)
	if !known || !still {
		w.unread(b)
	}
	var problem *envelope.Error
	errors.As(err, &problem)
	switch {
	case err == nil || problem != nil && problem.Code == envelope.CodeNotFound:
		w.count(func(s *Below) { s.Ended++ })
	case problem != nil && problem.FromPeer() && !problem.Retryable:
		w.count(func(s *Below) { s.Refused = append(s.Refused, b.task()) })
	case !queued:
		w.count(func(s *Below) { s.Failed = append(s.Failed, b.task()) })
	default:
		w.count(func(s *Below) {
			s.Waiting = append(s.Waiting, b.task())
			if after != nil {
				s.Asked += open(after.Mesh.Waits)
			}
		})
	}
	if b.foreign(after) {
		return nil
	}
	return branches(b.call.To, err != nil, before, after)
}

// open counts the questions to people that have no answer yet.
func open(waits []state.Wait) (n int) {
	for _, w := range waits {
		if w.Open() {
			n++
		}
	}
	return n
}

// command sends a cancel to the workers of a task's agent. If none is online, or one refuses it for
// a while, it queues the cancel. If some are but none has the run, it queues the cancel and waits a while for
// one of them to draw it. queued reports that the cancel is in the queue.
func (w *walk) command(ctx context.Context, b branch) (queued bool, err error) {
	e := mesh.NewCommand(w.node.Entity(), b.call.To, intents.CancelTask{ID: b.call.ID, From: b.from, Reason: w.reason, Durable: true})
	_, err = w.node.TryCommand(ctx, e)
	var problem *envelope.Error
	later := errors.As(err, &problem) && problem.FromPeer() && problem.Retryable
	if !later && !mesh.IsUnanswered(err) || ctx.Err() != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if later || errors.Is(err, nats.ErrNoResponders) {
		if _, bad := w.node.Submit(ctx, e, mesh.SubmitOptions{}); bad != nil {
			return false, bad
		}
		return true, err
	}
	receipt, _, err := w.node.Perform(ctx, e, mesh.SubmitOptions{}, mesh.ResultOptions{})
	return receipt.Seq > 0, err
}

// cancelLive sends a cancel of a live task to the workers of its agent. If none is
// online, the task has ended with its worker.
func (w *walk) cancelLive(ctx context.Context, b branch) {
	e := mesh.NewCommand(w.node.Entity(), b.call.To, intents.CancelTask{ID: b.call.ID, From: b.from, Reason: w.reason})
	_, err := w.node.TryCommand(ctx, e)
	w.count(func(s *Below) {
		if err == nil || errors.Is(err, nats.ErrNoResponders) {
			s.Ended++
		} else {
			s.Silent = append(s.Silent, b.task())
		}
	})
}

// read returns the last checkpoint of a task's run, nil if there is none. known is false
// if there may be one that cannot be read.
func (w *walk) read(ctx context.Context, b branch) (c *state.Checkpoint, known bool) {
	d := w.node.Durable()
	rec, err := d.States.Get(ctx, state.ID{Entity: b.call.To, Run: b.run})
	if err != nil {
		return nil, errors.Is(err, state.ErrNotFound)
	}
	c, err = d.Codec.Read(rec)
	return c, err == nil
}

func (w *walk) unread(b branch) {
	task := b.task()
	task.TaskID = cmp.Or(task.TaskID, b.run) // the root, if it was named by its run
	w.count(func(s *Below) { s.Unread = append(s.Unread, task) })
}

func (w *walk) count(change func(*Below)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.below)
}
