package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// The raw side's own stream and bucket, and the header with the reply subject.
const (
	benchRawStream = "BENCH_RAW"
	benchRawBucket = "bench_raw"
	benchReplyTo   = "Reply-To" // header: where the raw worker answers
)

// benchKeys is how many records each goroutine of the checkpoint bench has.
const benchKeys = 4

func newBenchWorkCommand(stdout io.Writer) *cobra.Command {
	var r roleFlags
	cmd := connectedCommand("work", func(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error {
		ctx = untilStdinCloses(ctx)
		ready := func() { fmt.Fprintln(stdout, "ready") }
		switch benchMode(r.mode) {
		case benchStream:
			return benchRawWorker(ctx, conn, js, ready)
		case benchExchanges:
			return benchBareWorker(ctx, conn, js, ready)
		}
		node, err := mesh.New(conn, nodeConfig(benchAgent, benchLane(js)))
		if err != nil {
			return err
		}
		return node.Serve(ctx, mesh.Agent{Entity: benchAgent, Handler: echo, Concurrency: r.inflight, Queue: 4 * r.inflight, Ready: ready})
	})
	r.add(cmd)
	return cmd
}

func benchLane(js natsjs.JetStream) *mesh.Durable {
	js = jetstream.Gather(js)
	var m subject.Map
	return &mesh.Durable{Queue: jetstream.NewQueue(js, m), Replies: jetstream.NewReplies(js, m), Dead: jetstream.NewDead(js, m), States: jetstream.NewStates(js, m),
		Clock: jetstream.NewClock(js, m), Create: true}
}

// benchRawWorker answers each task with the task's own bytes, and acks it.
func benchRawWorker(ctx context.Context, conn *nats.Conn, js natsjs.JetStream, ready func()) error {
	cons, err := js.CreateOrUpdateConsumer(ctx, benchRawStream, natsjs.ConsumerConfig{Durable: "worker", AckPolicy: natsjs.AckExplicitPolicy, MaxAckPending: -1})
	if err != nil {
		return err
	}
	consuming, err := cons.Consume(func(msg natsjs.Msg) {
		conn.Publish(msg.Headers().Get(benchReplyTo), msg.Data())
		msg.Ack()
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()
	ready()
	<-ctx.Done()
	return nil
}

func newBenchSubmitCommand(stdout io.Writer) *cobra.Command {
	var r roleFlags
	cmd := connectedCommand("submit", func(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error {
		var call func(context.Context) error
		var err error
		switch benchMode(r.mode) {
		case benchStream:
			call, err = r.rawTask(conn, js)
		case benchExchanges:
			call, err = r.bareTask(conn, js)
		case benchTask:
			call, err = r.durableTask(conn, js)
		case benchKV:
			call, err = r.rawPut(ctx, js)
		case benchSwap:
			call, err = r.rawUpdate(ctx, js)
		case benchCheckpoint:
			call, err = r.checkpoint(js)
		default:
			err = fmt.Errorf("bench durable: no mode %q", r.mode)
		}
		if err != nil {
			return err
		}
		run, err := r.load(ctx, call)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(run)
	})
	r.add(cmd)
	return cmd
}

// tasks returns a function that makes tasks. The payload is encoded once,
// because an application would supply it, and the raw side does not encode it
// either.
func (r *roleFlags) tasks() func() *envelope.Envelope {
	payload := append(envelope.AppendString([]byte(`{"text":`), strings.Repeat("x", r.payload)), '}')
	return func() *envelope.Envelope {
		return envelope.New(envelope.TypeTask, benchClient, benchAgent, "bench.echo", payload)
	}
}

// rawTask publishes a task, and waits for the server's ack and the worker's
// answer. One subscription receives the answers of all callers.
func (r *roleFlags) rawTask(conn *nats.Conn, js natsjs.JetStream) (func(context.Context) error, error) {
	body, err := r.tasks()().AppendJSON(nil)
	if err != nil {
		return nil, err
	}
	inbox := nats.NewInbox() + "."
	// Each call in flight has its own slot; there are r.inflight of them.
	places := make(chan int, r.inflight+1)
	answers := make([]chan struct{}, r.inflight+1)
	for i := range answers {
		places <- i
		answers[i] = make(chan struct{}, 1)
	}
	if _, err := conn.Subscribe(inbox+"*", func(msg *nats.Msg) {
		if i, err := strconv.Atoi(msg.Subject[len(inbox):]); err == nil && i < len(answers) {
			answers[i] <- struct{}{}
		}
	}); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		i := <-places
		defer func() { places <- i }()
		msg := &nats.Msg{Subject: benchRawStream, Header: nats.Header{benchReplyTo: {inbox + strconv.Itoa(i)}}, Data: body}
		if _, err := js.PublishMsg(ctx, msg); err != nil {
			return err
		}
		select {
		case <-answers[i]:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("no answer within 10s")
		}
	}, nil
}

// rawPut writes r.bytes to a bucket of the same kind as the bucket of runs.
func (r *roleFlags) rawPut(ctx context.Context, js natsjs.JetStream) (func(context.Context) error, error) {
	kv, err := js.KeyValue(ctx, benchRawBucket)
	if err != nil {
		return nil, err
	}
	body := []byte(strings.Repeat("x", r.bytes))
	var n atomic.Int64
	keys := int64(r.inflight * benchKeys)
	return func(ctx context.Context) error {
		_, err := kv.Put(ctx, "bench."+strconv.FormatInt(n.Add(1)%keys, 10), body)
		return err
	}, nil
}

// rawUpdate does the same by compare-and-swap. The keys are divided among the
// callers, so that no write conflicts.
func (r *roleFlags) rawUpdate(ctx context.Context, js natsjs.JetStream) (func(context.Context) error, error) {
	kv, err := js.KeyValue(ctx, benchRawBucket)
	if err != nil {
		return nil, err
	}
	type place struct {
		key string
		rev uint64
	}
	body := []byte(strings.Repeat("x", r.bytes))
	places := make(chan place, r.inflight*benchKeys)
	for i := range cap(places) {
		places <- place{key: "bench." + strconv.Itoa(i)}
	}
	return func(ctx context.Context) error {
		p := <-places
		rev, err := kv.Update(ctx, p.key, body, p.rev)
		if err == nil {
			p.rev = rev
		}
		places <- p
		return err
	}, nil
}

// benchRecord is one run whose checkpoints are written one after the other.
type benchRecord struct {
	cp  *state.Checkpoint
	rev uint64
	buf []byte
}

// checkpoint encodes and stores a checkpoint of about r.bytes, as a worker does
// after a turn of the model: each time the last message is a new one.
func (r *roleFlags) checkpoint(js natsjs.JetStream) (func(context.Context) error, error) {
	states := jetstream.NewStates(jetstream.Gather(js), subject.Map{})
	records := make(chan *benchRecord, r.inflight*benchKeys)
	fresh := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range cap(records) {
		cp, err := benchDocument(fmt.Sprint(fresh, ".", i), r.bytes)
		if err != nil {
			return nil, err
		}
		records <- &benchRecord{cp: cp}
	}
	return func(ctx context.Context) error {
		rec := <-records
		defer func() { records <- rec }()
		next := rec.cp.Clone()
		m := &next.Doc.Conversation[len(next.Doc.Conversation)-1]
		m.Content = strconv.FormatUint(rec.rev%10, 10) + m.Content[1:]
		data, err := state.Codec{}.EncodeIn(rec.buf, next)
		if err != nil {
			return err
		}
		rec.buf = data
		rev, err := states.PutNoted(ctx, next.ID(), rec.rev, data, jetstream.Note{Status: next.Doc.Status})
		if err == nil {
			rec.cp, rec.rev = next, rev
		}
		return err
	}, nil
}

// benchDocument makes a checkpoint of about so many bytes: a conversation of
// messages of half a KiB each.
func benchDocument(id string, bytes int) (*state.Checkpoint, error) {
	cp := state.New(benchAgent, id, "")
	text := strings.Repeat("All work and no play makes a dull mesh. ", 13)
	for i := 0; ; i++ {
		data, err := state.Codec{}.Encode(cp.Clone())
		if err != nil {
			return nil, err
		}
		left := bytes - len(data)
		if left < 200 && i > 0 {
			return cp, nil
		}
		role := model.User
		if i%2 == 1 {
			role = func(s string) model.Message { return model.Assistant(s) }
		}
		cp.Append(role(text[:min(len(text), max(1, left-150))]), time.Now(), 0)
	}
}

// durableTask submits a task, and waits for its terminal envelope.
func (r *roleFlags) durableTask(conn *nats.Conn, js natsjs.JetStream) (func(context.Context) error, error) {
	node, err := mesh.New(conn, mesh.Config{Entity: benchClient, Heartbeat: -1, Durable: benchLane(js)})
	if err != nil {
		return nil, err
	}
	task := r.tasks()
	return func(ctx context.Context) error {
		_, _, err := node.Perform(ctx, task(), mesh.SubmitOptions{}, mesh.ResultOptions{Follow: true})
		return err
	}, nil
}
