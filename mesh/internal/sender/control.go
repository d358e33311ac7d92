package sender

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// NewCommand returns the envelope of a command, unsigned. Commands are urgent. A command that JSON
// cannot hold, such as one with an invalid Result, has no payload: the envelope cannot be sent.
func NewCommand(from, to string, cmd intents.Command) *envelope.Envelope {
	payload, _ := json.Marshal(cmd) // nil if it fails
	e := envelope.New(envelope.TypeTask, from, to, cmd.CommandIntent(), payload)
	e.Payload, e.Priority = payload, envelope.PriorityUrgent
	return e
}

// PublishControl sends a command to all workers of its addressee, and does not wait for an
// answer.
func (s *Sender) PublishControl(e *envelope.Envelope) error {
	to, err := s.Subjects.Ctl(e.To)
	if err != nil {
		return err
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	header, err := s.Encode(context.Background(), e, false, false, buf)
	if err != nil {
		return err
	}
	return s.Publish(to, *buf, header)
}

// RequestControl sends a command to all workers of its addressee, and waits for the first answer.
// Only the worker that applies the command answers.
func (s *Sender) RequestControl(ctx context.Context, e *envelope.Envelope, wait time.Duration) (*envelope.Envelope, error) {
	to, err := s.Subjects.Ctl(e.To)
	if err != nil {
		return nil, err
	}
	var body []byte
	header, err := s.Encode(ctx, e, false, false, &body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.Exchange(ctx, time.Now().Add(wait), e, rpc.Request{To: to, Header: header, Data: body}, Hooks{})
}

// CancelSent sends a cancel for a task whose answer is no longer needed. It is best effort: if
// the cancel is lost, the task's timeout ends it. Without a connection it waits for the next one,
// behind the task.
func (s *Sender) CancelSent(task *envelope.Envelope) {
	reason := "the sender no longer needs the answer"
	if s.PublishControl(NewCommand(task.From, task.To, intents.CancelTask{ID: task.ID, Reason: reason})) == nil && s.Conn.IsConnected() {
		_ = s.Conn.FlushTimeout(2 * time.Second)
	}
}

// ControlWait is how long a command waits for a worker's answer before it is sent over the
// work queue.
const ControlWait = 2 * time.Second
