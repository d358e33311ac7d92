package listen_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/internal/listen"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// All nodes of a connection share what subscribes for it.
func TestEachConnectionHasOne(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	a, b := natstest.Conn(t, srv), natstest.Conn(t, srv)
	var names listen.PerConn[string]
	made := 0
	name := func(*nats.Conn) *string {
		made++
		return new("a name")
	}
	first, other, again := names.Of(a, name), names.Of(b, name), names.Of(a, name)
	if first != again || first == other || made != 2 {
		t.Errorf("%p, %p, %p after %d were made", first, other, again, made)
	}
}
