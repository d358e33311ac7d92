package sender

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Hooks are called during an exchange with what comes before the terminal envelope. Each may be nil.
type Hooks struct {
	Stream func(*envelope.Envelope) error // for each stream envelope
	Holder func()                         // a worker has named itself as the task's holder, or has delegated the task
}

// Exchange sends a task and waits for its terminal envelope. If what.Stream is set, stream
// envelopes may come before it; hooks.Stream gets them, nil drops them. An envelope whose number is
// not the highest so far is dropped: it arrived late, for example from an agent that has delegated
// the task, or twice.
func (s *Sender) Exchange(ctx context.Context, deadline time.Time, task *envelope.Envelope, what rpc.Request, hooks Hooks) (*envelope.Envelope, error) {
	x, err := s.Replies.Open(what.To, what.Stream, deadline)
	if err != nil {
		return nil, err
	}
	var holder string
	defer func() {
		s.Holders.Leave(holder, x)
		s.Replies.Close(x)
	}()
	s.Replies.Send(x, what)
	var known answers.Known
	var number int         // the highest of a stream envelope
	var stray error        // error of the last reply to another task on this reply subject
	var nameless *nats.Msg // a reply without a usable reply_to
	for seen := 0; ; seen++ {
		answer, err := s.Holders.Await(ctx, x, task.ID, &holder, hooks.Holder)
		switch {
		case err == nil:
		case nameless != nil && errors.Is(err, context.DeadlineExceeded):
			answer = nameless // no better reply arrived
		case stray != nil && errors.Is(err, context.DeadlineExceeded):
			return nil, errors.Join(errStray, err, stray)
		default:
			return nil, err
		}
		reply, cbor, err := wire.Decode(answer, s.Answers.Limits)
		if x.Reused() && answer != nameless && (err != nil || !answers.Concerns(reply, task)) {
			if stray = err; err == nil {
				stray = answers.OtherTask(reply, task)
			}
			if nameless == nil && (err != nil || reply.ReplyTo == wire.UnknownID) {
				nameless = answer
				s.Replies.Hasten(x, time.Now().Add(unidentifiedWait))
			}
			s.Log.Debug("reply to another task ignored", "id", task.ID, "corr", task.Corr, "from", task.To, "err", stray)
			seen--
			continue
		}
		if err == nil {
			err = s.Answers.Live(task, answer, reply, &known)
		} else {
			err = answers.NotReply(task, answer, err)
		}
		if err != nil {
			return nil, err
		}
		if reply.Type != envelope.TypeStream {
			if sent := answer.Header.Get(wire.HeaderStreamCount); sent != "" && sent != strconv.Itoa(seen) {
				s.Log.Warn("stream has gaps", "id", task.ID, "corr", task.Corr, "sent", sent, "received", seen)
			}
			s.Journal.Received(reply.ID, answer.Data, cbor)
			if reply.From == task.To && stray == nil {
				x.Answered()
			}
			return reply, nil
		}
		if hooks.Stream == nil {
			seen--
			continue // the caller did not request a stream
		}
		if n := wire.SeqOf(reply.Payload); n > 0 && n <= number {
			s.Log.Debug("stream envelope dropped: it came out of order", "id", task.ID, "corr", task.Corr, "seq", n, "after", number)
			seen--
			continue
		} else if n > 0 {
			number = n
		}
		if err := hooks.Stream(reply); err != nil {
			s.CancelSent(task)
			return nil, err
		}
		if x.Overflowed() {
			s.CancelSent(task)
			return nil, errOverflow
		}
	}
}

// unidentifiedWait is how long Exchange waits for a better reply after a reply without a usable
// reply_to on a reused reply subject. Such a reply may belong to an earlier task, or it may be the
// only answer to this task, from a worker that could not decode it.
const unidentifiedWait = time.Second

// errOverflow ends an exchange whose OnStream is too slow for the stream.
var errOverflow = envelope.Errorf(envelope.CodeUnavailable, "more than %d stream envelopes, or %d MiB of them, waited to be read", rpc.MaxBuffered, rpc.MaxBufferedBytes>>20)

// errStray: only replies to other tasks arrived before the deadline.
var errStray = errors.New("only replies to other tasks arrived")

// Grace is how much longer than an agent its sender waits.
const Grace = 500 * time.Millisecond

// Failure converts the error of an exchange without an answer to an [*envelope.Error] with
// a code, if the cause is known.
func Failure(task *envelope.Envelope, err error) error {
	switch {
	case errors.Is(err, holders.ErrDied):
		return holders.Died(task.To)
	case errors.Is(err, nats.ErrNoResponders):
		return envelope.Errorf(envelope.CodeNoResponders, "no worker serves %s", task.To).WithCause(err)
	case errors.Is(err, errStray):
		return envelope.Errorf(envelope.CodeTimeout, "%s did not answer in time: a reply arrived, but to another task", task.To).WithCause(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return envelope.Errorf(envelope.CodeTimeout, "%s did not answer in time", task.To).WithCause(err)
	}
	return err
}
