package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/deadlines"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Handler does the work of an agent.
//
// Handle gets one task and returns the result's payload, a JSON object. An
// *[envelope.Error] in the chain of a returned error is sent to the sender unchanged; of
// any other error the sender learns only that the agent failed. An error that says that a
// called agent was busy or not online is converted to E_UNAVAILABLE, because this task
// has begun. A panic counts as an error without a code.
//
// A durable task is redelivered if its worker died; [Task.Run] then has the last
// checkpoint.
//
// ctx ends at the task's deadline, when the task is cancelled, and when the worker must
// stop; its cause is then an *[envelope.Error]. The sender has got its answer by then,
// but the task occupies one of the agent's places until Handle returns. Up to
// [Agent].Concurrency calls run at once. The payload of the task must not be changed.
type Handler interface {
	Handle(ctx context.Context, task *Task) (json.RawMessage, error)
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, task *Task) (json.RawMessage, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, task *Task) (json.RawMessage, error) {
	return f(ctx, task)
}

// Typed is a [Handler] for a function on Go values. The payload is decoded
// into I as encoding/json does; a payload that does not fit is answered with
// E_INPUT_SCHEMA. O must encode as a JSON object.
func Typed[I, O any](f func(ctx context.Context, in I) (O, error)) Handler {
	if f == nil {
		return HandlerFunc(nil) // which Serve refuses
	}
	return HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		var in I
		if err := json.Unmarshal(task.Input(), &in); err != nil {
			return nil, fault.Misfit(err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("encode result: %w", err)
		}
		return raw, nil
	})
}

// Task is one task that an agent works on.
type Task struct {
	// Envelope is the task as it was received, with the priority capped by policy.
	Envelope *envelope.Envelope
	// Requires is the typed view of the constraints, timeout capped.
	Requires envelope.Requirements
	// Deadline is when the sender gets E_TIMEOUT.
	Deadline time.Time
	// KeyID is the kid of the signature that was verified; "" for an unsigned task, whose
	// from proves nothing.
	KeyID string

	members   envelope.Members // of requires, those that Requires does not have; see readRequires
	illegible error            // what is wrong with requires
	read      bool             // requires

	signed   bool              // its signature was verified
	priority envelope.Priority // capped by policy; before that, for a durable task, the priority of its queue

	host   *host
	run    durableRun // on the durable lane; else nil
	reply  string     // the NATS reply subject; "" if the sender waits for no answer
	cbor   bool       // the sender speaks CBOR
	ask    bool       // plain text in, plain text out
	tree   bounds.Position
	queued time.Time
	waited atomic.Int64 // nanoseconds from queued until it was begun; 0: it has not been

	done   atomic.Bool // the terminal envelope has been sent
	placed atomic.Bool // it has one of the agent's places

	slotHolds atomic.Int32 // calls of HoldSlot that are not released; below 0: the handler has returned, too

	counted bool // its answer is in the stats; only for the caller for which claim returned true

	classified bool     // class has been called
	served     servedAs // what Agent.Classify and ServeAs say

	handed           *delegated.Handed // the chain of agents that delegated the task; nil: none did
	mustAnswerItself bool              // requires.handoff is false: the sender accepts an answer of this agent only
	delegatedTo      *delegation       // to which agent this one delegated the task; nil: it did not

	usage atomic.Pointer[json.RawMessage] // see SetUsage

	entry deadlines.Entry[*Task] // in host.running

	ctxMu     sync.Mutex
	ctx       context.Context // nil until it is first used
	stopCtx   context.CancelCauseFunc
	stopCause error // set when the context has ended

	mu     sync.Mutex // keeps stream envelopes in order, and before the terminal one
	seq    int
	sealed bool
	named  bool // its sender was told who has it
	span   telemetry.Span
}

// SetUsage sets the usage of the task so far, a JSON object. The task's events on bus.mesh.task
// contain it as member "usage". The object must not be changed afterwards.
func (t *Task) SetUsage(usage json.RawMessage) { t.usage.Store(&usage) }

// Emit sends payload, a JSON object, as the next stream envelope. The mesh adds its number as
// member "seq", counted from 1. Emit does nothing unless the sender asked for a stream
// (requires.stream) and the agent gives one. It fails if the task has ended. If the envelope is
// larger than a message may be, it fails and sends nothing.
func (t *Task) Emit(payload json.RawMessage) error {
	if !t.Streaming() || t.host.NoStream {
		return nil
	}
	return t.emit(payload)
}

func (t *Task) emit(payload json.RawMessage) error {
	if t.run != nil {
		return t.run.emit(payload)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return envelope.Errorf(envelope.CodeCancelled, "the task has ended")
	}
	numbered, err := wire.WithSeq(payload, t.seq+1)
	if err != nil {
		return err
	}
	if err := t.host.sendReply(t, t.answer(envelope.TypeStream, numbered), nil); err != nil {
		return err
	}
	t.seq++
	return nil
}

// EmitText is [Task.Emit] of {"text": text}.
func (t *Task) EmitText(text string) error {
	if !t.Streaming() {
		return nil
	}
	b := append(envelope.AppendString(append(make([]byte, 0, len(text)+16), `{"text":`...), text), '}')
	return t.Emit(b)
}

// Streaming reports whether the sender asked for stream envelopes and can
// receive them.
func (t *Task) Streaming() bool {
	return t.Requires.Stream && (t.reply != "" || t.run != nil) && !t.ask
}

// MaxMessage returns the server's max_payload: the largest message in bytes, headers
// included. 0: unknown.
func (t *Task) MaxMessage() int {
	if t.host == nil {
		return 0
	}
	return int(t.host.node.conn.MaxPayload())
}
