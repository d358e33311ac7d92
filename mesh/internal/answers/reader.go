package answers

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Reader decides which messages are answers to a task.
type Reader struct {
	Limits    envelope.Limits
	Verifier  sign.Verifier
	Operators []string // patterns of the entities that may withdraw the tasks of others
	Log       *slog.Logger
}

// Live verifies that a reply answers the task and that its author may answer: the entity
// that the task was sent to, or an agent to which the task was delegated.
func (r *Reader) Live(task *envelope.Envelope, msg *nats.Msg, reply *envelope.Envelope, known *Known) error {
	var now time.Time
	if reply.Sig != nil {
		now = time.Now() // the time matters only for the validity of a key
	}
	if _, err := r.Verifier.Verify(reply, now); err != nil {
		return fault.OfReply(task.To, err)
	}
	switch {
	case reply.Type == envelope.TypeError && reply.ReplyTo == wire.UnknownID:
		// The peer could not read the task's id.
	case reply.ReplyTo != task.ID && (reply.Type != envelope.TypeStream || reply.ReplyTo != ""):
		return OtherTask(reply, task)
	case reply.Corr != task.Corr:
		return fault.Unusable("reply from %s: foreign corr %s", task.To, clip.Text(reply.Corr, 128))
	}
	if reply.From != task.To {
		if err := r.MayAnswer(task.To, task.ID, task.Corr, task.From, msg.Header.Get(wire.HeaderHandoff), reply, time.Now(), known); err != nil {
			return err
		}
	}
	switch reply.Type {
	case envelope.TypeResult, envelope.TypeError, envelope.TypeStream:
		wire.LogReceived(r.Log, reply)
		return nil
	}
	return fault.Unusable("reply from %s: an envelope of type %s is no answer", task.To, reply.Type)
}

// Stored reads a stored message and checks that it is an answer to the task, from the
// entity that it was sent to, or from the agent to which that entity delegated it. A
// person's answer must also be addressed to the caller. An empty caller or corr is unknown
// and not compared.
//
// at is when the server stored the message; zero: it has just arrived. The signing key must have
// been valid at that time: a stored reply stays readable after the key has expired.
func (r *Reader) Stored(entity, taskID, corr, caller string, msg *nats.Msg, at time.Time, known *Known) (*envelope.Envelope, error) {
	if at.IsZero() {
		at = time.Now()
	}
	reply, _, err := wire.Decode(msg, r.Limits)
	if err == nil {
		_, err = r.Verifier.Verify(reply, at)
	}
	if err != nil {
		return nil, fault.OfReply(entity, err)
	}
	switch {
	case reply.ReplyTo != taskID && (reply.Type != envelope.TypeStream || reply.ReplyTo != ""):
		return nil, fault.Unusable("reply of %s: it answers %s, not %s", entity, clip.Text(reply.ReplyTo, 128), clip.Text(taskID, 128))
	case corr != "" && reply.Corr != corr:
		return nil, fault.Unusable("reply of %s: foreign corr %s", entity, clip.Text(reply.Corr, 128))
	case caller != "" && reply.To != caller && subject.IsPerson(entity):
		return nil, fault.Unusable("reply of %s: it is for %s, not for %s", entity, clip.Text(reply.To, 128), caller)
	}
	if reply.From != entity && !r.Withdrawn(reply) {
		if err := r.MayAnswer(entity, taskID, corr, caller, msg.Header.Get(wire.HeaderHandoff), reply, at, known); err != nil {
			return nil, err
		}
	}
	switch reply.Type {
	case envelope.TypeResult, envelope.TypeError, envelope.TypeStream:
		wire.LogReceived(r.Log, reply)
		return reply, nil
	}
	return nil, fault.Unusable("reply of %s: an envelope of type %s is no answer", entity, reply.Type)
}

// OfMessage is Stored for a message that was read from the stream, with an unknown caller and corr.
func (r *Reader) OfMessage(entity, taskID string, msg jetstream.Message) (*envelope.Envelope, error) {
	return r.Stored(entity, taskID, "", "", &nats.Msg{Data: msg.Data, Header: msg.Header}, msg.Time, nil)
}

// Withdrawn reports whether a reply is an E_CANCELLED from an operator. It is the only reply
// that may come from an entity other than the task's addressee or an agent to which the task
// was delegated.
func (r *Reader) Withdrawn(reply *envelope.Envelope) bool {
	if reply.Type != envelope.TypeError || envelope.ErrorOf(reply).Code != envelope.CodeCancelled {
		return false
	}
	return slices.ContainsFunc(r.Operators, func(pattern string) bool { return sign.MatchFrom(pattern, reply.From) })
}

// Known is the last chain that was verified. The next reply of the same stream has the
// same chain, which need not be verified again.
type Known struct {
	header, from, to string
}

// MayAnswer verifies that the author of a reply may answer a task that was sent to another entity:
// the reply's header must have a chain of links from that entity to the author. An empty caller or
// corr is unknown and not compared. at is when the reply arrived or was stored.
func (r *Reader) MayAnswer(entity, taskID, corr, caller, header string, reply *envelope.Envelope, at time.Time, known *Known) error {
	if header == "" {
		return fault.Unusable("a reply to the task for %s comes from %s, without a proof (header Aee-Handoff) that it may answer", entity, clip.Text(reply.From, 128))
	}
	if known != nil && known.header == header && known.from == reply.From && known.to == reply.To {
		return nil
	}
	if strings.Count(header, " ") >= chain.Max {
		return fault.Unusable("a reply to the task for %s comes from %s, and its chain has more than %d links", entity, clip.Text(reply.From, 128), chain.Max)
	}
	links, err := chain.Parse(strings.Split(header, " "))
	if err != nil {
		return fault.Unusable("a reply to the task for %s comes from %s, and its chain is malformed: %s", entity, clip.Text(reply.From, 128), fault.ForPeer(err).Message)
	}
	about, first, last := links.About, links.First(), links.Last()
	switch {
	case first.From != entity || last.To != reply.From:
		return fault.Unusable("a reply to the task for %s comes from %s, and its chain leads from %s to %s", entity, clip.Text(reply.From, 128), clip.Text(first.From, 128), clip.Text(last.To, 128))
	case about.Task != taskID, corr != "" && first.Corr != corr, caller != "" && about.Caller != caller, about.Caller != reply.To:
		return fault.Unusable("a reply to the task for %s comes from %s, and its chain is about another task", entity, clip.Text(reply.From, 128))
	}
	if err := links.Verify(r.Verifier, at); err != nil {
		return fault.OfReply(clip.Text(reply.From, 128)+" to the task for "+entity, err)
	}
	if known != nil {
		known.header, known.from, known.to = header, reply.From, reply.To
	}
	return nil
}

// Concerns reports whether a reply belongs to the task, by reply_to or else by corr. A stream
// envelope may lack reply_to, and an error about an unreadable message has no usable one.
func Concerns(reply, task *envelope.Envelope) bool {
	switch {
	case reply.ReplyTo == task.ID:
		return true
	case reply.Type == envelope.TypeStream && reply.ReplyTo == "", reply.Type == envelope.TypeError && reply.ReplyTo == wire.UnknownID:
		return reply.Corr == task.Corr
	}
	return false
}

// OtherTask returns the error for a reply that answers another task.
func OtherTask(reply, task *envelope.Envelope) error {
	return fault.Unusable("reply from %s: it answers %s, not %s", task.To, clip.Text(reply.ReplyTo, 128), task.ID)
}

// NotReply returns the error for a message that is not a valid reply.
func NotReply(task *envelope.Envelope, msg *nats.Msg, err error) error {
	if !wire.IsPubAck(msg.Data) {
		return fault.OfReply(task.To, err)
	}
	return fault.Unusable("a JetStream stream captures the subject of %s and acknowledged the task, so the agent's reply cannot be recognised: remove the subject from the stream, or set no_ack on the stream", task.To)
}
