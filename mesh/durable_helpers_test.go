package mesh_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// Leases of messages. One that is held does not end on a busy machine, except a short one.
const (
	longLease  = patience / 2
	shortLease = 1200 * time.Millisecond
)

// durableRig is a server with the streams of the durable lane.
type durableRig struct {
	*rig
	m     subject.Map
	lease time.Duration // of its messages; 0: longLease
}

func newDurableRig(t *testing.T) *durableRig {
	t.Helper()
	return (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true})}).under("")
}

// under is the mesh with a prefix on the same server, with streams of its own.
func (r *durableRig) under(prefix string) *durableRig {
	r.t.Helper()
	m, err := subject.New(prefix)
	if err == nil {
		_, err = jetstream.Apply(r.t.Context(), r.js(r.nc), jetstream.Options{Map: m})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return &durableRig{r.rig, m, r.lease}
}

// shortLeases is for a test that waits until the lease of a message ends, or is renewed.
func (r *durableRig) shortLeases() *durableRig {
	r.lease = shortLease
	return r
}

func (r *durableRig) js(nc *nats.Conn) natsjs.JetStream {
	r.t.Helper()
	js, err := natsjs.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

// durableOver is the lane over a connection, as a command would set it up.
func (r *durableRig) durableOver(js natsjs.JetStream) *mesh.Durable {
	js, m := jetstream.Gather(js), r.m
	return &mesh.Durable{
		Queue: jetstream.NewQueue(js, m), Replies: jetstream.NewReplies(js, m), Dead: jetstream.NewDead(js, m), Inbox: jetstream.NewInbox(js, m),
		States: jetstream.NewStates(js, m), Clock: jetstream.NewClock(js, m), Slots: slot.NewStore(js, m, longLease),
		Lease: cmp.Or(r.lease, longLease), Create: true, Sweep: -1,
	}
}

// lane makes a node with a durable lane, on a connection of its own.
func (r *durableRig) lane(cfg mesh.Config, change ...func(*mesh.Durable)) *mesh.Node {
	r.t.Helper()
	return r.laneOn(natstest.Conn(r.t, r.srv), cfg, change...)
}

func (r *durableRig) laneOn(nc *nats.Conn, cfg mesh.Config, change ...func(*mesh.Durable)) *mesh.Node {
	r.t.Helper()
	d := r.durableOver(r.js(nc))
	for _, f := range change {
		f(d)
	}
	cfg.Durable = d
	if cfg.Prefix == "" {
		cfg.Prefix = r.m.Prefix()
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = -1
	}
	return r.nodeOn(nc, cfg)
}

// client is a node that submits, as ada.
func (r *durableRig) client() *mesh.Node {
	return r.lane(mesh.Config{Entity: ada})
}

func ctxFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (r *durableRig) submit(n *mesh.Node, task *envelope.Envelope) mesh.Submitted {
	r.t.Helper()
	receipt, err := n.Submit(ctxFor(r.t), task, mesh.SubmitOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return receipt
}

// result waits for a task's terminal envelope, and until it is stored: who
// follows hears it at the moment that it is published, a little earlier.
func (r *durableRig) result(n *mesh.Node, task *envelope.Envelope) (*envelope.Envelope, error) {
	r.t.Helper()
	reply, err := n.Result(ctxFor(r.t), task.To, task.ID, mesh.ResultOptions{Follow: true})
	if reply != nil {
		r.stored(task, reply)
	}
	return reply, err
}

// waiting counts the requests for tasks that wait.
func (r *durableRig) waiting() (n int) {
	r.t.Helper()
	stream, err := r.js(r.nc).Stream(ctxFor(r.t), jetstream.StreamWork)
	if err != nil {
		r.t.Fatal(err)
	}
	for c := range stream.ListConsumers(ctxFor(r.t)).Info() {
		n += c.NumWaiting
	}
	return n
}

// stored waits until a reply that was heard is stored.
func (r *durableRig) stored(task, reply *envelope.Envelope) {
	r.t.Helper()
	replies := jetstream.NewReplies(r.js(r.nc), r.m)
	eventually(r.t, "the reply is stored", func() bool {
		for msg, err := range replies.Read(ctxFor(r.t), task.To, task.ID, 0) {
			if err != nil {
				r.t.Fatal(err)
			}
			if bytes.Contains(msg.Data, []byte(reply.ID)) {
				return true
			}
		}
		return false
	})
}

// leased is the subject of a sign of life for a message, of those that acks hears
// from now on.
func (r *durableRig) leased(acks chan *nats.Msg, seq uint64) string {
	r.t.Helper()
	for {
		subj := within(r.t, "a sign of life", acks).Subject
		if strings.Split(subj, ".")[5] == fmt.Sprint(seq) {
			return subj
		}
	}
}

// replies are all stored replies to a task: those of its reply subject, and those beside
// the record of its run.
func (r *durableRig) replies(task *envelope.Envelope) []*envelope.Envelope {
	r.t.Helper()
	subj, err := r.m.Reply(task.To, task.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	ofRun := strings.TrimSuffix(jetstream.ReplySubjects(r.m, task.To), "*") + state.RunID(task.To, task.ID)
	return append(r.storedOn(jetstream.StreamReply, subj), r.storedOn("KV_"+jetstream.BucketState, ofRun)...)
}

// storedOn are the envelopes that a stream has on a subject.
func (r *durableRig) storedOn(name, subj string) (out []*envelope.Envelope) {
	r.t.Helper()
	stream, err := r.js(r.nc).Stream(ctxFor(r.t), name+r.m.Suffix())
	if err != nil {
		r.t.Fatal(err)
	}
	for seq := uint64(1); ; seq++ { // Replies.Read leaves those of earlier tries out
		msg, err := stream.GetMsg(ctxFor(r.t), seq, natsjs.WithGetMsgSubject(subj))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return out
		}
		if err != nil {
			r.t.Fatal(err)
		}
		seq = msg.Sequence
		out = append(out, parse(r.t, msg.Data))
	}
}

// record is the newest checkpoint of a task's run.
func (r *durableRig) record(task *envelope.Envelope) *state.Checkpoint {
	r.t.Helper()
	c := r.begun(task)
	if c == nil {
		r.t.Fatalf("task %s has no run", task.ID)
	}
	return c
}

// begun is the checkpoint of a task's run; nil: none is written yet.
func (r *durableRig) begun(task *envelope.Envelope) *state.Checkpoint {
	r.t.Helper()
	rec, err := jetstream.NewStates(r.js(r.nc), r.m).Get(ctxFor(r.t), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := state.Codec{}.Read(rec)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// rewrite changes the newest checkpoint of a task's run, which no worker may write meanwhile.
func (r *durableRig) rewrite(task *envelope.Envelope, change func(*state.Checkpoint)) {
	r.t.Helper()
	states := jetstream.NewStates(r.js(r.nc), r.m)
	rec, err := states.Get(ctxFor(r.t), runOf(task))
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := state.Codec{}.Read(rec)
	if err != nil {
		r.t.Fatal(err)
	}
	change(c)
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := states.Put(ctxFor(r.t), rec.ID, rec.Revision, data); err != nil {
		r.t.Fatal(err)
	}
}

// queued is how many messages the work queue holds.
func (r *durableRig) queued() uint64 {
	r.t.Helper()
	s, err := r.js(r.nc).Stream(ctxFor(r.t), jetstream.StreamWork) // which asks the server
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// drainedQueue waits until every message has been acknowledged.
func (r *durableRig) drainedQueue() {
	r.t.Helper()
	eventually(r.t, "the work queue is empty", func() bool { return r.queued() == 0 })
}

// points records what Observe is told, and can hold a worker at one of them.
type points struct {
	mu   sync.Mutex
	seen []mesh.Point
	at   map[mesh.Point]chan chan struct{}
	run  string // hold only this one; "": any
	over <-chan struct{}
}

// newPoints releases every goroutine at the end of the test, also if the test fails.
func newPoints(t testing.TB) *points {
	return &points{at: map[mesh.Point]chan chan struct{}{}, over: t.Context().Done()}
}

// hold makes the next passage of p wait. Receive from the channel to learn that
// it has come, and close what was received to let it go on.
func (p *points) hold(at mesh.Point) <-chan chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan chan struct{}, 1)
	p.at[at] = c
	return c
}

func (p *points) observe(at mesh.Point, run state.ID) {
	p.mu.Lock()
	p.seen = append(p.seen, at)
	c := p.at[at]
	if p.run != "" && run.Run != p.run {
		c = nil
	} else {
		delete(p.at, at)
	}
	p.mu.Unlock()
	if c != nil {
		release := make(chan struct{})
		c <- release
		select {
		case <-release:
		case <-p.over:
		}
	}
}

func (p *points) list() []mesh.Point {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]mesh.Point(nil), p.seen...)
}

func observing(p *points) func(*mesh.Durable) {
	return func(d *mesh.Durable) { d.Observe = p.observe }
}

// events are the mesh's events of one intent that come from now on.
func (r *durableRig) events() chan *nats.Msg { return r.listen("bus.mesh.>") }

func (r *durableRig) event(events chan *nats.Msg, intent string) *envelope.Envelope {
	r.t.Helper()
	for {
		if e := parse(r.t, within(r.t, intent, events).Data); e.Intent == intent {
			return e
		}
	}
}

func member(t testing.TB, payload json.RawMessage, name string) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		t.Fatal(err)
	}
	return string(members[name])
}

func isErr(err, target error) bool { return errors.Is(err, target) }
