package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// queued applies an order from the work queue, and acks it once its answer is stored.
func (cs *commands) queued(hold *hold, t *Task) {
	err := cs.applyQueued(cs.ctx, t)
	if err != nil {
		cs.host.log.Warn("command not applied", "command", t.Envelope.Intent, "id", t.Envelope.ID, "err", err)
		cs.nak(hold, orderPause(err, hold.Delivered))
		return
	}
	cs.ack(hold)
}

// orderPause returns the delay before an order that could not be applied comes again. It grows with
// the deliveries, because it may take until a worker that can read the record comes, or another
// platform can be reached.
func orderPause(err error, deliveries uint64) time.Duration {
	grown := time.Duration(min(deliveries, uint64(unreadablePause/time.Second))) * time.Second
	return max(time.Second, grown, fault.ForPeer(err).Backoff())
}

// applyQueued applies an order from the work queue, and stores its answer on the
// order's reply subject. After an error the order may be tried again.
func (cs *commands) applyQueued(ctx context.Context, t *Task) error {
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	if _, _, err := cs.storedReply(ctx, t.Envelope.ID); !errors.Is(err, jetstream.ErrNotFound) {
		return err // nil: the order was answered
	}
	result, err := cs.order(ctx, t)
	reply := t.Envelope.Reply(envelope.TypeResult, result)
	if err != nil {
		problem := fault.ForPeer(err)
		if problem.Retryable {
			return problem
		}
		reply = t.Envelope.Reply(envelope.TypeError, problem.Payload())
	}
	return cs.answer(t, reply)
}

func (cs *commands) order(ctx context.Context, t *Task) (json.RawMessage, error) {
	if err := cs.host.payloads.Validate(t.Envelope.Intent, intents.Task, t.Envelope.Payload); err != nil {
		return nil, err
	}
	if err := cs.lane.deliveries.checkTime(t.Run(), false); err != nil {
		return nil, err
	}
	o, err := cs.read(t.Envelope, t.KeyID, t.KeyID != "")
	if err != nil {
		return nil, err
	}
	out := cs.apply(ctx, o, false, true)
	switch {
	case out.Refused != nil:
		return nil, out.Refused
	case out.Silent && o.Intent == intents.TaskCancel:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the end of the run is not stored yet")
	case out.Silent:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the command is not stored yet")
	case !out.Found:
		return nil, orders.NoSuchRun()
	}
	return o.Result(out), nil
}

// listen reads the commands in the urgent queue, so that a worker whose places are all taken still
// obeys a cancel or a pause. It reads what is stored after a sequence: at once if look is set,
// after a reconnect, and every second while urgent messages wait and all places are taken. Each
// time it also retries the first failed order. Other orders arrive on the control subject.
func (cs *commands) listen(awake context.Context, after uint64, look bool, failed []*Task) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	reconnects := cs.host.node.conn.Stats().Reconnects
	for ; ; look = false {
		if again := cs.host.node.conn.Stats().Reconnects; again != reconnects {
			reconnects, look = again, true
		}
		if look || cs.lane.room() == 0 && cs.urgent() {
			if len(failed) > 0 {
				first := failed[0]
				if failed = failed[1:]; cs.applyQueued(cs.ctx, first) != nil {
					failed = append(failed, first)
				}
			}
			looking, cancel := context.WithTimeout(cs.ctx, sched.StoreTimeout)
			after, _, failed = cs.applyFromUrgent(looking, after, failed)
			cancel()
		}
		select {
		case <-tick.C:
		case <-awake.Done():
			if !cs.lane.draining.Load() {
				return
			}
			awake = cs.ctx // the runs that a draining worker still has obey commands, too
		case <-cs.ctx.Done():
			return
		}
	}
}

// urgent reports whether urgent messages wait. That includes messages that a worker
// drew and nakked because no place was free, and messages whose worker died: the server
// counts both as unacknowledged, like messages whose runs are in work.
func (cs *commands) urgent() bool {
	for _, p := range cs.queue.Health().Parts {
		if p.Priority == string(envelope.PriorityUrgent) {
			return p.Pending+p.Unacked > 0
		}
	}
	return false
}

// maxFailedOrders bounds the orders that are tried again without being drawn. Beyond it no
// later ones are read.
const maxFailedOrders = 64

// applyFromUrgent applies the orders that the urgent queue stores after a sequence, without
// drawing them. It returns the last sequence that it read, whether it read all, and the failed
// orders, including the earlier ones: a failed order must not block later ones. A worker that
// draws an applied order finds its stored answer and does not apply it again.
func (cs *commands) applyFromUrgent(ctx context.Context, after uint64, failed []*Task) (last uint64, all bool, _ []*Task) {
	for msg, err := range cs.cfg.Queue.Peek(ctx, string(envelope.PriorityUrgent), cs.host.Entity, after) {
		if err != nil {
			cs.host.log.Debug("urgent queue not read", "err", err)
			return after, false, failed
		}
		env, cbor, err := wire.Receive(&nats.Msg{Data: msg.Data, Header: msg.Header}, cs.host.node.limits)
		if err == nil && intents.IsCommand(env.Intent) {
			t := &Task{Envelope: env, host: cs.host, cbor: cbor}
			r := newRun(cs.lane, t, &hold{Delivery: &jetstream.Delivery{Priority: string(envelope.PriorityUrgent), Stored: msg.Time, Seq: msg.Seq}})
			if problem, _ := (admission{t}).admit(); problem == nil && cs.lane.deliveries.admitOverheard(r) {
				if len(failed) >= maxFailedOrders || ctx.Err() != nil {
					return after, false, failed
				}
				if cs.applyQueued(ctx, t) != nil {
					failed = append(failed, t)
				}
			}
		}
		after = msg.Seq
	}
	return after, true, failed
}

// answer stores the answer to a command, unless one is stored that storedReply would return:
// another worker may have applied the command at the same time, or this one may have stored an
// answer without learning of it.
func (cs *commands) answer(t *Task, reply *envelope.Envelope) error {
	ctx, cancel := context.WithTimeout(cs.ctx, sched.StoreTimeout) // the order may have taken all of its own time
	defer cancel()
	raw, err := cs.replies.encodeReply(t, reply)
	if err != nil {
		return err
	}
	msg, err := answers.Stored{
		Env: reply, Raw: raw, CBOR: t.cbor, Entity: cs.host.Entity, TaskID: t.Envelope.ID, MsgID: "answer." + t.run.ID(),
		Task: t.Envelope, // see replyReader.another
	}.Message()
	if err != nil {
		return err
	}
	return cs.cfg.Replies.PublishUnless(ctx, msg, func(last jetstream.Message) bool {
		_, err := cs.host.node.answers.OfMessage(cs.host.Entity, t.Envelope.ID, last)
		return err == nil
	})
}
