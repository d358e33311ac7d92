package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/mesh/internal/contexts"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/listen"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/payloads"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
	"github.com/aeemesh/aeemesh/state"
)

// QueueGroup is the NATS queue group of all workers of an entity. It is the
// default of NATS micro, so that a worker written with any micro library joins it.
const QueueGroup = "q"

// Defaults of [Agent].
const (
	DefaultConcurrency = 1
	DefaultQueue       = 256
)

// Agent is one entity that a node serves.
type Agent struct {
	// Entity is the agent's id, <type>.<name>. Its subjects are derived from it.
	// Required.
	Entity string
	// Handler does the agent's tasks. Required.
	Handler Handler

	// Concurrency is how many tasks run at once in this process. Default 1.
	Concurrency int
	// Queue is how many more tasks may wait; beyond it senders get E_BUSY.
	// Default 256; below 0: none.
	Queue int
	// Timeout is the agent's own limit for one task (AAIF
	// runtime.timeout_seconds), in addition to the node's. Default none.
	Timeout time.Duration

	// LiveOnly keeps the agent off the durable lane of a node that has one.
	LiveOnly bool
	// MeshConcurrency is how many of the agent's tasks, live and durable, may run at
	// once in the whole mesh (AAIF runtime.concurrency). Default 0: as many as the
	// workers have places for. A live task that gets no slot waits in its place; a
	// durable one returns to the queue after 2 seconds. If JetStream is unreachable for longer than a lease, no task begins, and
	// tasks that run fail (live) or are released (durable).
	MeshConcurrency int
	// Retry says how often a failed durable task is retried. Default: not at all.
	Retry RetryPolicy
	// Steers says that the handler reads [Run.Steering], so that mesh.task.steer has an
	// effect on the agent's durable runs. Without it that command is refused with E_DENIED.
	Steers bool
	// Async answers a live task at once with a job id, and does the task on the
	// durable lane (AAIF runtime.async_execution).
	Async bool
	// NoStream gives senders no stream, even if they request one and the handler
	// emits one (AAIF io.streaming false).
	NoStream bool
	// Formats are the values of requires.format that the agent accepts, such as
	// [FormatJSON]. The handler reads the format in [Task].Requires and must return a
	// result of that format. A task that requires another format is refused with
	// E_REQUIRES. A result that is visibly not in the required format fails with
	// E_OUTPUT_SCHEMA. Default text and json.
	Formats []string
	// SubmitOnly makes this worker draw no durable tasks: it only submits them (Async). Other
	// workers of the agent run them.
	SubmitOnly bool
	// Seal encrypts the checkpoints of the agent's runs; nil: the node's codec decides.
	Seal *state.Keyring
	// MustSeal refuses, with E_DENIED, to store a state document of a task unencrypted.
	MustSeal bool

	// Intents validates payloads; nil: the reserved intents only. Tasks of an unknown
	// intent are accepted unless RefuseUnknown is set, and are validated as
	// DefaultIntent if that is set.
	Intents       *intents.Registry
	DefaultIntent string
	RefuseUnknown bool
	// Classify, if set, returns the intent as which the agent takes a task, usually the
	// task's own. If it is another one, the handler checks the payload, which need not have
	// the form of that intent. With atOnce, a live task is handled beside the queue, like the reserved
	// intents: an agent whose places are all taken answers it, too. Up to four such tasks are handled
	// at once. Classify must not block.
	Classify func(task *envelope.Envelope) (intent string, atOnce bool)
	// Scenarios are the interactions for which the agent publishes schema templates (SDSI).
	// Its answer to aee.capability.list and its NATS micro metadata name them.
	Scenarios []string

	// Signer signs the envelopes that this agent sends; nil: the node's.
	Signer *sign.Signer
	// OnDelegate, if set, is called when [Task.Delegate] begins. The context that it returns is that of
	// the rest, and end is called with the result: nil if the task is delegated, or answered by the
	// receiver that had to be called.
	OnDelegate func(ctx context.Context, d Delegation) (_ context.Context, end func(error))
	// Health is called for aee.status.health and heartbeats; nil: healthy.
	// It must return at once.
	Health func() Health

	// Ready, if set, is called from Serve's goroutine when the agent has subscribed to
	// its subjects. Messages that are sent after that reach the agent.
	Ready func()

	// Tracer makes the spans of the agent's tasks; nil: the node's.
	Tracer trace.TracerProvider
	// TraceHeader is the message header with the trace context, in messages to the agent
	// and from it (AAIF telemetry.trace_context_header). Default "traceparent".
	TraceHeader string
	// Logger gets the log messages about the agent; nil: the node's.
	Logger *slog.Logger

	// For discovery: version is a semantic version, default "0.0.0". Its numbers may begin with
	// zeros, as in AAIF; NATS is told the version without them.
	Version     string
	Description string
	AgentID     string            // AAIF agent_id
	Metadata    map[string]string // more NATS micro metadata
}

// host is an agent that a node serves at the moment.
type host struct {
	Agent
	node    *Node
	id      string // the instance id, as in NATS micro
	log     *slog.Logger
	tracer  trace.Tracer // nil: no spans
	live    string       // subjects
	ask     string
	ctl     string
	started time.Time
	queue   taskQueue
	verify  *sched.Crew // makes slow signature checks
	control *sched.Crew // answers aee.* intents and control messages
	lookups *sched.Crew // answers the aee.* intents that may wait for a store
	beside  *sched.Crew // runs the tasks that are handled beside the queue
	staff   sync.Once   // starts the workers

	counts        counts
	running       taskDeadlines // accepted and not answered, so that they can be cancelled
	early         orders.Early  // cancels that may have overtaken their tasks
	calls         calls.Agent
	passed        delegated.Passed
	delegating    sync.RWMutex // read-held while a live task passes to its receiver; a cancel waits for that
	documents     delegated.Documents
	payloads      payloads.Agent
	durable       durableLane // nil: live only; see joined
	intake        intake
	controls      controls
	reserved      reservedIntents
	contexts      *contexts.Contexts
	service       *service.Service
	events        events
	controlReplay *sign.Replay // replay window of control messages; nil: off
	active        atomic.Int64

	taskSubs, controlSubs []*nats.Subscription // subscriptions of tasks; of control and monitoring, which end later
	stopping              atomic.Bool
	quieten               func()      // ends the heartbeats
	workers               sched.Group // started by the first task
	closing               atomic.Bool // messages that wait for a signature check are refused
	taskScope             context.Context
	stopTasks             context.CancelFunc
}

// counts counts the messages that did not become tasks, by reason. The service's stats and the
// metrics show them.
type counts struct {
	malformed, refused, busy, replayed, dropped, unexpected, replyFailed, panics atomic.Int64

	noInbox sync.Once // logs the first message whose reply subject is not an inbox
}

// start subscribes. The goroutines that run tasks start with the first task.
func (h *host) start(ctx context.Context) (err error) {
	if h.joined() != nil {
		// Open the queue before the worker can be discovered. Otherwise a durable task
		// that calls this agent could find it online without a durable lane, and call it
		// over the live lane.
		h.durable.openQueue(ctx)
	}
	var subs []*nats.Subscription
	subscribe := func(subject, group string, handle nats.MsgHandler) {
		if err != nil {
			return
		}
		var sub *nats.Subscription
		hear := h.heedful(subject, handle)
		switch subject {
		case h.live: // the busiest subscription has a goroutine of its own
			sub, err = h.node.conn.QueueSubscribe(subject, group, hear)
		case h.ask:
			sub, err = h.node.plainText.Subscribe(subject, group, hear)
		default:
			sub, err = h.node.control.Subscribe(subject, group, hear)
		}
		if err == nil {
			subs = append(subs, sub)
		}
	}
	since := denial.Now(h.node.conn)
	subscribe(h.live, QueueGroup, h.intake.onTask)
	subscribe(h.ask, QueueGroup, h.intake.onAsk)
	subscribe(h.ctl, "", h.controls.onControl)
	h.service.Subjects(func(subject string, handle nats.MsgHandler) { subscribe(subject, "", handle) })
	asked, joined := h.node.services.join()
	if err == nil {
		err = joined
	}
	if err == nil {
		// After a round trip the server has processed the subscriptions: a refused one is
		// known, and later messages reach this worker.
		err = listen.RoundTrip(ctx, h.node.conn, 10*time.Second, func() {
			h.log.Warn("the NATS server does not answer; the agent starts when it does", "server", h.node.conn.ConnectedUrlRedacted())
		})
	}
	if err == nil {
		err = listen.Refused(since, append(slices.Clone(subs), asked...))
	}
	if err != nil {
		if joined == nil {
			h.node.services.leave()
		}
		h.abandon(subs)
		return err
	}
	h.taskSubs, h.controlSubs = subs[:2], subs[2:]
	if h.durable != nil {
		h.durable.join(ctx)
	}
	return nil
}

// put queues a task for the workers. It returns false if the queue is full or closed.
func (h *host) put(t *Task) bool {
	h.staff.Do(func() {
		for range h.Concurrency {
			h.workers.Go(h.work)
		}
	})
	return h.queue.Put(t, t.Envelope.Priority.Rank())
}

// stop drains the agent; see Serve.
func (h *host) stop() error {
	busy, err := h.drain(h.taskSubs)
	if h.durable != nil {
		h.durable.close()
	}
	// Health requests and cancels were answered until here.
	listen.Drain(h.node.conn, h.controlSubs, h.node.plainText, h.node.control)()
	h.node.services.leave()
	h.close()
	h.quieten() // no heartbeat may follow the event "left"
	h.events.announce(intents.AgentLeft)
	if flushErr := h.flush(); err == nil && flushErr != nil && busy {
		err = fmt.Errorf("drain %s: last replies may be lost: %w", h.Entity, flushErr)
	}
	return err
}

// abandon ends an agent that could not subscribe to all its subjects. It answers the tasks that
// have arrived on the others as an agent that stops does.
func (h *host) abandon(subs []*nats.Subscription) {
	busy, err := h.drain(subs)
	if err != nil {
		h.log.Warn("tasks came while the agent started, which has failed", "err", err)
	}
	if h.durable != nil {
		h.durable.close()
	}
	h.close()
	if busy {
		_ = h.flush() // the caller may close the connection
	}
}

// drain ends subscriptions, refuses the tasks that wait, and waits for those that have begun, for at
// most the node's Drain. It reports whether there were any, and fails if some were not done in time.
func (h *host) drain(subs []*nats.Subscription) (busy bool, err error) {
	// Unsubscribe before tasks are refused, so that a sender that retries reaches another
	// worker.
	drained := listen.Drain(h.node.conn, subs, h.node.plainText, h.node.control)
	h.stopping.Store(true)
	busy = h.active.Load() > 0 || h.queue.Len() > 0
	if h.durable != nil {
		h.durable.stopDrawing()
	}
	for _, t := range h.queue.Close() {
		if t.run != nil {
			t.run.nakUnbegun(0)
			continue
		}
		h.fail(t, drainingError(h.Entity))
	}
	drained()
	h.closing.Store(true)
	h.verify.Close()

	finished := make(chan struct{})
	go func() {
		h.beside.Close()
		h.workers.Wait()
		close(finished)
	}()
	deadline := time.NewTimer(h.node.cfg.Drain)
	defer deadline.Stop()
	select {
	case <-finished:
	case <-deadline.C:
		left := h.running.Matching(nil)
		if len(left) > 0 { // else only handlers of already answered tasks still run
			err = fmt.Errorf("drain %s: after %v there were tasks under way still (%d): live ones failed, durable ones were released", h.Entity, h.node.cfg.Drain, len(left))
		}
		for _, t := range left {
			cause := envelope.Errorf(envelope.CodeUnavailable, "the worker stopped before the task was done")
			if t.run != nil {
				t.run.releaseRunning(cause)
				continue
			}
			h.end(t, cause)
		}
	}
	return busy, err
}

// close ends what answers control messages, the deadlines, and the contexts of tasks.
func (h *host) close() {
	h.control.Close()
	h.lookups.Close()
	h.running.Stop()
	h.stopTasks()
}

// flush waits until the server has received everything that was sent.
func (h *host) flush() error {
	if !h.node.conn.IsConnected() {
		return nats.ErrDisconnected
	}
	return h.node.conn.FlushTimeout(5 * time.Second)
}

func drainingError(entity string) *envelope.Error {
	return envelope.Errorf(envelope.CodeDraining, "this worker of %s is shutting down and had not begun the task", entity).WithBackoff(100 * time.Millisecond)
}
