package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// subprotocol is MCP's subprotocol on a WebSocket. The protocol defines no such
// transport; the TypeScript reference SDK has one, with this name and one
// message per frame.
const subprotocol = "mcp"

// writeTimeout is the timeout of sending a message to a server that works on no
// call.
const writeTimeout = 10 * time.Second

type webSocket struct {
	conn         *websocket.Conn
	writeTimeout time.Duration
	occupied     func(since time.Time) bool // see link.occupied
}

func dialWebSocket(ctx context.Context, address string, client *http.Client, cfg *Config) (*webSocket, error) {
	if client.Timeout != 0 { // a timeout would end the session
		c := *client
		c.Timeout = 0
		client = &c
	}
	conn, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{subprotocol}})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, &statusError{resp.StatusCode, err}
		}
		return nil, err
	}
	if got := conn.Subprotocol(); got != subprotocol {
		_ = conn.CloseNow()
		return nil, fmt.Errorf("the server does not speak the WebSocket subprotocol %s", subprotocol)
	}
	conn.SetReadLimit(int64(cfg.MaxMessage))
	return &webSocket{conn: conn, writeTimeout: cfg.writeTimeout, occupied: neverOccupied}, nil
}

func (w *webSocket) read(ctx context.Context) ([]byte, error) {
	_, message, err := w.conn.Read(ctx)
	if errors.Is(err, websocket.ErrMessageTooBig) {
		err = errTooLarge
	}
	return message, err
}

// write sends a message. A server that works on a call may read nothing meanwhile.
func (w *webSocket) write(ctx context.Context, message []byte) error {
	// The library closes the connection if a write's context ends.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped, late := make(chan struct{}), false
	go func() {
		defer close(stopped)
		timer := time.NewTimer(w.writeTimeout)
		defer timer.Stop()
		for since := time.Now(); !late; since = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			late = !w.occupied(since)
			timer.Reset(w.writeTimeout)
		}
		cancel()
	}()
	err := w.conn.Write(ctx, websocket.MessageText, message)
	cancel()
	<-stopped
	if err != nil && late {
		err = context.DeadlineExceeded
	}
	return err
}

func (w *webSocket) close() error { return w.conn.CloseNow() }
