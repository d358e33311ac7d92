package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// Leases of messages. One that is held does not end on a busy machine, except a short one.
const (
	longLease  = 30 * time.Second
	shortLease = 1500 * time.Millisecond
)

// lane is a server with the streams of the durable lane, and a client on it.
type lane struct {
	t      testing.TB
	server *natsd.Server
	client *mesh.Node
	conn   *nats.Conn
	lease  time.Duration // of its messages
}

// shortLeases is for a test that waits until the lease of a message ends.
func (l *lane) shortLeases() *lane {
	l.lease = shortLease
	return l
}

func newLane(t testing.TB) *lane {
	t.Helper()
	l := &lane{t: t, server: natstest.Run(t, natsd.Config{JetStream: true}), lease: longLease}
	l.conn = natstest.Conn(t, l.server)
	js := l.js(l.conn)
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	l.client = l.node(l.conn, mesh.Config{Entity: "human.ada"}, nil)
	return l
}

func (l *lane) js(nc *nats.Conn) natsjs.JetStream {
	l.t.Helper()
	js, err := natsjs.New(nc)
	if err != nil {
		l.t.Fatal(err)
	}
	return js
}

// node is a node with a durable lane, as a command would set it up.
func (l *lane) node(nc *nats.Conn, cfg mesh.Config, change func(*mesh.Durable)) *mesh.Node {
	l.t.Helper()
	s := jetstream.Open(jetstream.Gather(l.js(nc)), subject.Map{})
	d := &mesh.Durable{
		Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, Inbox: s.Inbox, States: s.States, Clock: s.Clock,
		Lease: l.lease, Create: true, Sweep: -1,
	}
	if change != nil {
		change(d)
	}
	cfg.Durable, cfg.Heartbeat = d, -1
	node, err := mesh.New(nc, cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return node
}

// worker is an agent served on a node with a connection of its own.
type worker struct {
	l      *lane
	conn   *nats.Conn
	node   *mesh.Node
	cancel context.CancelFunc
	stop   func() error
}

// host serves an agent until it is stopped or killed, or the test ends.
func (l *lane) host(a *agents.Agent, change func(*mesh.Durable)) *worker {
	l.t.Helper()
	w := &worker{l: l, conn: natstest.Conn(l.t, l.server)}
	w.node = l.node(w.conn, mesh.Config{Drain: 100 * time.Millisecond}, change) // those that are killed have nothing to finish
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, w.node) }()
	w.cancel = cancel
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	l.t.Cleanup(func() { w.stop() })
	return w
}

// kill disconnects the worker at once: it can send nothing more.
func (w *worker) kill() {
	w.conn.Close()
	w.cancel()
}

func (l *lane) task(to, payload, requires string) *envelope.Envelope {
	task := envelope.New(envelope.TypeTask, "human.ada", to, "test.run", json.RawMessage(payload))
	if requires != "" {
		task.Requires = json.RawMessage(requires)
	}
	return task
}

func (l *lane) submit(task *envelope.Envelope) {
	l.t.Helper()
	if _, err := l.client.Submit(l.ctx(), task, mesh.SubmitOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// result returns the end of a task: a payload, or an error's code. It waits
// until the reply is stored; a follower gets it a little earlier.
func (l *lane) result(task *envelope.Envelope) string {
	l.t.Helper()
	reply, err := l.client.Result(l.ctx(), task.To, task.ID, mesh.ResultOptions{Follow: true})
	if reply != nil {
		until(l.t, "the reply is stored", func() bool {
			last, err := jetstream.NewReplies(l.js(l.conn), subject.Map{}).Last(l.ctx(), task.To, task.ID)
			if err != nil {
				return false
			}
			e, err := envelope.Parse(last.Data) // a piece of the stream may be stored before
			return err == nil && e.Type != envelope.TypeStream
		})
	}
	var failed *envelope.Error
	switch {
	case errors.As(err, &failed):
		return string(failed.Code)
	case err != nil:
		l.t.Fatal(err)
	}
	return string(reply.Payload)
}

func (l *lane) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	l.t.Cleanup(cancel)
	return ctx
}

// replies are the envelopes on a task's reply subject.
func (l *lane) replies(task *envelope.Envelope) (out []*envelope.Envelope) {
	l.t.Helper()
	for msg, err := range jetstream.NewReplies(l.js(l.conn), subject.Map{}).Read(l.ctx(), task.To, task.ID, 0) {
		if err != nil {
			l.t.Fatal(err)
		}
		e, err := envelope.Parse(msg.Data)
		if err != nil {
			l.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// history are the checkpoints of a task's run, oldest first.
func (l *lane) history(task *envelope.Envelope) (out []*state.Checkpoint) {
	l.t.Helper()
	records, err := jetstream.NewStates(l.js(l.conn), subject.Map{}).History(l.ctx(), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range records {
		cp, err := state.Codec{}.Decode(r.Data)
		if err != nil {
			l.t.Fatal(err)
		}
		out = append(out, cp)
	}
	return out
}

// until polls the newest checkpoint of a task's run.
func (l *lane) until(task *envelope.Envelope, what string, ok func(*state.Checkpoint) bool) *state.Checkpoint {
	l.t.Helper()
	states := jetstream.NewStates(l.js(l.conn), subject.Map{})
	var last *state.Checkpoint
	until(l.t, what, func() bool {
		r, err := states.Get(l.ctx(), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
		if errors.Is(err, state.ErrNotFound) {
			return false
		}
		if err != nil {
			l.t.Fatal(err)
		}
		if last, err = (state.Codec{}).Decode(r.Data); err != nil {
			l.t.Fatal(err)
		}
		return ok(last)
	})
	return last
}
