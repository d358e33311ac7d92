package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// This file has the exchanges of a durable task that takes one short step, in the streams
// of the mesh (docs/nats-binding.md, "The durable lane"), and nothing else: no envelope is
// made, checked or decoded.

// benchBare is the agent of these tasks.
const benchBare = "agent.bare"

// The subjects of these tasks' runs, without the id of the run.
var (
	bareDocuments = strings.TrimSuffix(jetstream.RunSubjects(subject.Map{}, benchBare), "*")
	bareReplies   = strings.TrimSuffix(jetstream.ReplySubjects(subject.Map{}, benchBare), "*")
)

// bareRun returns the pattern of both subjects of a run.
func bareRun(id string) string { return "$KV.*." + benchBare + "." + id }

// expect makes the headers of a write that is stored only if seq is the last sequence of
// a run.
func expect(id string, seq uint64) nats.Header {
	return nats.Header{
		natsjs.ExpectedStreamHeader:          {"KV_" + jetstream.BucketState},
		natsjs.ExpectedLastSubjSeqHeader:     {strconv.FormatUint(seq, 10)},
		natsjs.ExpectedLastSubjSeqSubjHeader: {bareRun(id)},
	}
}

// benchBareWorker looks for the run of each task, stores the task's bytes as its reply,
// announces them and acks.
func benchBareWorker(ctx context.Context, conn *nats.Conn, js natsjs.JetStream, ready func()) error {
	work, err := subject.Map{}.Work("normal", benchBare)
	if err != nil {
		return err
	}
	cons, err := js.CreateOrUpdateConsumer(ctx, jetstream.StreamWork, natsjs.ConsumerConfig{Durable: "bare", FilterSubject: work, AckPolicy: natsjs.AckExplicitPolicy, MaxAckPending: -1})
	if err != nil {
		return err
	}
	gathered := jetstream.Gather(js)
	end := func(msg natsjs.Msg) error {
		id := msg.Headers().Get(natsjs.MsgIDHeader)
		var found *natsjs.APIError
		_, err := gathered.PublishMsg(ctx, &nats.Msg{Subject: bareDocuments + id, Header: expect(id, math.MaxInt64)})
		if !errors.As(err, &found) || found.ErrorCode != natsjs.JSErrCodeStreamWrongLastSequence {
			return fmt.Errorf("look for run %s: %w", id, err)
		}
		if _, err := gathered.PublishMsg(ctx, &nats.Msg{Subject: bareReplies + id, Header: expect(id, 0), Data: msg.Data()}); err != nil {
			return fmt.Errorf("end run %s: %w", id, err)
		}
		if err := conn.Publish(msg.Headers().Get(benchReplyTo), msg.Data()); err != nil {
			return err
		}
		return msg.Ack()
	}
	failed := make(chan error, 1)
	consuming, err := cons.Consume(func(msg natsjs.Msg) {
		go func() {
			if err := end(msg); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		}()
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()
	ready()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// bareTask publishes a task under an id, and waits for the server's ack and for the
// reply, on a subscription of its own.
func (r *roleFlags) bareTask(conn *nats.Conn, js natsjs.JetStream) (func(context.Context) error, error) {
	body, err := r.tasks()().AppendJSON(nil)
	if err != nil {
		return nil, err
	}
	work, err := subject.Map{}.Work("normal", benchBare)
	if err != nil {
		return nil, err
	}
	gathered := jetstream.Gather(js)
	return func(ctx context.Context) error {
		id := ulid.Make().String()
		at, err := subject.Map{}.Reply(benchBare, id)
		if err != nil {
			return err
		}
		answers := make(chan *nats.Msg, 1)
		sub, err := conn.ChanSubscribe(at, answers)
		if err != nil {
			return err
		}
		defer sub.Unsubscribe()
		msg := &nats.Msg{Subject: work, Header: nats.Header{natsjs.MsgIDHeader: {id}, natsjs.ExpectedStreamHeader: {jetstream.StreamWork}, benchReplyTo: {at}}, Data: body}
		if _, err := gathered.PublishMsg(ctx, msg); err != nil {
			return err
		}
		select {
		case <-answers:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("no answer within 10s")
		}
	}, nil
}
