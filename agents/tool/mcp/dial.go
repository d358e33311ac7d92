package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// session is one connection to a server, from the handshake to its end.
type session struct {
	*sdk.ClientSession
	kill  func()        // ends it at once; may be called repeatedly
	ended chan struct{} // closed when the session has ended completely
	exit  error         // how its program ended, if it has one; set before ended is closed
	since time.Time
	http  bool // requests have no common connection

	// The rest is guarded by link.mu.
	listed  map[string]int // bytes of the pages that the SDK may keep, by cursor
	notices int            // streams of notices that are open
	cut     bool           // one has ended
	missed  bool           // notices may have been lost
}

// attempt is one way to start a session.
type attempt struct {
	transport string
	version   string // of the protocol; "" for the newest
}

// attempts returns the ways to reach a server, best first. Servers before
// protocol 2026-07-28 get a request that they do not know; if a server does not
// answer it correctly, the older handshake is tried by itself.
func (t *target) attempts() []attempt {
	legacy := "2025-11-25"
	switch {
	case len(t.Command) > 0, isWebSocket(t.URL):
		return []attempt{{"", ""}, {"", legacy}}
	case t.Transport == transportSSE:
		return []attempt{{transportSSE, legacy}}
	case t.Transport == transportStreamable:
		return []attempt{{transportStreamable, ""}, {transportStreamable, legacy}}
	}
	return []attempt{{transportStreamable, ""}, {transportSSE, legacy}}
}

// dial starts a session. Each attempt has the whole connect timeout, because each starts a program
// anew, and that may be what takes long.
func (l *link) dial(ctx context.Context) (*session, error) {
	var first error
	ways := l.attempts()
	for i, way := range ways {
		s, err := l.within(ctx, way)
		if err == nil {
			return s, nil
		}
		if first == nil {
			first = err
		}
		if older := i+1 < len(ways) && ways[i+1].transport == transportSSE; ctx.Err() != nil || final(err) || older && !knowsNoStreamable(err) {
			break
		}
	}
	return nil, first
}

// within starts a session by one attempt, within the connect timeout.
func (l *link) within(ctx context.Context, way attempt) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ConnectTimeout)
	defer cancel()
	return l.begin(ctx, way)
}

// final reports whether all other attempts would fail with the same error.
func final(err error) bool {
	var e *startError
	var op *net.OpError
	return errors.As(err, &e) || errors.As(err, &op) && op.Op == "dial"
}

// startError is why a server could not be started. Its text is for the model.
type startError struct {
	words string
	err   error
}

func (e *startError) Error() string { return e.words }
func (e *startError) Unwrap() error { return e.err }

// begin connects and does the handshake.
func (l *link) begin(ctx context.Context, way attempt) (*session, error) {
	life, die := context.WithCancelCause(l.life)
	s := &session{kill: func() { die(errKilled) }, ended: make(chan struct{})}
	transport, err := l.transport(ctx, life, s, way)
	if err != nil {
		s.kill()
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			s.kill()
			l.work.Go(func() { <-s.ended }) // so that Close waits for its program
		}
	}()
	var last note
	client := sdk.NewClient(&sdk.Implementation{Name: "aeemesh", Version: l.cfg.Version}, &sdk.ClientOptions{
		Logger:                      l.log,
		Capabilities:                &sdk.ClientCapabilities{},                  // no roots, sampling or elicitation: the SDK answers such requests with an error
		MultiRoundTrip:              &sdk.MultiRoundTripOptions{Disabled: true}, // the same for those in a tool's result
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { l.changed(s) },
		ProgressNotificationHandler: l.progress,
	})
	if err := sdk.AddSendingCustomMethod[*probe, *probeResult](client, probeMethod); err != nil {
		return nil, err
	}
	shake := &handshake{Transport: transport, kill: s.kill, stop: func() bool { return true }}
	s.ClientSession, err = client.Connect(context.WithValue(ctx, noteOfCall{}, &last), shake, &sdk.ClientSessionOptions{ProtocolVersion: way.version})
	if !shake.stop() {
		err = ctx.Err()
		if s.ClientSession != nil {
			l.work.Go(func() { _ = s.Close() }) // releases the SDK's resources
		}
	}
	if err != nil {
		if status := int(last.status.Load()); status >= 300 {
			err = &statusError{status, err}
		}
		return nil, err
	}
	s.since, begun = time.Now(), true
	return s, nil
}

var errKilled = errors.New("the session was ended")

// transport makes the transport, and sets s.kill to close it.
func (l *link) transport(ctx, life context.Context, s *session, way attempt) (sdk.Transport, error) {
	var f frames
	var program *pipes
	switch {
	case len(l.Command) > 0:
		p, err := startPipes(&l.Server, l.cfg, l.log)
		if err != nil {
			return nil, &startError{startWords(err).Error(), err}
		}
		p.occupied = l.occupied
		f, program = p, p
	default:
		client, err := l.cfg.Client(ctx, l.URL, l.Auth, l.listed)
		if err != nil {
			return nil, &startError{"its address or credential is refused here", err}
		}
		if isWebSocket(l.URL) {
			w, err := dialWebSocket(ctx, l.URL, client, l.cfg)
			if err != nil {
				return nil, err
			}
			w.occupied = l.occupied
			f = w
			break
		}
		s.http = true
		context.AfterFunc(life, func() { close(s.ended) })
		var again *streams
		if way.transport != transportSSE {
			again = new(streams)
		}
		client = clientOf(life, client, l.cfg.MaxMessage, again, func(begun bool) { l.listens(s, begun) }, sync.OnceFunc(func() {
			l.log.Warn("mcp session is ended", "err", errFlood)
			s.kill()
		}))
		if way.transport == transportSSE {
			// The context of its first request bounds the life of its stream.
			return &lasting{life, &sdk.SSEClientTransport{Endpoint: l.URL, HTTPClient: client, MaxEventSize: l.cfg.MaxMessage * 2}}, nil
		}
		return &sdk.StreamableClientTransport{Endpoint: l.URL, HTTPClient: client, MaxEventSize: l.cfg.MaxMessage * 2, MaxRetries: 2}, nil
	}
	c := newConn(f, 2*l.cfg.MaxMessage, l.log)
	context.AfterFunc(life, func() {
		c.end()
		if program != nil {
			<-program.ended
			s.exit = program.exit
		}
		close(s.ended)
	})
	return fixed{c}, nil
}

// handshake ends the session of its transport with the context of the handshake: the SDK's
// requests for streams are part of the handshake, and do not end with that context.
type handshake struct {
	sdk.Transport
	kill func()
	stop func() bool // no longer; it reports false if the session has been ended
}

// Connect connects.
func (h *handshake) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := h.Transport.Connect(ctx)
	if err == nil {
		h.stop = context.AfterFunc(ctx, func() {
			h.kill()
			_ = conn.Close() // so that the SDK repeats no request
		})
	}
	return conn, err
}

// fixed is a transport that is already connected.
type fixed struct{ conn sdk.Connection }

// Connect returns the connection.
func (f fixed) Connect(context.Context) (sdk.Connection, error) { return f.conn, nil }

// lasting connects with a context that outlives the handshake.
type lasting struct {
	life context.Context
	next sdk.Transport
}

// Connect connects with the session's context, unless ctx ends first.
func (t *lasting) Connect(ctx context.Context) (sdk.Connection, error) {
	type made struct {
		conn sdk.Connection
		err  error
	}
	done := make(chan made, 1)
	connecting, cancel := context.WithCancel(t.life)
	go func() {
		conn, err := t.next.Connect(connecting)
		done <- made{conn, err}
	}()
	select {
	case m := <-done:
		if m.err != nil {
			cancel()
		} else {
			context.AfterFunc(t.life, cancel)
		}
		return m.conn, m.err
	case <-ctx.Done():
		cancel()
		return nil, fmt.Errorf("connect: %w", ctx.Err())
	}
}

// noteOfCall is the context key of a call's note.
type noteOfCall struct{}

// note records whether a call was sent, and the outcome of its HTTP request.
type note struct {
	sent   atomic.Bool
	status atomic.Int32
}

func (n *note) send() {
	if n != nil {
		n.sent.Store(true)
	}
}

func (n *note) answer(status int) {
	if n != nil {
		n.status.Store(int32(status))
	}
}

// begun reports whether the server may have begun the call, after the session was lost.
func (n *note) begun() bool { return n.sent.Load() && n.status.Load() != http.StatusNotFound }
