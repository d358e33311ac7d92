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

// storedReply is a reply to a durable task before it is stored, on the subject of its
// entity and taskID (Map.Reply of envelope/subject). Its method message is
// the only writer of the headers of stored replies; docs/nats-binding.md, section 13,
// defines them.
type storedReply struct {
	env  *envelope.Envelope
	raw  []byte // env as JSON; nil: not encoded yet
	cbor bool   // the sender speaks CBOR

	entity, taskID string // of the task
	msgID          string
	task           *envelope.Envelope // for the digest header; nil: no digest
	handed         *handed            // the chain of agents that delegated the task; nil: none did

	seq    int         // the sequence number; 0: none
	epoch  string      // of the run; "": there is no run
	stream *int        // the number of stream envelopes before it; nil: no header
	header nats.Header // headers to start with, such as the trace
}

// message encodes the reply for [jetstream.Replies].
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

// endReply returns the terminal reply in the last checkpoint of an ended run.
func endReply(c *state.Checkpoint, task *envelope.Envelope) (storedReply, error) {
	reply, err := envelope.Parse(c.Mesh.Reply)
	if err != nil {
		return storedReply{}, err
	}
	return replyOf(reply, c, task), nil
}

// replyOf is endReply for a reply that is decoded already.
func replyOf(reply *envelope.Envelope, c *state.Checkpoint, task *envelope.Envelope) storedReply {
	m := &c.Mesh
	s := storedReply{
		env: reply, raw: json.RawMessage(m.Reply), cbor: m.CBOR, entity: m.Entity, taskID: m.TaskID, msgID: reply.ID,
		task: task, seq: m.Stream + 1, epoch: strconv.FormatUint(m.Epoch, 10),
	}
	if wanted, _ := task.Requirements(); m.Stream > 0 || wanted.Stream {
		s.stream = &m.Stream
	}
	return s
}
