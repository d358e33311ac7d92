package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// order is a command as it came, verified.
type order struct {
	id     string // of its envelope
	intent string
	from   string
	keyID  string // "" if nobody signed it
	signed bool
	// unbound: it is for this mesh only where its run came from another platform.
	unbound bool

	problem *envelope.Error // with which a cancel ends the run; nil: as cancelled by from

	ID       string          `json:"id,omitempty"`
	Run      string          `json:"run,omitempty"`
	Corr     string          `json:"corr,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Durable  bool            `json:"durable,omitempty"`
	Text     string          `json:"text,omitempty"`
	Call     string          `json:"call,omitempty"`
	Outcome  intents.Outcome `json:"outcome,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	To       string          `json:"to,omitempty"`
	Platform string          `json:"platform,omitempty"`
	WaitMS   int64           `json:"wait_ms,omitempty"`
	Abort    bool            `json:"abort,omitempty"`
}

func newOrder(env *envelope.Envelope, keyID string, signed bool) (*order, error) {
	o := &order{id: env.ID, intent: env.Intent, from: env.From, keyID: keyID, signed: signed}
	if err := json.Unmarshal(env.Payload, o); err != nil {
		return nil, misfit(err)
	}
	if len(o.Text) > maxSteerText {
		return nil, envelope.Errorf(envelope.CodeTooLarge, "the text has %d bytes, the limit is %d", len(o.Text), maxSteerText)
	}
	return o, nil
}

// names reports whether the order is about a task.
func (o *order) names(id, corr, run string) bool {
	return o.ID != "" && id == o.ID || o.Corr != "" && corr == o.Corr || o.Run != "" && run == o.Run
}

// who says who gave the order and, where that was said, why.
func (o *order) who() string {
	if o.Reason == "" {
		return clip.Text(o.from, 128)
	}
	return clip.Text(o.from, 128) + ": " + clip.Text(o.Reason, 128)
}

// runID is the run that the order names, "" where it names a correlation.
func (o *order) runID(entity string) string {
	switch {
	case o.Run != "":
		return o.Run
	case o.ID != "":
		return state.RunID(entity, o.ID)
	}
	return ""
}

// mayCommand reports whether somebody may command a task: its own sender, the
// agent itself, or an operator. What came signed obeys a signed word only: ids
// are told on the bus, and an unsigned from is no more than a claim.
func (l *lane) mayCommand(from string, signed bool, t *Task) bool {
	if t.KeyID != "" && !signed {
		return false
	}
	return from == t.Envelope.From || from == l.host.Entity || l.host.operator(from)
}

// mayReach reports whether an order is for the mesh that has this run; nil is none.
func (o *order) mayReach(c *state.Checkpoint) bool {
	return !o.unbound || c != nil && c.Mesh.Parent != nil && c.Mesh.Parent.Kind == "migration"
}

// outcome is what became of an order: nothing, until somebody has done it.
type outcome struct {
	found   bool // there is such a task, and the sender may command it
	silent  bool // somebody else answers
	done    bool
	status  string
	runs    []string
	refused *envelope.Error
}

func (o *outcome) did(run, status string) {
	o.found, o.done, o.status = true, true, status
	if run != "" {
		o.runs = append(o.runs, run)
	}
}

// result is the payload that answers an order. Of the five words the one is
// written that belongs to it.
func (o *order) result(out outcome) json.RawMessage {
	word := map[string]string{
		intents.TaskCancel: "cancelled", intents.TaskPause: "paused", intents.TaskResume: "resumed",
		intents.TaskSteer: "steered", intents.TaskSettle: "settled", intents.TaskMigrate: "migrating",
	}[o.intent]
	members := map[string]any{word: out.done}
	if len(out.runs) > 0 {
		members["runs"] = out.runs
	}
	if out.status != "" {
		members["status"] = out.status
	}
	return mustJSON(members)
}

// here applies an order to the runs that this worker has.
func (l *lane) here(o *order) (out outcome) {
	for _, t := range l.host.running.matching(func(t *Task) bool {
		return t.run != nil && o.names(t.Envelope.ID, t.Envelope.Corr, t.run.id.Run)
	}) {
		if !l.mayCommand(o.from, o.signed, t) {
			out.refused = denied(o)
			continue
		}
		if !o.mayReach(t.run.cp.Load()) && !o.mayReach(t.run.stored) {
			out.refused = unboundOrder()
			continue
		}
		if t.run.cp.Load() == nil && o.intent != intents.TaskCancel {
			continue // not begun: applied to its record, as a worker that has not got it would
		}
		if err := l.mayMove(o, t); err != nil {
			out.found, out.refused = true, border(err)
			continue
		}
		done, status, err := t.run.obey(l.ctx, o)
		switch {
		case err == nil && done:
			out.did(t.run.id.Run, status)
		case err == nil:
			out.found, out.status = true, status
		case errors.Is(err, ErrLost), errors.Is(err, ErrParked):
		case errors.Is(err, errSteered):
			out.found, out.refused = true, errSteered
		default:
			l.host.log.Warn("command not applied", "command", o.intent, "run", t.run.id.Run, "err", err)
		}
	}
	return out
}

func noSuchRun() *envelope.Error {
	return envelope.Errorf(envelope.CodeNotFound, "there is no such run")
}

func unboundOrder() *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "a signed command must name its mesh here (requires.mesh)")
}

func denied(o *order) *envelope.Error {
	return envelope.Errorf(envelope.CodeDenied, "%s may not command this task", clip.Text(o.from, 128))
}

// obey applies an order to a run of this worker's.
func (r *Run) obey(ctx context.Context, o *order) (done bool, status string, err error) {
	if o.intent == intents.TaskCancel {
		if !r.task.claim() {
			return false, "", ErrLost // it ends or stops by itself: its record will tell
		}
		cause := cancelled(o.from, o.Reason)
		r.task.stop(cause)
		r.lane.host.failed(r.task, cause)
		return true, string(aaif.RunFailed), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return false, "", r.end
	}
	asked := false
	err = r.write(ctx, func(c *state.Checkpoint) error {
		m := &c.Mesh
		done, status, asked = true, string(c.Doc.Status), false
		if slices.Contains(m.Commands, o.id) {
			return nil
		}
		switch o.intent {
		case intents.TaskPause:
			wishPause(c)
			status = "pausing"
			m.Step = state.Step{Kind: state.StepPause, Detail: state.AskedBy + o.who()}
		case intents.TaskResume:
			done = unwishPause(c)
			m.Step = state.Step{Kind: state.StepResume, Detail: state.AskedBy + o.who()}
		case intents.TaskSteer:
			if err := steer(c, o, r.lane.clock.now()); err != nil {
				return err
			}
		case intents.TaskMigrate:
			done, status = r.obeyMove(c, o)
			asked = done && !o.Abort
		default:
			done = false
		}
		m.Commands = append(m.Commands, o.id)
		return nil
	})
	if err == nil && asked && o.WaitMS > 0 {
		r.captureAfter(time.Duration(o.WaitMS) * time.Millisecond)
	}
	return done, status, err
}

// Limits of the messages for a run's next turn.
const (
	maxSteerText = 32 << 10
	maxSteering  = 64
)

var errSteered = envelope.Errorf(envelope.CodeBusy, "%d messages wait already for the run's next turn", maxSteering).WithBackoff(notePause)

// steer puts a message in for the next turn.
func steer(c *state.Checkpoint, o *order, at time.Time) error {
	m := &c.Mesh
	if len(m.Steering) >= maxSteering {
		return errSteered
	}
	m.Steering = append(m.Steering, state.Steer{ID: o.id, From: o.from, Text: o.Text, At: at})
	m.Step = state.Step{Kind: state.StepSteer, Detail: state.AskedBy + o.who()}
	return nil
}

// command applies an order that came over the work queue, and acknowledges it
// once its answer is stored.
func (l *lane) command(hold *hold, t *Task) {
	err := l.obeyQueued(t)
	if err != nil {
		l.host.log.Warn("command not applied", "command", t.Envelope.Intent, "id", t.Envelope.ID, "err", err)
		l.nak(hold, max(time.Second, border(err).Backoff()))
		return
	}
	l.ack(hold)
}

// obeyQueued applies an order that came over the work queue, and answers it on
// its own reply subject. An error says that it may be done later.
func (l *lane) obeyQueued(t *Task) error {
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	last, err := l.cfg.Replies.Last(ctx, l.host.Entity, t.Envelope.ID)
	if err == nil && last.Seq > 0 || err != nil && !errors.Is(err, jetstream.ErrNotFound) {
		return err // nil: it was answered
	}
	result, err := l.order(ctx, t)
	reply := t.Envelope.Reply(envelope.TypeResult, result)
	if err != nil {
		problem := border(err)
		if problem.Retryable {
			return problem
		}
		reply = t.Envelope.Reply(envelope.TypeError, problem.Payload())
	}
	return l.answer(ctx, t, reply)
}

func (l *lane) order(ctx context.Context, t *Task) (json.RawMessage, error) {
	if err := l.host.validate(t.Envelope.Intent, intents.Task, t.Envelope.Payload); err != nil {
		return nil, err
	}
	if err := l.stale(t.run, false); err != nil {
		return nil, err
	}
	o, err := newOrder(t.Envelope, t.KeyID, t.KeyID != "")
	if err != nil {
		return nil, err
	}
	out := l.here(o)
	if !out.found && out.refused == nil {
		out = l.stored(ctx, o, true)
	}
	switch {
	case out.refused != nil:
		return nil, out.refused
	case !out.found:
		return nil, noSuchRun()
	}
	return o.result(out), nil
}

// listen looks for orders in the work queue that no place is free to draw: a
// worker that is busy must hear that it should stop. It looks when it begins,
// after the connection was lost, and while urgent tasks wait and all places are
// taken; what comes otherwise comes over the control subject.
func (l *lane) listen() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var after uint64
	reconnects := l.host.node.conn.Stats().Reconnects
	for look := true; ; look = false {
		if again := l.host.node.conn.Stats().Reconnects; again != reconnects {
			reconnects, look = again, true
		}
		if look || l.room() == 0 && l.urgent() {
			after = l.overhear(after)
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// urgent reports whether urgent messages wait, also those that were drawn and
// given back, by a worker without a free place or by none that lives: to the server
// they are unacknowledged, as are those that are being worked on.
func (l *lane) urgent() bool {
	for _, p := range l.queue.Health().Parts {
		if p.Priority == string(envelope.PriorityUrgent) {
			return p.Pending+p.Unacked > 0
		}
	}
	return false
}

// overhear applies the orders behind a sequence of the urgent queue, and returns
// where it has come to. They stay there: whoever draws one finds it answered.
func (l *lane) overhear(after uint64) uint64 {
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	for msg, err := range l.cfg.Queue.Peek(ctx, string(envelope.PriorityUrgent), l.host.Entity, after) {
		if err != nil {
			l.host.log.Debug("urgent queue not read", "err", err)
			return after
		}
		env, cbor, err := l.host.node.decode(&nats.Msg{Data: msg.Data, Header: msg.Header})
		if err == nil && intents.IsCommand(env.Intent) && bounded(env) == nil {
			t := &Task{Envelope: env, host: l.host, cbor: cbor}
			r := newRun(l, t, &hold{Delivery: &jetstream.Delivery{Priority: string(envelope.PriorityUrgent), Stored: msg.Time, Seq: msg.Seq}})
			if l.admit(r) == nil && l.admitOverheard(r) {
				if err := l.obeyQueued(t); err != nil {
					return after
				}
			}
		}
		after = msg.Seq
	}
	return after
}

// answer stores the answer to a command. Its id follows from the command's, so
// that it is there once.
func (l *lane) answer(ctx context.Context, t *Task, reply *envelope.Envelope) error {
	raw, err := l.encodeReply(t, reply)
	if err != nil {
		return err
	}
	header := nats.Header{HeaderTaskDigest: {taskDigest(t.Envelope)}} // see replyReader.another
	if reply.Type == envelope.TypeError {
		problem := envelope.ErrorOf(reply)
		header[micro.ErrorHeader] = []string{headerText(problem.Message)}
		header[micro.ErrorCodeHeader] = []string{string(problem.Code)}
	}
	if t.cbor {
		header[headerContentType] = []string{envelope.ContentCBOR}
		if raw, err = reply.AppendCBOR(nil); err != nil {
			return err
		}
	}
	return l.cfg.Replies.Publish(ctx, jetstream.Reply{
		Entity: l.host.Entity, TaskID: t.Envelope.ID, MsgID: "answer." + t.run.id.Run, Header: header, Data: raw,
	})
}
