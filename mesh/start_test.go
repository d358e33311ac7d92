package mesh_test

import (
	"bytes"
	"net"
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
