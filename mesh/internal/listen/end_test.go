package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// silent is a server behind a proxy that passes on what the server says only while said is
// not locked.
func silent(t *testing.T) (conn *nats.Conn, said *sync.Mutex) {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	said = new(sync.Mutex)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(srv.ClientURL(), "nats://"))
			if err != nil {
				client.Close()
				return
			}
			go func() {
				defer server.Close()
				io.Copy(server, client)
			}()
			go func() {
				defer client.Close()
				for buf := make([]byte, 4096); ; {
					n, err := server.Read(buf)
					said.Lock()
					_, failed := client.Write(buf[:n])
					said.Unlock()
					if err != nil || failed != nil {
						return
					}
				}
			}()
		}
	}()
	conn, err = nats.Connect("nats://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn, said
}

// A server that is stopped for a while, as by a machine that has no processor for it, makes a
// worker wait, not fail.
func TestARoundTripWaitsForASilentServer(t *testing.T) {
	t.Parallel()
	conn, said := silent(t)
	said.Lock()
	waited := 0
	if err := RoundTrip(t.Context(), conn, 20*time.Millisecond, func() {
		if waited++; waited == 3 {
			said.Unlock()
		}
	}); err != nil || waited < 3 {
		t.Errorf("%v, waited %d times; want no error, after 3 or more", err, waited)
	}
}

func TestARoundTripEnds(t *testing.T) {
	t.Parallel()
	conn, said := silent(t)
	said.Lock()
	defer said.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if err := RoundTrip(ctx, conn, 20*time.Millisecond, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	if err := RoundTrip(t.Context(), conn, 20*time.Millisecond, conn.Close); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("%v, want that the connection is closed", err)
	}
}
