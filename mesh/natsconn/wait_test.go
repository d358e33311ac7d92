package natsconn_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// silent listens like servers that accept connections and say nothing. It returns their URLs and what
// they accept.
func silent(t *testing.T, servers int) (urls string, accepted <-chan net.Conn) {
	t.Helper()
	conns := make(chan net.Conn, 100)
	var all []string
	for range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { conn.Close() })
				conns <- conn
			}
		}()
		all = append(all, "nats://"+l.Addr().String())
	}
	return strings.Join(all, ","), conns
}

// welcome answers a client as a server does, up to the end of the handshake, and returns when the
// client has closed the connection.
func welcome(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(natstest.Patience))
	if _, err := io.WriteString(conn, "INFO {\"server_id\":\"S\",\"version\":\"2.12.0\",\"max_payload\":1048576,\"headers\":true,\"proto\":1}\r\n"); err != nil {
		return err
	}
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if line == "PING\r\n" {
			if _, err := io.WriteString(conn, "PONG\r\n"); err != nil {
				return err
			}
		}
	}
}

// Servers that do not answer, as behind a firewall that drops packets, hold up a connection for its
// Wait, and not for two seconds each.
func TestConnectWaitsNoLongerForServersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	urls, _ := silent(t, 4)
	_, err := natsconn.Connect(t.Context(), natsconn.Config{URL: urls, Wait: 300 * time.Millisecond, Options: []nats.Option{nats.Timeout(natstest.Patience)}})
	if !errors.Is(err, nats.ErrNoServers) || !strings.Contains(err.Error(), "no server has answered in time") {
		t.Errorf("got %v", err)
	}
}

// A caller that waits for its server for ever is interrupted at once.
func TestConnectIsInterruptedWhileItConnects(t *testing.T) {
	t.Parallel()
	urls, accepted := silent(t, 4)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() {
		_, err := natsconn.Connect(ctx, natsconn.Config{URL: urls, Wait: -1, Options: []nats.Option{nats.Timeout(natstest.Patience)}})
		ended <- err
	}()
	natstest.Within(t, "the first try", accepted)
	interrupt()
	err := natstest.Within(t, "the end", ended)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A connection that is made after Connect has given up is closed, and not reported.
func TestConnectClosesAConnectionThatComesLate(t *testing.T) {
	t.Parallel()
	urls, accepted := silent(t, 1)
	reported := make(chan natsconn.Status, 10)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() {
		_, err := natsconn.Connect(ctx, natsconn.Config{URL: urls, Wait: -1, OnStatus: func(s natsconn.Status) { reported <- s }, Options: []nats.Option{nats.Timeout(natstest.Patience)}})
		ended <- err
	}()
	conn := natstest.Within(t, "the try", accepted)
	interrupt()
	if err := natstest.Within(t, "the end", ended); err == nil {
		t.Error("it is connected")
	}
	if err := welcome(conn); err != nil {
		t.Errorf("the late connection stays open: %v", err)
	}
	select {
	case s := <-reported:
		t.Errorf("reported: %+v", s)
	default:
	}
}

// Without a bound it tries again for as long as the server does not answer.
func TestConnectGoesOnTryingWithoutABound(t *testing.T) {
	t.Parallel()
	urls, accepted := silent(t, 1)
	connected := make(chan error, 1)
	go func() {
		conn, err := natsconn.Connect(t.Context(), natsconn.Config{URL: urls, Wait: -1, Options: []nats.Option{nats.Timeout(100 * time.Millisecond)}})
		if err == nil {
			conn.Close()
		}
		connected <- err
	}()
	for range 2 {
		natstest.Within(t, "a try that is not answered", accepted)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			select {
			case conn := <-accepted:
				welcome(conn) // if it fails, the next one may not
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { <-answered })
	if err := natstest.Within(t, "the connection", connected); err != nil {
		t.Error(err)
	}
}
