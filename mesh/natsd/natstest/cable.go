package natstest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Cable is a client's way to the server, which can be blocked: then nothing
// comes through in either direction without an error, as when a process
// stands still or a network drops everything.
type Cable struct {
	mu      sync.Mutex
	changed *sync.Cond
	blocked bool
}

// NewCable returns a cable that is not blocked, and that is open again when the test ends.
func NewCable(t testing.TB) *Cable {
	t.Helper()
	c := &Cable{}
	c.changed = sync.NewCond(&c.mu)
	// This runs before the cleanups, some of which wait for the worker behind the cable.
	context.AfterFunc(t.Context(), func() { c.Block(false) })
	return c
}

// Block blocks the cable, or opens it.
func (c *Cable) Block(blocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked = blocked
	c.changed.Broadcast()
}

func (c *Cable) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.blocked {
		c.changed.Wait()
	}
}

// Dial is a nats.CustomDialer.
func (c *Cable) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &cabled{conn, c}, err
}

type cabled struct {
	net.Conn
	cable *Cable
}

func (c *cabled) Write(b []byte) (int, error) {
	c.cable.pass()
	return c.Conn.Write(b)
}

func (c *cabled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.cable.pass()
	return n, err
}

// Blocked reports whether the cable is blocked.
func (c *Cable) Blocked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked
}
