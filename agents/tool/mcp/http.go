package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// statusError is an HTTP answer of a server that is not an MCP message.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.status) }
func (e *statusError) Unwrap() error { return e.err }

const maxErrorBody = 64 << 10 // bytes

// wire is the transport of a session's requests: it bounds answers, keeps their
// exact numbers, and cancels all requests when the session ends.
type wire struct {
	next  http.RoundTripper
	life  context.Context
	max   int
	flood func() // ends the session of a server that sends requests and reads no answers

	streams   *streams         // nil if the transport does not request streams again
	listens   func(begun bool) // hears of streams of notices
	answering atomic.Int32     // answers to the server's requests that the server has not read yet
}

// maxAnswering is how many answers a server may leave waiting. Each is a
// connection.
const maxAnswering = 32

// clientOf returns a client with the wire as its transport. It has no timeout,
// because streams last.
func clientOf(life context.Context, client *http.Client, maxMessage int, streams *streams, listens func(begun bool), flood func()) *http.Client {
	c := *client
	c.Timeout = 0
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	c.Transport = &wire{next: next, life: life, max: maxMessage, streams: streams, listens: listens, flood: flood}
	return &c
}

// RoundTrip makes one request.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(w.life, func() { cancel(context.Cause(w.life)) })
	end := func() { stop(); cancel(nil) }
	sent := messageOf(req)
	if sent.isAnswer {
		if w.answering.Add(1) > maxAnswering {
			w.flood()
		}
		defer w.answering.Add(-1)
	}
	call, _ := req.Context().Value(noteOfCall{}).(*note)
	if req.Method != http.MethodPost {
		call = nil // the rest of an answer, after the connection was lost
	}
	call.send()
	req, isWhole := isWhole(req)
	resp, err := w.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		if context.Cause(w.life) != nil && req.Context().Err() == nil {
			err = context.Cause(w.life)
		}
		return nil, err
	}
	rewriteSessionLost(req, resp)
	call.answer(resp.StatusCode)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body := &ending{resp.Body, end}
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices:
		resp.Body = &replaced{io.LimitReader(body, maxErrorBody), body}
	case kind == "text/event-stream":
		e := &events{lines: bufio.NewReaderSize(body, 16<<10), max: w.max, id: sent.ID}
		if isWhole && w.streams != nil {
			began := time.Now()
			e.mark = func(pause uint64) string { return w.streams.mark(began, pause) }
		}
		if carriesNotices(req, sent) {
			w.listens(true)
			body.end = sync.OnceFunc(func() { end(); w.listens(false) })
		}
		resp.Body = &replaced{e, body}
	default:
		resp.Body = &replaced{&whole{body: body, max: w.max, id: sent.ID}, body}
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	return resp, nil
}

// aboutSession matches what servers say of a session that they do not know.
var aboutSession = pattern.Of(`(?i)\bsession\b|not initialized`)

// rewriteSessionLost rewrites an answer that says that the session is unknown to the form that the
// SDK understands: status 404 without a JSON-RPC error, which would count as the call's (MCP
// 2025-11-25, Transports, Session Management). Many servers answer 400. The answer to a GET is
// left unchanged, because some servers do not support it in any session.
func rewriteSessionLost(req *http.Request, resp *http.Response) {
	if req.Method != http.MethodPost || req.Header.Get("Mcp-Session-Id") == "" || resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
		return
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // if it breaks off, the status says enough
	if resp.StatusCode == http.StatusBadRequest && !aboutSession.RE().Match(body) {
		resp.Body = &replaced{bytes.NewReader(body), resp.Body}
		return
	}
	resp.StatusCode = http.StatusNotFound
	resp.Body = &replaced{bytes.NewReader(nil), resp.Body}
}

// message is what the wire reads of a message that a request carries.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`

	isAnswer bool // to a request of the server
}

// messageOf returns the message that a request carries, the zero message for none.
func messageOf(req *http.Request) (m message) {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return message{}
	}
	body, err := req.GetBody()
	if err != nil {
		return message{}
	}
	defer body.Close()
	if json.NewDecoder(body).Decode(&m) != nil {
		return message{}
	}
	if m.isAnswer = m.Method == ""; m.isAnswer {
		m.ID = nil
	}
	return m
}

// ending cancels its request's context when it is closed.
type ending struct {
	io.ReadCloser
	end func()
}

func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// replaced reads from one reader and closes another.
type replaced struct {
	io.Reader
	io.Closer
}

// errBrokenOff is why an answer has no content.
var errBrokenOff = errors.New("the answer of the server broke off")

// failure returns an answer to the request with an id that says why the server's cannot be read. The
// SDK would end the session of a body that it cannot read, with all calls. The code is the SDK's own
// of failures on the way; see [rejected].
func failure(id json.RawMessage, why error) []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": codeRejected, "message": why.Error()}})
}

// whole is a body that consists of one message.
type whole struct {
	body io.Reader
	max  int
	id   json.RawMessage // of the request; nil for none
	rest *bytes.Reader
}

func (w *whole) Read(p []byte) (int, error) {
	if w.rest == nil {
		data, err := io.ReadAll(io.LimitReader(w.body, int64(w.max)+1))
		switch {
		case len(data) > w.max:
			err = errTooLarge
		case err != nil && w.id != nil:
			err = errBrokenOff
		}
		switch {
		case err == nil:
			data = received(data)
		case w.id == nil:
			return 0, err
		default:
			data = failure(w.id, err)
		}
		w.rest = bytes.NewReader(data)
	}
	return w.rest.Read(p)
}

// events is a stream of server-sent events, each with one message.
type events struct {
	lines *bufio.Reader
	max   int
	id    json.RawMessage           // of the request; nil for none
	mark  func(pause uint64) string // the event for the end of a stream without ids; nil for none
	pause uint64                    // that the server has set, in milliseconds
	out   bytes.Buffer
	err   error
}

func (e *events) Read(p []byte) (int, error) {
	for e.out.Len() == 0 {
		if e.err != nil {
			return 0, e.err
		}
		switch e.err = e.event(); {
		case e.err == nil:
		case errors.Is(e.err, errTooLarge):
			if e.id != nil {
				fmt.Fprintf(&e.out, "data: %s\n\n", failure(e.id, e.err))
			}
		case e.mark != nil:
			e.out.WriteString(e.mark(e.pause))
		}
	}
	return e.out.Read(p)
}

// event reads up to the empty line that ends an event. Incomplete data at the
// end of the stream is no event.
func (e *events) event() error {
	var fields bytes.Buffer
	var data [][]byte
	size, hasID := 0, false
	for {
		line, err := readLine(e.lines, e.max)
		if err != nil {
			return err
		}
		if size += len(line); size > e.max {
			return errTooLarge
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte(" ")))
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("retry:")); ok {
			n, ok := pauseOf(value)
			if !ok {
				continue
			}
			e.pause = n
			line = fmt.Appendf(nil, "retry: %d", n)
		}
		if value, ok := bytes.CutPrefix(line, []byte("id:")); ok && len(bytes.TrimSpace(value)) > 0 {
			hasID = true
		}
		fields.Write(line)
		fields.WriteByte('\n')
	}
	if hasID {
		e.mark = nil
	}
	e.out.Write(fields.Bytes())
	if data != nil {
		message := bytes.Join(data, []byte("\n"))
		for line := range bytes.Lines(received(message)) {
			e.out.WriteString("data: ")
			e.out.Write(bytes.TrimRight(line, "\n"))
			e.out.WriteByte('\n')
		}
		if len(message) == 0 {
			e.out.WriteString("data:\n")
		}
	}
	e.out.WriteByte('\n')
	return nil
}

// The bounds of the pause after which a server may have its stream asked for again, in milliseconds.
const (
	minPause = 500
	maxPause = 60_000
)

// pauseOf returns the pause that a stream sets, within the bounds. It reports false if value is no
// number (HTML, Server-sent events, 9.2.6: such a field is ignored).
func pauseOf(value []byte) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(value)), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // n is then the largest number
		return 0, false
	}
	return min(max(n, minPause), maxPause), true
}

// refused describes an HTTP status of a server, and reports whether a later
// call may succeed.
func refused(status int) (words string, later bool) {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "the server refuses the credentials", false
	case status == http.StatusTooManyRequests:
		return "the server has too many requests", true
	case status >= http.StatusInternalServerError:
		return fmt.Sprintf("the server answers with status %d", status), true
	case status >= http.StatusBadRequest:
		return fmt.Sprintf("the server answers with status %d", status), false
	}
	return "", false
}

// knowsNoStreamable reports whether a server may support only the transport
// before streamable HTTP (MCP 2025-03-26, Transports, Backwards Compatibility).
func knowsNoStreamable(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.status == http.StatusBadRequest || status.status == http.StatusNotFound || status.status == http.StatusMethodNotAllowed
	}
	return false
}

// isWebSocket reports whether an address is a WebSocket's.
func isWebSocket(address string) bool {
	return strings.HasPrefix(address, "ws://") || strings.HasPrefix(address, "wss://")
}
