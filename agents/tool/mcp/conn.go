package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// frames is a connection that carries one message per frame: a pipe or a
// WebSocket.
type frames interface {
	read(ctx context.Context) ([]byte, error)
	write(ctx context.Context, message []byte) error // one call at a time; not cancelled by ctx, because half a message breaks a session
	close() error                                    // unblocks read; may be called repeatedly and concurrently
}

// conn implements the SDK's Connection over frames.
type conn struct {
	frames
	log     *slog.Logger
	writing chan struct{} // a mutex that can be waited for with a context
	queue   []jsonrpc.Message
	garbage int

	most int // bytes of backlog
	mu   sync.Mutex
	open int // requests of the server that are not answered yet
	// backlog is the number of bytes of requests and notifications that arrived since no request
	// was open. The SDK keeps them all.
	backlog int
}

// maxGarbage is how many invalid frames a server may send in a row before its
// session is closed. Some servers write log lines to standard output.
const maxGarbage = 1000

var errGarbage = errors.New("the server sends what is not JSON-RPC")

// errFlood ends a session whose server sends requests without reading the answers.
var errFlood = errors.New("the server asks more than it reads answers")

func newConn(f frames, maxBacklog int, log *slog.Logger) *conn {
	return &conn{frames: f, log: log, writing: make(chan struct{}, 1), most: maxBacklog}
}

// Read returns the next message. Only the SDK's reader calls it.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		frame, err := c.read(ctx)
		if err != nil {
			return nil, err
		}
		c.queue, err = decode(frame)
		switch {
		case err == nil:
			c.garbage = 0
		case c.garbage == maxGarbage:
			return nil, errGarbage
		default:
			c.garbage++
			if len(bytes.TrimSpace(frame)) > 0 {
				c.log.Debug("mcp server sent what is no message", "bytes", len(frame))
			}
		}
		if !c.takes(c.queue, len(frame)) {
			_ = c.close() // the write of an answer would block for long
			return nil, errFlood
		}
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	return next, nil
}

// takes counts the messages of a frame, and reports whether there is room for them.
func (c *conn) takes(messages []jsonrpc.Message, size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asks := false
	for _, m := range messages {
		if r, ok := m.(*jsonrpc.Request); ok {
			asks = true
			if r.IsCall() {
				c.open++
			}
		}
	}
	if asks && c.open > 0 {
		c.backlog += size
	}
	return c.backlog <= c.most
}

// answered counts an answer.
func (c *conn) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open--; c.open <= 0 {
		c.open, c.backlog = 0, 0
	}
}

// decode decodes a message, or a batch of messages, which protocol versions up
// to 2025-03-26 have.
func decode(frame []byte) ([]jsonrpc.Message, error) {
	frame = bytes.TrimSpace(frame)
	batch := []json.RawMessage{frame}
	if len(frame) > 0 && frame[0] == '[' {
		if err := json.Unmarshal(frame, &batch); err != nil {
			return nil, err
		}
	}
	var out []jsonrpc.Message
	for _, raw := range batch {
		message, err := jsonrpc.DecodeMessage(received(raw))
		if err != nil {
			return nil, err
		}
		out = append(out, message)
	}
	return out, nil
}

// Write sends a message. If ctx ends meanwhile it returns, and the message is still sent, with a
// cancellation of its call behind it: the SDK's own is not sent if it has to wait for long.
func (c *conn) Write(ctx context.Context, message jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-c.writing }()
		if _, ok := message.(*jsonrpc.Response); ok {
			defer c.answered()
		}
		err := c.write(ctx, data)
		if call, _ := ctx.Value(noteOfCall{}).(*note); err == nil {
			call.send()
		}
		if late := cancellation(ctx, message); err == nil && late != nil {
			err = c.write(ctx, late)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cancellation returns the message that cancels a call whose ctx has ended, or nil. A client must
// not cancel initialize.
func cancellation(ctx context.Context, message jsonrpc.Message) []byte {
	call, ok := message.(*jsonrpc.Request)
	if ctx.Err() == nil || !ok || !call.IsCall() || call.Method == "initialize" {
		return nil
	}
	params, err := json.Marshal(sdk.CancelledParams{Reason: ctx.Err().Error(), RequestID: call.ID.Raw()})
	if err != nil {
		return nil
	}
	data, err := jsonrpc.EncodeMessage(&jsonrpc.Request{Method: "notifications/cancelled", Params: params})
	if err != nil {
		return nil
	}
	return data
}

// end closes the frames, and waits for the message that is being sent.
func (c *conn) end() {
	_ = c.close()
	c.writing <- struct{}{}
	<-c.writing
}

// Close ends the connection.
func (c *conn) Close() error { return c.close() }

// SessionID is empty: the connection is the session.
func (c *conn) SessionID() string { return "" }
