package mesh

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// arrival is a message whose signature is not verified yet.
type arrival struct {
	msg  *nats.Msg
	env  *envelope.Envelope // valid; nil: the message is CBOR and not decoded yet
	cbor bool
}

// verifiers returns how many envelopes are verified concurrently: one for each processor,
// and more if the checks wait for a store.
func verifiers(waits bool) int {
	if waits {
		return seenAtOnce
	}
	return max(1, runtime.GOMAXPROCS(0))
}

// seenAtOnce is how many checks of one agent may wait for the mesh's replay window.
const seenAtOnce = 64

// intake receives the messages of the live lane: it decodes and checks them, and refuses what
// is not a task of the agent.
type intake struct{ host *host }

// onTask receives a message of the live lane. It runs on the subscription's goroutine,
// so it must not block: CBOR is decoded elsewhere.
func (in *intake) onTask(msg *nats.Msg) {
	a := arrival{msg: msg, cbor: wire.IsCBOR(msg)}
	if !a.cbor && !in.decodeTask(&a) {
		return
	}
	if a.cbor || in.host.node.asksSeen(a.env, a.env.Sig != nil) || slow(in.host.node.cfg.Verifier, a.env) {
		if !in.host.verify.Go(func() { in.verified(a) }) {
			in.host.counts.busy.Add(1)
			in.refuse(a, envelope.Errorf(envelope.CodeBusy, "this worker of %s has more envelopes to check than it can", in.host.Entity).WithBackoff(100*time.Millisecond))
		}
		return
	}
	in.check(a)
}

// decodeTask decodes the envelope of an arrival, or answers that it is invalid.
func (in *intake) decodeTask(a *arrival) bool {
	env, cbor, err := wire.Receive(a.msg, in.host.node.limits)
	if err != nil {
		in.malformed(a.msg, cbor, err)
		return false
	}
	a.env = env
	return true
}

// verified makes the slow checks of an arrival, unless the agent stops.
func (in *intake) verified(a arrival) {
	if !in.host.closing.Load() {
		in.check(a)
	} else if a.env != nil || in.decodeTask(&a) {
		in.refuse(a, drainingError(in.host.Entity))
	}
}

// malformed answers a message without a valid envelope with one error, or drops it if it
// has no reply subject.
func (in *intake) malformed(msg *nats.Msg, cbor bool, err error) {
	in.host.counts.malformed.Add(1)
	in.host.node.tel.Refused(in.host.Entity, "malformed")
	problem, read := fault.ForPeer(err), wire.Readable(err)
	if !cbor && noEnvelope(msg.Data, err) {
		problem = envelope.Errorf(problem.Code, "this is no envelope (text goes to %s): %s", in.host.ask, problem.Message)
	}
	wire.LogRefused(in.host.log, read, problem.Code, slog.String("subject", msg.Subject), slog.Any("err", err))
	if msg.Reply == "" {
		in.host.counts.dropped.Add(1)
		return
	}
	in.host.service.Stats[service.Task].Count(problem)
	in.host.answer(&Task{Envelope: wire.SalvageFrom(err, in.host.Entity), host: in.host, reply: msg.Reply, cbor: cbor}, problem)
}

// noEnvelope reports whether a refused message is text, or a payload alone: no JSON object,
// or one that has neither an id nor a sender.
func noEnvelope(data []byte, err error) bool {
	var bad *envelope.InvalidError
	if !errors.As(err, &bad) {
		return false
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return true
	}
	read := bad.Partial()
	return bad.Problems[0].Rule != envelope.RuleJSON && read.ID == "" && read.From == ""
}

// check admits or refuses an envelope. An admitted task is accepted into the queue.
func (in *intake) check(a arrival) {
	if a.env == nil && !in.decodeTask(&a) {
		return
	}
	env := a.env
	t := &Task{Envelope: env, host: in.host, reply: a.msg.Reply, cbor: a.cbor, queued: time.Now()}
	if problem, alert := (admission{t}).admit(); problem != nil {
		if alert {
			in.host.events.Alert(env, problem)
		}
		switch problem.Code {
		case envelope.CodeReplay:
			in.host.counts.replayed.Add(1)
		case envelope.CodeUnexpectedType:
			in.unexpected(a)
			return
		}
		in.refuse(a, problem)
		return
	}
	if env.Type == envelope.TypeEvent {
		wire.LogReceived(in.host.log, env)
		in.host.node.journal.RememberReceived(in.host.Entity, env, a.msg.Data, a.cbor)
		in.unexpected(a)
		return
	}
	if in.host.stopping.Load() {
		in.refuse(a, drainingError(in.host.Entity))
		return
	}
	wire.LogReceived(in.host.log, env)
	in.host.node.journal.RememberReceived(in.host.Entity, env, a.msg.Data, a.cbor)
	in.host.accept(t, a.msg.Header)
}

// capped returns the envelope with another priority, normal for an unknown one. The original
// stays unchanged: references name its hash.
func capped(e *envelope.Envelope, p envelope.Priority) *envelope.Envelope {
	if p.Rank() < 0 { // of a document that was imported
		p = envelope.PriorityNormal
	}
	if e.Priority == p {
		return e
	}
	c := *e
	c.Priority = p
	return &c
}

// fresh refuses envelopes that are replayed or stale.
func (n *Node) fresh(env *envelope.Envelope, now time.Time) *envelope.Error {
	if err := n.checkAge(env, now); err != nil {
		return err
	}
	if n.replay != nil {
		if err := n.replay.Check(env, now); err != nil {
			return fault.ForPeer(err)
		}
	}
	return nil
}

// checkAge refuses envelopes that are stale.
func (n *Node) checkAge(env *envelope.Envelope, now time.Time) *envelope.Error {
	if n.cfg.Skew > 0 {
		if err := sign.CheckTime(env, now, n.cfg.Skew); err != nil {
			return fault.ForPeer(err)
		}
	}
	return nil
}

// unexpected handles envelopes that are not tasks. It refuses one that has a reply
// subject; a refusal has none, so two agents never answer each other for ever. An event
// without a reply subject is valid: every entity may be sent events.
func (in *intake) unexpected(a arrival) {
	if a.env.Type != envelope.TypeEvent {
		in.host.counts.unexpected.Add(1)
		if a.msg.Reply == "" {
			in.host.counts.dropped.Add(1)
		}
	}
	if a.msg.Reply != "" {
		in.refuse(a, unexpectedType(a.env.Type))
	}
}

// refuse answers an arrival with an error, if it has a reply subject.
func (in *intake) refuse(a arrival, err *envelope.Error) {
	if a.env == nil { // refused before it was decoded, because this worker is busy
		a.env = wire.Salvage(&envelope.Envelope{}, in.host.Entity)
	}
	in.host.counts.refused.Add(1)
	in.host.node.tel.Refused(in.host.Entity, string(err.Code))
	wire.LogRefused(in.host.log, a.env, err.Code)
	if a.msg.Reply == "" {
		in.host.counts.dropped.Add(1)
		return
	}
	in.host.service.Stats[service.Task].Count(err)
	t := &Task{Envelope: a.env, host: in.host, reply: a.msg.Reply, cbor: a.cbor}
	_ = t.readRequires()
	t.handed, _, _ = t.readHanded() // the sender verifies the chain
	in.host.answer(t, err)
}

// hs256Prefix is the start of a signature that is verified quickly, as package sign writes
// it.
var hs256Prefix = []byte(`{"alg":"` + sign.HS256 + `"`)

// slow reports whether verifying a signature takes as long as a task, so that it must
// not run on the subscription's goroutine.
func slow(v sign.Verifier, env *envelope.Envelope) bool {
	if env.Sig == nil || v.Mode == sign.Off || bytes.HasPrefix(env.Sig, hs256Prefix) {
		return false
	}
	alg, _, _ := sign.Describe(env)
	return alg != sign.HS256
}
