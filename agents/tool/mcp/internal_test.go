//go:build unix

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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

// slowFrames are frames whose peer has read a message when it is received from got.
type slowFrames struct {
	frames
	begins, got chan string
}

func (f *slowFrames) write(_ context.Context, message []byte) error {
	f.begins <- string(message)
	f.got <- string(message)
	return nil
}

// A call that is given up while its message is being sent is cancelled behind it, however long that
// takes: the SDK sends its own cancellation within five seconds or never.
func TestACallThatIsGivenUpWhileItIsSentIsCancelled(t *testing.T) {
	t.Parallel()
	f := &slowFrames{begins: make(chan string, 10), got: make(chan string)}
	c := newConn(f, 1<<20, slog.New(slog.DiscardHandler))
	write := func(ctx context.Context, id any, method string) <-chan error {
		r := &jsonrpc.Request{Method: method, Params: json.RawMessage(`{}`)}
		if id != nil {
			r.ID, _ = jsonrpc.MakeID(id)
		}
		done := make(chan error, 1)
		go func() { done <- c.Write(ctx, r) }()
		return done
	}
	for _, test := range []struct {
		id       any
		method   string
		canceled string
	}{
		{float64(7), "tools/call", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"context canceled","requestId":7}}`},
		{"a", "tools/list", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"context canceled","requestId":"a"}}`},
		{float64(8), "initialize", ""}, // a client must not cancel it
		{nil, "notifications/progress", ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := write(ctx, test.id, test.method)
		<-f.begins
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", test.method, err)
		}
		next := write(t.Context(), float64(9), "ping")
		<-f.got
		between := ""
		for got := <-f.got; !strings.Contains(got, `"ping"`); got = <-f.got {
			between += got
		}
		if between != test.canceled {
			t.Errorf("%s: between its message and the next one: %s", test.method, between)
		}
		for len(f.begins) > 0 {
			<-f.begins
		}
		if err := <-next; err != nil {
			t.Errorf("%s: the next message: %v", test.method, err)
		}
	}
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
