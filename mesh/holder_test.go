package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// cord is a connection to a server that a test can cut hard, as the death of a process
// does, and that stays cut until it is mended.
type cord struct {
	srv    *natsd.Server
	absent atomic.Int32 // answers "no responders" that came over it

	mu   sync.Mutex
	cut  bool
	conn net.Conn
}

// InProcessConn makes it a server for nats.go.
func (c *cord) InProcessConn() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("the cord is cut")
	}
	conn, err := c.srv.InProcessConn()
	c.conn = conn
	return &cordEnd{conn, c}, err
}

func (c *cord) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.conn.Close()
}

func (c *cord) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}

// cordEnd counts what the server says of subjects without subscribers.
type cordEnd struct {
	net.Conn
	cord *cord
}

func (e *cordEnd) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	e.cord.absent.Add(int32(bytes.Count(b[:n], []byte("NATS/1.0 503"))))
	return n, err
}

func (r *rig) cord(opts ...nats.Option) (*cord, *nats.Conn) {
	r.t.Helper()
	c := &cord{srv: r.srv}
	return c, natstest.Conn(r.t, r.srv, append([]nats.Option{nats.InProcessServer(c)}, opts...)...)
}

// patient is a task whose sender has ten minutes.
func patient(payload string) *envelope.Envelope {
	return requiring(newTask(reviewer, "code.review", payload), `{"timeout_ms":600000}`)
}

// holderOn returns the next holder that is named on an inbox.
func holderOn(t *testing.T, inboxes chan *nats.Msg) []string {
	t.Helper()
	for {
		msg := within(t, "a holder", inboxes)
		if h := msg.Header.Get(headers.HeaderHolder); h != "" {
			if len(msg.Data) > 0 {
				t.Errorf("a holder with a body: %q", msg.Data)
			}
			return strings.Split(h, " ")
		}
	}
}

// ending is what a sender gets.
type ending struct {
	reply *envelope.Envelope
	err   error
}

func sending(t *testing.T, n *mesh.Node, task *envelope.Envelope, opts mesh.SendOptions) chan ending {
	out := make(chan ending, 1)
	go func() {
		reply, err := n.Send(t.Context(), task, opts)
		out <- ending{reply, err}
	}()
	return out
}

// gone fails unless an error says that the task's worker died.
func gone(t *testing.T, what string, err error) {
	t.Helper()
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != envelope.CodeUnavailable || !e.Retryable || e.FromPeer() || !strings.Contains(e.Message, "it may have begun") {
		t.Errorf("%s: %v", what, err)
	}
}

func TestLiveTasksEndWhenTheirWorkerDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inboxes, cancels := r.listen("_INBOX.>"), r.listen("aee.ctl.agent.reviewer")
	line, nc := r.cord()
	g := newGate(t)
	r.serve(r.nodeOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g, Concurrency: 3})
	client := r.node(mesh.Config{Entity: ada})
	plain := sending(t, client, patient(`{}`), mesh.SendOptions{})
	stream := sending(t, client, patient(`{}`), mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return nil }})
	waits := sending(t, client, patient(`{}`), mesh.SendOptions{NoCancel: true}) // one waits in the worker's queue
	asked := make(chan error, 1)
	go func() {
		_, err := client.Ask(t.Context(), reviewer, "hello")
		asked <- err
	}()
	for range 4 {
		holderOn(t, inboxes)
	}
	empty(t, "a cancel", cancels)
	line.sever()
	gone(t, "a task", within(t, "a task", plain).err)
	gone(t, "a stream", within(t, "a stream", stream).err)
	gone(t, "one that waits", within(t, "one that waits", waits).err)
	gone(t, "plain text", within(t, "plain text", asked))
	for range 2 { // the worker may only have been cut off
		if e := parse(t, within(t, "a cancel", cancels).Data); e.Intent != "mesh.task.cancel" {
			t.Errorf("got %s", e.Intent)
		}
	}
	settle(t, r.nc)
	empty(t, "a third cancel", cancels)
	equal(t, "workers that are watched", mesh.HoldersWatched(client), -1)
}

// A worker that connects again between the two probes still answers its tasks.
func TestAWorkerThatConnectsAgainKeepsItsTasks(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	inboxes := r.listen("_INBOX.>")
	line, nc := r.cord(nats.ReconnectWait(20 * time.Second)) // it says so to the sender, who is patient
	g := newGate(t)
	r.serve(r.nodeOn(nc, mesh.Config{}), mesh.Agent{Handler: g})
	otherLine, otherConn := r.cord()
	r.serve(r.nodeOn(otherConn, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Entity: "agent.other", Handler: newGate(t)})
	own, ncClient := r.cord()
	client := r.nodeOn(ncClient, mesh.Config{Entity: ada})
	sent := sending(t, client, patient(`{"n":1}`), mesh.SendOptions{})
	id := holderOn(t, inboxes)[1]
	other := patient(`{}`)
	other.To = "agent.other"
	otherSent := sending(t, client, other, mesh.SendOptions{})
	holderOn(t, inboxes)
	own.absent.Store(0)
	line.sever()
	eventually(t, "the sender misses the worker", func() bool { return own.absent.Load() > 0 })
	otherLine.sever() // one that should be back soon
	gone(t, "the other task", within(t, "the other task", otherSent).err)
	line.mend()
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is back", nc.IsConnected)
	settle(t, nc)
	probes := r.listen("$SRV.PING.agent-reviewer." + id)
	for range 3 {
		within(t, "a probe", probes)
	}
	g.open()
	if out := within(t, "the result", sent); out.err != nil || string(out.reply.Payload) != `{"n":1}` {
		t.Errorf("got %v, %v", out.reply, out.err)
	}
}

// Only those that mark their reply subject are told who has their task, and only if it
// takes long.
func TestAHolderIsNamedOnMarkedReplySubjectsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 3})
	answers := r.send(patient(`{"n":1}`))
	inboxes := r.listen("_INBOX.>")
	task := patient(`{"n":2}`)
	sent := sending(t, r.node(mesh.Config{Entity: ada}), task, mesh.SendOptions{})
	msg := within(t, "a holder", inboxes)
	equal(t, "the task", msg.Header.Get(headers.HeaderTask), task.ID)
	f := strings.Split(msg.Header.Get(headers.HeaderHolder), " ")
	if len(f) != 4 || f[0] != reviewer || f[3] != r.nc.ConnectedServerId() {
		t.Errorf("holder %q", f)
	}
	g.open()
	if e := parse(t, within(t, "the answer to plain NATS", answers).Data); e.Type != envelope.TypeResult {
		t.Errorf("got a %s", e.Type)
	}
	if out := within(t, "the result", sent); out.err != nil {
		t.Error(out.err)
	}
	settle(t, r.nc)
	for _, msg := range drained(inboxes) {
		if len(msg.Data) == 0 {
			t.Errorf("a second message without a body: %v", msg.Header)
		}
	}
	empty(t, "a second message to plain NATS", answers)
}

// A worker that hands a task on is not its holder any more, and its end is not that of the
// task.
func TestTheReceiverOfADelegatedTaskIsItsHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inboxes := r.listen("_INBOX.>")
	first, second := newGate(t), newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		first.entered <- task
		<-first.release
		return task.Delegate(ctx, mesh.Delegation{To: "agent.second"})
	})})
	line, nc := r.cord()
	r.serve(r.nodeOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Entity: "agent.second", Handler: second})
	task := patient(`{}`)
	told := make(chan struct{}, 8)
	sent := sending(t, r.node(mesh.Config{Entity: ada}), task, mesh.SendOptions{OnHolder: func() { told <- struct{}{} }})
	equal(t, "the first holder", holderOn(t, inboxes)[0], reviewer)
	within(t, "word of the first holder", told)
	first.open()
	var named []string
	for len(named) < 2 {
		msg := within(t, "a holder", inboxes)
		if h := msg.Header.Get(headers.HeaderHolder); h != "" && msg.Header.Get(headers.HeaderTask) == task.ID {
			named = append(named, strings.Fields(h)[0])
		}
	}
	equal(t, "then", named, []string{"-", "agent.second"})
	within(t, "word of the delegation", told)
	within(t, "word of the second holder", told)
	line.sever()
	gone(t, "the task", within(t, "the task", sent).err)
}

// A sender that may not ask for its holders waits as before, and asks for none of the
// service again.
func TestASenderThatMayNotPingWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{
		{Name: "fenced", Password: "f", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Allow: []string{reviewer}}, Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}}}},
		{Name: "admin", Password: "a"},
	}})
	admin := nats.UserInfo("admin", "a")
	r := &rig{t, srv, natstest.Conn(t, srv, admin)}
	inboxes := r.listen("_INBOX.>")
	g := newGate(t)
	r.serve(r.nodeOn(natstest.Conn(t, srv, admin), mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 2})
	refused := make(chan error, 100)
	nc := natstest.Conn(t, srv, nats.UserInfo("fenced", "f"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	client := r.nodeOn(nc, mesh.Config{Entity: ada})
	first := sending(t, client, patient(`{}`), mesh.SendOptions{})
	holderOn(t, inboxes)
	if err := within(t, "a refusal", refused); !strings.Contains(err.Error(), "$SRV.PING.agent-reviewer.") {
		t.Errorf("refused: %v", err)
	}
	eventually(t, "nothing is watched", func() bool { return mesh.HoldersWatched(client) == 0 })
	for settle(t, nc); len(refused) > 0; { // of probes that were sent before the first refusal came
		<-refused
	}
	second := sending(t, client, patient(`{}`), mesh.SendOptions{})
	holderOn(t, inboxes)
	settle(t, r.nc)
	settle(t, nc)
	equal(t, "workers that are watched", mesh.HoldersWatched(client), 0)
	g.open()
	for _, sent := range []chan ending{first, second} {
		if out := within(t, "a result", sent); out.err != nil {
			t.Error(out.err)
		}
	}
	equal(t, "refusals", len(refused), 0)
}

// Tasks with one worker have one probe, and nothing runs when none is left.
func TestHoldersAreWatchedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inboxes := r.listen("_INBOX.>")
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 10})
	client := r.node(mesh.Config{Entity: ada})
	equal(t, "watched before", mesh.HoldersWatched(client), -1)
	var all []chan ending
	for range 10 {
		all = append(all, sending(t, client, patient(`{}`), mesh.SendOptions{}))
	}
	for range all {
		holderOn(t, inboxes)
	}
	eventually(t, "one worker is watched", func() bool { return mesh.HoldersWatched(client) == 1 })
	g.open()
	for _, sent := range all {
		if out := within(t, "a result", sent); out.err != nil {
			t.Error(out.err)
		}
	}
	equal(t, "watched afterwards", mesh.HoldersWatched(client), -1)
}

// A name that is malformed, or about another task, is no holder: the sender requests
// nothing but ping subjects, whatever it is told.
func TestMadeUpHoldersAreIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	asked := r.listen(">")
	if _, err := r.nc.Subscribe(reviewer, func(msg *nats.Msg) {
		e, err := envelope.Parse(msg.Data)
		if err != nil {
			return
		}
		for _, h := range []string{"", "-", "agent.x", "agent.x 1 0 s more", "agent.x * 0 s", "agent.x > 0 s", "agent.x a.b 0 s", "agent.> a 0 s", "agent.x a -1 s", "agent.x a 99999999999999999999 s", " a 0 s"} {
			_ = r.nc.PublishMsg(&nats.Msg{Subject: msg.Reply, Header: nats.Header{headers.HeaderHolder: {h}, headers.HeaderTask: {e.ID}}})
		}
		_ = msg.Respond(encode(t, e.Reply(envelope.TypeResult, e.Payload)))
	}); err != nil {
		t.Fatal(err)
	}
	settle(t, r.nc)
	client := r.node(mesh.Config{Entity: ada})
	for range 40 {
		if _, err := client.Send(t.Context(), patient(`{"n":1}`), mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, r.nc)
	for _, msg := range drained(asked) {
		if strings.HasPrefix(msg.Subject, "$SRV") {
			t.Errorf("the sender asked %s", msg.Subject)
		}
	}
}

// The worker's server, too, may be another than the sender's.
func TestALiveTaskEndsWhenItsWorkerOnAnotherServerDies(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	servers := natstest.Cluster(t, 2)
	r := &rig{t, servers[1], natstest.Conn(t, servers[1])}
	inboxes := r.listen("_INBOX.>")
	nc := natstest.Conn(t, servers[0])
	g := newGate(t)
	there := &rig{t, servers[0], natstest.Conn(t, servers[0])} // an event may not come to another server yet
	there.serve(r.nodeOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g})
	eventually(t, "the worker is known to the other server", func() bool {
		_, err := r.nc.Request("$SRV.PING.agent-reviewer", nil, time.Second) // one may be lost between the servers
		return err == nil
	})
	sent := sending(t, r.node(mesh.Config{Entity: ada}), patient(`{}`), mesh.SendOptions{})
	holderOn(t, inboxes)
	nc.Close()
	gone(t, "the task", within(t, "the task", sent).err)
}
