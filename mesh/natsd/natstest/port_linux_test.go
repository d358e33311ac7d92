package natstest_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// While a server is down no other process gets its port, and the next server can use it.
func TestAPortIsKeptBetweenTwoServers(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	at, err := url.Parse(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	srv.Close()
	if c, err := net.Dial("tcp", at.Host); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to nobody: %v, %v", c, err)
	}
	var unshared error
	stranger := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		err := c.Control(func(fd uintptr) {
			unshared = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		})
		return errors.Join(err, unshared)
	}}
	if l, err := stranger.Listen(context.Background(), "tcp", at.Host); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a stranger was given the port: %v, %v", l, err)
	}
	if again := natstest.Restart(t, srv); again.ClientURL() != srv.ClientURL() {
		t.Errorf("the next one is at %s, the first was at %s", again.ClientURL(), srv.ClientURL())
	}
}
