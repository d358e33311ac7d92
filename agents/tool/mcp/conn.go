package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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
}

// maxGarbage is how many invalid frames a server may send before its session is
// closed. Some servers write log lines to standard output.
const maxGarbage = 1000

var errGarbage = errors.New("the server sends what is not JSON-RPC")

func newConn(f frames, log *slog.Logger) *conn {
	return &conn{frames: f, log: log, writing: make(chan struct{}, 1)}
}

// Read returns the next message. Only the SDK's reader calls it.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		frame, err := c.read(ctx)
		if err != nil {
			return nil, err
		}
		if c.queue, err = decode(frame); err != nil {
			if c.garbage++; c.garbage > maxGarbage {
				return nil, errGarbage
			}
			if len(bytes.TrimSpace(frame)) > 0 {
				c.log.Debug("mcp server sent what is no message", "bytes", len(frame))
			}
		}
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	return next, nil
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
		message, err := jsonrpc.DecodeMessage(keepExact(raw))
		if err != nil {
			return nil, err
		}
		out = append(out, message)
	}
	return out, nil
}

// Write sends a message.
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
	defer func() { <-c.writing }()
	return c.write(ctx, data)
}

// Close ends the connection.
func (c *conn) Close() error { return c.close() }

// SessionID is empty: the connection is the session.
func (c *conn) SessionID() string { return "" }
