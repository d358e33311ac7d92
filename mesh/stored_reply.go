package mesh

import (
	"encoding/json"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// storedReply is a reply to a durable task before it is stored. Its message is the only
// place where headers of stored replies are written; docs/nats-binding.md, section 13, has
// what they mean.
type storedReply struct {
	env  *envelope.Envelope
	raw  []byte // env as JSON, where it is there already
	cbor bool   // the sender speaks CBOR

	entity, taskID string // what is answered
	msgID          string
	task           *envelope.Envelope // whose digest is told; nil: no digest
	handed         *handed            // the chain of agents that delegated the task; nil: none did

	seq    int         // its number; 0: it has none
	epoch  string      // "": it is of no run
	stream *int        // how many stream envelopes came before; nil: not told
	header nats.Header // of the message already, such as the trace
}

// message is what [jetstream.Replies] stores.
func (s storedReply) message() (out jetstream.Reply, err error) {
	header := s.header
	if header == nil {
		header = nats.Header{}
	}
	data := s.raw
	switch {
	case s.cbor:
		header[headerContentType] = []string{envelope.ContentCBOR}
		data, err = s.env.AppendCBOR(nil)
	case data == nil:
		data, err = s.env.AppendJSON(nil)
	}
	if err != nil {
		return out, outputError(err)
	}
	if s.seq > 0 {
		header[jetstream.HeaderSeq] = []string{strconv.Itoa(s.seq)}
	}
	if s.epoch != "" {
		header[HeaderEpoch] = []string{s.epoch}
	}
	digest := ""
	if s.task != nil {
		digest = taskDigest(s.task)
	}
	if s.handed != nil {
		header[HeaderHandoff] = []string{s.handed.header()}
		if s.task != nil {
			digest = s.handed.Digest
		}
	}
	if digest != "" {
		header[HeaderTaskDigest] = []string{digest}
	}
	if s.stream != nil {
		header[HeaderStreamCount] = []string{strconv.Itoa(*s.stream)}
	}
	if s.env.Type == envelope.TypeError {
		problem := envelope.ErrorOf(s.env)
		header[micro.ErrorHeader] = []string{headerText(problem.Message)}
		header[micro.ErrorCodeHeader] = []string{headerText(string(problem.Code))}
	}
	return jetstream.Reply{Entity: s.entity, TaskID: s.taskID, MsgID: s.msgID, Header: header, Data: data}, nil
}

// endReply is the terminal reply of a run that has ended, to its task.
func endReply(c *state.Checkpoint, task *envelope.Envelope) (storedReply, error) {
	m := &c.Mesh
	reply, err := envelope.Parse(m.Reply)
	if err != nil {
		return storedReply{}, err
	}
	s := storedReply{
		env: reply, raw: json.RawMessage(m.Reply), cbor: m.CBOR, entity: m.Entity, taskID: m.TaskID, msgID: reply.ID,
		task: task, seq: m.Stream + 1, epoch: strconv.FormatUint(m.Epoch, 10),
	}
	if wanted, _ := task.Requirements(); m.Stream > 0 || wanted.Stream {
		s.stream = &m.Stream
	}
	return s, nil
}
