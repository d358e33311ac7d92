//go:build unix

package mcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A program that has read only a part of a message takes the next one for its rest. Its session ends
// instead.
func TestHalfAMessageEndsTheSession(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	cfg := Config{}.withDefaults()
	p, err := startPipes(&Server{Command: []string{"sleep", "1000"}}, &cfg, slog.New(slog.DiscardHandler)) // it reads nothing
	if err != nil {
		t.Fatal(err)
	}
	p.writeTimeout = 200 * time.Millisecond
	if err := p.write(t.Context(), []byte("short")); err != nil {
		t.Fatal(err)
	}
	if err := p.write(t.Context(), make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) { // it is more than a pipe holds
		t.Error(err)
	}
	select {
	case <-p.closed:
	default:
		t.Error("the pipe with half a message is open")
		_ = p.close()
	}
	<-p.ended
}

// A WebSocket waits for a server that works on a call, and for no other.
func TestAWebSocketWaitsForAServerThatWorks(t *testing.T) {
	t.Parallel()
	for _, works := range []bool{true, false} {
		reads, got := make(chan struct{}), make(chan int, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
			if err != nil {
				return
			}
			defer func() { _ = c.CloseNow() }()
			<-reads
			c.SetReadLimit(-1)
			_, data, _ := c.Read(r.Context())
			got <- len(data)
		}))
		cfg := Config{writeTimeout: 50 * time.Millisecond}.withDefaults()
		w, err := dialWebSocket(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), &http.Client{}, &cfg)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		w.occupied = func(time.Time) bool {
			if asked++; asked == 3 {
				close(reads)
			}
			return works || asked < 3
		}
		const size = 32 << 20 // more than the buffers of a connection hold
		err = w.write(t.Context(), make([]byte, size))
		switch n := <-got; {
		case works && (err != nil || n != size):
			t.Errorf("%d bytes arrive, %v", n, err)
		case !works && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("a server that does not work: %v", err)
		}
		_ = w.close()
		srv.Close()
	}
}
