package mesh

import (
	"context"
	"errors"
	"mime"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// Names of NATS headers.
const (
	headerContentType = "Content-Type"
	headerTraceParent = "traceparent"
	// HeaderFrom names the sender of plain text on aee.ask.*.
	HeaderFrom = "Aee-From"
	// HeaderStreamCount tells, on a terminal envelope, how many stream
	// envelopes came before it.
	HeaderStreamCount = "Aee-Stream-Count"
)

// arrival is a message whose envelope is valid and whose signature is still
// to be checked.
type arrival struct {
	msg  *nats.Msg
	env  *envelope.Envelope
	cbor bool
}

func verifiers() int { return max(1, runtime.GOMAXPROCS(0)) }

// onTask takes one message from the live lane. It runs on the subscription's
// own goroutine, so it must not block.
func (h *host) onTask(msg *nats.Msg) {
	env, cbor, err := h.node.decode(msg)
	if err != nil {
		h.malformed(msg, cbor, err)
		return
	}
	a := arrival{msg, env, cbor}
	if h.node.cfg.Seen != nil || slow(h.node.cfg.Verifier, env) {
		select {
		case h.verify <- a:
		default:
			h.counts.busy.Add(1)
			h.refuse(a, envelope.Errorf(envelope.CodeBusy, "this worker of %s has more envelopes to check than it can", h.Entity).WithBackoff(100*time.Millisecond))
		}
		return
	}
	h.check(a)
}

// verifyLoop makes the checks that take long, on a goroutine of its own.
func (h *host) verifyLoop() {
	for {
		select {
		case a := <-h.verify:
			h.check(a)
		case <-h.closing:
			for {
				select {
				case a := <-h.verify:
					h.refuse(a, handBack(h.Entity))
				default:
					return
				}
			}
		}
	}
}

// decode reads a message by its Content-Type. cbor says which encoding the
// sender speaks, as far as that is known.
func (n *Node) decode(msg *nats.Msg) (env *envelope.Envelope, cbor bool, err error) {
	if len(msg.Header) > 0 {
		if value := msg.Header.Get(headerContentType); value != "" {
			kind, _, err := mime.ParseMediaType(value)
			switch {
			case err == nil && (kind == envelope.ContentCBOR || strings.HasSuffix(kind, "+cbor")):
				env, err := envelope.ParseCBORLimits(msg.Data, n.limits)
				return env, true, err
			case err == nil && (kind == envelope.ContentJSON || kind == "text/plain" || strings.HasSuffix(kind, "+json")):
			default:
				return nil, false, envelope.Errorf(envelope.CodeEncoding, "Content-Type %q is neither %s nor %s", value, envelope.ContentJSON, envelope.ContentCBOR)
			}
		}
	}
	env, err = envelope.ParseLimits(msg.Data, n.limits)
	return env, false, err
}

// malformed answers a body that is no envelope once, or drops it where nobody
// waits for an answer.
func (h *host) malformed(msg *nats.Msg, cbor bool, err error) {
	h.counts.malformed.Add(1)
	h.node.tel.refused(h, "malformed")
	problem := border(err)
	h.log.Debug("message refused", "subject", msg.Subject, "code", string(problem.Code), "err", err)
	if msg.Reply == "" {
		h.counts.dropped.Add(1)
		return
	}
	partial := &envelope.Envelope{}
	var bad *envelope.InvalidError
	if errors.As(err, &bad) {
		partial = bad.Partial()
	}
	h.answer(&Task{Envelope: salvage(partial, h.Entity), host: h, reply: msg.Reply, cbor: cbor}, problem)
}

// unknownID stands for an id that could not be read, where an error envelope
// must name one.
const unknownID = "00000000000000000000000000"

// salvage makes what could be read of a broken message good enough to be
// answered.
func salvage(e *envelope.Envelope, entity string) *envelope.Envelope {
	out := envelope.New(envelope.TypeTask, e.From, entity, e.Intent, nil)
	out.ID = unknownID
	if len(e.ID) >= 8 {
		out.ID = e.ID
	}
	if len(e.Corr) >= 8 {
		out.Corr = e.Corr
	}
	if out.From == "" {
		out.From = "unknown"
	}
	if len(out.Intent) < 3 {
		out.Intent = intentRefused
	}
	return out
}

// check decides about a valid envelope: who sent it, whether it came before,
// whether it may be served. What passes becomes a task in the queue.
func (h *host) check(a arrival) {
	now := time.Now()
	env := a.env
	identity, err := h.node.cfg.Verifier.Verify(env, now)
	if err != nil {
		h.alert(env, border(err))
		h.refuse(a, border(err))
		return
	}
	if env.To != h.Entity {
		h.refuse(a, envelope.Errorf(envelope.CodeWrongRecipient, "this is %s; the envelope is addressed to another entity", h.Entity))
		return
	}
	if env.Type != envelope.TypeTask {
		h.unexpected(a)
		return
	}
	if err := h.node.fresh(env, now); err != nil {
		if err.Code == envelope.CodeReplay {
			h.counts.replayed.Add(1)
		}
		h.alert(env, err)
		h.refuse(a, err)
		return
	}
	if err := h.node.quotas.admit(env, identity.Signed, now); err != nil {
		h.refuse(a, err)
		return
	}
	t := &Task{Envelope: env, KeyID: identity.KID, host: h, reply: a.msg.Reply, cbor: a.cbor, queued: now}
	if h.stopping.Load() {
		h.refuse(a, handBack(h.Entity))
		return
	}
	h.node.remember(h.Entity, env)
	h.accept(t, a.msg.Header)
}

// fresh refuses envelopes that are replayed or stale.
func (n *Node) fresh(env *envelope.Envelope, now time.Time) *envelope.Error {
	if n.cfg.Skew > 0 {
		if err := sign.CheckTime(env, now, n.cfg.Skew); err != nil {
			return border(err)
		}
	}
	switch {
	case n.cfg.ReplayWindow < 0:
		return nil
	case n.cfg.Seen == nil:
		if err := n.replay.Check(env, now); err != nil {
			return border(err)
		}
		return nil
	}
	return n.freshInMesh(env)
}

// freshInMesh asks the mesh's replay window. Where it cannot be asked, the
// task is refused: a replay must not get through because a store is down.
func (n *Node) freshInMesh(env *envelope.Envelope) *envelope.Error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	first, err := n.cfg.Seen.FirstSeen(ctx, env.From+" "+env.ID)
	if err != nil {
		return envelope.Errorf(envelope.CodeUnavailable, "the mesh's replay window cannot be asked for now: %w", err).WithBackoff(time.Second)
	}
	if !first {
		return envelope.Errorf(envelope.CodeReplay, "an envelope with this id came within the last %v", n.cfg.ReplayWindow)
	}
	return nil
}

// unexpected deals with what is no task. Only a task is answered, or two
// agents could go on answering one another; an event may come to an agent, as
// to anybody, and is remembered.
func (h *host) unexpected(a arrival) {
	if a.env.Type == envelope.TypeEvent {
		h.node.remember(h.Entity, a.env)
	} else {
		h.counts.unexpected.Add(1)
	}
	if a.msg.Reply != "" {
		h.refuse(a, envelope.Errorf(envelope.CodeUnexpectedType, "this subject takes tasks, not envelopes of type %s", a.env.Type))
	}
}

// refuse answers an arrival with an error, where somebody waits for it.
func (h *host) refuse(a arrival, err *envelope.Error) {
	h.counts.refused.Add(1)
	h.node.tel.refused(h, string(err.Code))
	h.log.Debug("envelope refused", "id", a.env.ID, "corr", a.env.Corr, "intent", a.env.Intent,
		"from", a.env.From, "to", a.env.To, "type", string(a.env.Type), "priority", string(a.env.Priority), "code", string(err.Code))
	if a.msg.Reply == "" {
		h.counts.dropped.Add(1)
		return
	}
	requires, _ := a.env.Requirements()
	h.answer(&Task{Envelope: a.env, Requires: requires, host: h, reply: a.msg.Reply, cbor: a.cbor}, err)
}

// slow reports whether the check of a signature takes as long as a task of its
// own, so that it should not hold up the subscription.
func slow(v sign.Verifier, env *envelope.Envelope) bool {
	if env.Sig == nil || v.Mode == sign.Off {
		return false
	}
	alg, _, _ := sign.Describe(env)
	return alg != sign.HS256
}
