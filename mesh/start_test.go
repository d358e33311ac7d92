package mesh_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

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

// A worker of many agents that stops while it starts does not try each of them first.
func TestServeOfAnAgentThatIsStoppedSendsNothing(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	line, nc := r.cord()
	node := r.laneOn(nc, mesh.Config{})
	settle(t, nc)
	line.sever()
	eventually(t, "the connection is lost", func() bool { return !nc.IsConnected() })
	before := buffered(t, nc)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for range 20 {
		if err := node.Serve(stopped, mesh.Agent{Entity: reviewer, Handler: echo}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "bytes that wait for the connection", buffered(t, nc), before)
}

func TestServeEndsWhileItOpensItsQueue(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	line, nc := r.cord()
	node := r.laneOn(nc, mesh.Config{})
	settle(t, nc)
	line.sever()
	eventually(t, "the connection is lost", func() bool { return !nc.IsConnected() })
	before := buffered(t, nc)
	w := begin(t, node, mesh.Agent{Entity: reviewer, Handler: echo})
	eventually(t, "it asks for its queue", func() bool { return buffered(t, nc) > before })
	w.stop()
	began := time.Now()
	if err := within(t, "Serve to return", w.done); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 2*time.Second { // the queue is waited for for three
		t.Errorf("Serve returned after %v", d)
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
