package mesh_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// cutter is a dialer whose first connection breaks when something is sent.
type cutter struct {
	at  []byte
	cut atomic.Bool
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	c *cutter
}

func (c *cutConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, c.c.at) && c.c.cut.CompareAndSwap(false, true) {
		c.Conn.Close()
	}
	return n, err
}

// A worker may start in the moment in which its server goes away.
func TestServeOutlivesTheLossOfTheConnectionWhileItStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := &cutter{at: []byte("SUB " + reviewer)}
	r.serve(r.nodeOn(natstest.Conn(t, r.srv, nats.SetCustomDialer(c)), mesh.Config{}), mesh.Agent{Handler: echo})
	if !c.cut.Load() {
		t.Fatal("the connection was not cut")
	}
	task := newTask(reviewer, "code.review", `{"n":1}`)
	same(t, parse(t, within(t, "the result", r.send(task)).Data), task.Reply(envelope.TypeResult, task.Payload))
}

// severedLane returns a node with a durable lane that has lost its connection, and how many bytes wait
// for the connection.
func severedLane(t *testing.T, cfg mesh.Config) (*mesh.Node, *nats.Conn, int) {
	t.Helper()
	r := newDurableRig(t)
	line, nc := r.cord()
	node := r.laneOn(nc, cfg)
	settle(t, nc)
	line.sever()
	eventually(t, "the connection is lost", func() bool { return !nc.IsConnected() })
	return node, nc, buffered(t, nc)
}

// A worker of many agents that stops while it starts does not try each of them first.
func TestServeOfAnAgentThatIsStoppedSendsNothing(t *testing.T) {
	t.Parallel()
	node, nc, before := severedLane(t, mesh.Config{})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for range 20 {
		if err := node.Serve(stopped, mesh.Agent{Entity: reviewer, Handler: echo}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "bytes that wait for the connection", buffered(t, nc), before)
}

// A worker that stops while it opens its queue does not wait until that has failed.
func TestServeEndsWhileItOpensItsQueue(t *testing.T) {
	t.Parallel()
	log := &syncBuffer{}
	node, nc, before := severedLane(t, mesh.Config{Logger: textLogger(log)})
	w := begin(t, node, mesh.Agent{Entity: reviewer, Handler: echo})
	eventually(t, "it asks for its queue", func() bool { return buffered(t, nc) > before })
	w.stop()
	if err := within(t, "Serve to return", w.done); err != nil {
		t.Fatal(err)
	}
	if out := log.String(); strings.Contains(out, "not available yet") {
		t.Errorf("it has waited for its queue: %s", out)
	}
}

// buffered is how many bytes wait to be sent.
func buffered(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	n, err := nc.Buffered()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
