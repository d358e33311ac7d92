package answers

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// Stored is a reply to a durable task before it is stored, on the subject of its
// entity and TaskID (Map.Reply of envelope/subject). Its method Message is
// the only writer of the headers of stored replies; docs/nats-binding.md, section 13,
// defines them.
type Stored struct {
	Env  *envelope.Envelope
	Raw  []byte // Env as JSON; nil: not encoded yet
	CBOR bool   // the sender speaks CBOR

	Entity, TaskID string // of the task
	MsgID          string
	Task           *envelope.Envelope // for the digest header; nil: no digest
	Chain          string             // the HeaderHandoff; "": the task was not delegated
	ChainDigest    string             // the digest of the original task, if the task was delegated

	Seq    int         // the sequence number; 0: none
	Epoch  string      // of the run; "": there is no run
	stream *int        // the number of stream envelopes before it; nil: no header
	Header nats.Header // headers to start with, such as the trace
}

// Encode encodes a reply as JSON, as the record of a run holds it. It fails with E_OUTPUT_SCHEMA if
// the reply cannot be encoded, and with the error of sendable for the size of its longest encoding:
// JSON, or CBOR if the sender speaks it.
func Encode(e *envelope.Envelope, cbor bool, sendable func(size int) error) ([]byte, error) {
	raw, err := e.AppendJSON(make([]byte, 0, len(e.Payload)+512))
	size := len(raw)
	if err == nil && cbor {
		var sent []byte
		sent, err = e.AppendCBOR(nil)
		size = max(size, len(sent))
	}
	if err != nil {
		return nil, fault.Output(err)
	}
	return raw, sendable(size)
}

// Message encodes the reply for [jetstream.Replies].
func (s Stored) Message() (out jetstream.Reply, err error) {
	header := s.Header
	if header == nil {
		header = nats.Header{}
	}
	data := s.Raw
	switch {
	case s.CBOR:
		header[wire.HeaderContentType] = []string{envelope.ContentCBOR}
		data, err = s.Env.AppendCBOR(nil)
	case data == nil:
		data, err = s.Env.AppendJSON(nil)
	}
	if err != nil {
		return out, fault.Output(err)
	}
	if s.Seq > 0 {
		header[jetstream.HeaderSeq] = []string{strconv.Itoa(s.Seq)}
	}
	if s.Epoch != "" {
		header[wire.HeaderEpoch] = []string{s.Epoch}
	}
	digest := ""
	if s.Task != nil {
		digest = wire.TaskDigest(s.Task)
	}
	if s.Chain != "" {
		header[wire.HeaderHandoff] = []string{s.Chain}
		if s.Task != nil {
			digest = s.ChainDigest
		}
	}
	if digest != "" {
		header[wire.HeaderTaskDigest] = []string{digest}
	}
	if s.stream != nil {
		header[wire.HeaderStreamCount] = []string{strconv.Itoa(*s.stream)}
	}
	if s.Env.Type == envelope.TypeError {
		problem := envelope.ErrorOf(s.Env)
		header[micro.ErrorHeader] = []string{wire.HeaderText(problem.Message)}
		header[micro.ErrorCodeHeader] = []string{wire.HeaderText(string(problem.Code))}
	}
	return jetstream.Reply{Entity: s.Entity, TaskID: s.TaskID, MsgID: s.MsgID, Header: header, Data: data}, nil
}

// Instead returns the error that is sent in the place of the reply, which no message can carry
// because of why, see [fault.Unsendable]. It is made of the reply, with its id and its time: so it is
// the same however often it is made, and is stored once. It is signed with the agent's key (nil:
// unsigned).
func (s Stored) Instead(why error, signer *sign.Signer) (Stored, error) {
	problem := fault.ForPeer(why)
	switch {
	case s.Env.Type == envelope.TypeError: // without what makes it too large
		problem = envelope.ErrorOf(s.Env)
	case problem.Code != envelope.CodeOutputSchema:
		problem = envelope.Errorf(envelope.CodeTooLarge, "the answer is larger than a message may be")
	}
	e := s.Env.Clone()
	e.Type, e.Payload, e.Sig, e.Extra = envelope.TypeError, fault.Bare(problem).Payload(), nil, nil
	s.Env, s.Raw = e, nil
	if signer == nil {
		return s, nil
	}
	return s, signer.Sign(e)
}

// RefusedID returns the MsgID of the reply to a message without a run; work is the message's
// sequence in the work queue.
func RefusedID(work uint64) string { return refused + strconv.FormatUint(work, 10) }

const refused = "refused."

// RefusedBy reports whether a stored reply is to a message without a run, with this sequence in
// the work queue or an earlier one.
func RefusedBy(h nats.Header, work uint64) bool {
	seq := refusedAt(h)
	return seq > 0 && seq <= work
}

// Refuses reports whether a stored reply is to the message without a run that has this sequence in
// the work queue.
func Refuses(h nats.Header, work uint64) bool { return refusedAt(h) == work }

// refusedAt returns the sequence of the message that a reply with a RefusedID is to, 0 for other
// replies. If another message took the RefusedID, the id of the reply is longer: see
// [jetstream.Replies.Store].
func refusedAt(h nats.Header) uint64 {
	text, is := strings.CutPrefix(h.Get(nats.MsgIdHdr), refused)
	text, _, _ = strings.Cut(text, ".")
	seq, err := strconv.ParseUint(text, 10, 64)
	if !is || err != nil {
		return 0
	}
	return seq
}

// End returns the terminal reply in the last checkpoint of an ended run.
func End(c *state.Checkpoint, task *envelope.Envelope) (Stored, error) {
	reply, err := envelope.ParseStored(c.Mesh.Reply)
	if err != nil {
		return Stored{}, err
	}
	return Of(reply, c, task), nil
}

// Of is [End] for a reply that is decoded already.
func Of(reply *envelope.Envelope, c *state.Checkpoint, task *envelope.Envelope) Stored {
	m := &c.Mesh
	s := Stored{
		Env: reply, Raw: json.RawMessage(m.Reply), CBOR: m.CBOR, Entity: m.Entity, TaskID: m.TaskID, MsgID: reply.ID,
		Task: task, Seq: m.Stream + 1, Epoch: strconv.FormatUint(m.Epoch, 10),
	}
	if wanted, _ := task.Requirements(); m.Stream > 0 || wanted.Stream {
		s.stream = &m.Stream
	}
	return s
}
