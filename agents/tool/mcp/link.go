package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/envelope/cert"
)

// The delays between attempts to reach a server that does not answer.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
	steady     = 10 * time.Second // a session that lasted this long does not count as a failure
)

// link manages the session of one server and credential: it starts the session
// when it is needed, and again after it has ended.
type link struct {
	target
	cfg  *Config
	log  *slog.Logger
	life context.Context // ends with Servers.Close

	mu      sync.Mutex
	live    *session
	dialing chan struct{} // closed when the current attempt ends; nil if there is none
	lastErr error
	fails   int
	retryAt time.Time
	stale   bool // the server's list has changed
	list    *catalogue
	asked   time.Time       // when the list was last requested
	listing chan struct{}   // a mutex for requesting the list
	calls   map[string]call // running ones, by progress token
	heard   time.Time       // when the server last answered a call or reported progress
	nextID  uint64
	ending  bool
	work    sync.WaitGroup
}

// session returns the session, and starts one if there is none. Shortly after a
// failed attempt it returns an error instead of trying again.
func (l *link) session(ctx context.Context) (*session, error) {
	for {
		l.mu.Lock()
		switch {
		case l.ending:
			l.mu.Unlock()
			return nil, &unavailable{words: "this worker is ending"}
		case l.live != nil:
			live := l.live
			l.mu.Unlock()
			return live, nil
		case !l.begun():
			err := l.down()
			l.mu.Unlock()
			return nil, err
		}
		dialing := l.dialing
		l.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begun reports whether an attempt to start a session is under way. It begins
// one, unless the last one failed a short time ago.
func (l *link) begun() bool {
	if l.dialing == nil && !time.Now().Before(l.retryAt) {
		l.dialing = make(chan struct{})
		l.work.Go(l.connect)
	}
	return l.dialing != nil
}

// dialPatience is how long a run waits for a new session before it goes on with the last list.
const dialPatience = time.Second

// meanwhile returns the last list if no session exists or starts within [dialPatience], so that a
// server that does not answer does not delay runs. It returns nil if there is a session, or no
// list.
func (l *link) meanwhile(ctx context.Context) *catalogue {
	l.mu.Lock()
	if l.live != nil || l.list == nil || l.ending {
		l.mu.Unlock()
		return nil
	}
	l.begun()
	dialing := l.dialing
	l.mu.Unlock()
	if dialing != nil {
		timer := time.NewTimer(dialPatience)
		defer timer.Stop()
		select {
		case <-dialing:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live != nil {
		return nil
	}
	return l.list
}

// unavailable is why a call is not made now. Its text is for the model.
type unavailable struct {
	words string
	err   error
	sent  bool // the server got the request
}

func (e *unavailable) Error() string { return e.words }
func (e *unavailable) Unwrap() error { return e.err }

// down is the error while the server is down and is not retried yet.
func (l *link) down() error {
	wait := time.Until(l.retryAt).Round(time.Second)
	words := fmt.Sprintf("the MCP server %s cannot be reached now; try again later", l.name)
	if wait > 0 {
		words = fmt.Sprintf("the MCP server %s cannot be reached now; try again in %s", l.name, wait)
	}
	if why := reason(l.lastErr); why != "" {
		words += ": " + why
	}
	return &unavailable{words: words, err: l.lastErr}
}

// reason describes, for a model, why a server cannot be reached.
func reason(err error) string {
	var start *startError
	var status *statusError
	fault, _ := cert.Fault(err, "")
	switch {
	case fault != "":
		return fault
	case errors.As(err, &start):
		return start.words
	case errors.Is(err, outbound.ErrCredential):
		return "its credential cannot be read"
	case errors.Is(err, outbound.ErrRefused):
		return "the operator's policy refuses its address"
	case errors.As(err, &status):
		words, _ := refused(status.status)
		return words
	}
	return ""
}

// connect starts a session and watches it.
func (l *link) connect() {
	s, err := l.dial(l.life)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dialing)
	l.dialing = nil
	if err != nil {
		l.failed(err)
		if !l.ending {
			l.log.Warn("mcp server cannot be reached", "err", plain(err), "retry", time.Until(l.retryAt).Round(time.Millisecond))
		}
		return
	}
	l.live, l.stale = s, true
	info := s.InitializeResult()
	attrs := []any{"protocol", info.ProtocolVersion}
	if info.ServerInfo != nil {
		attrs = append(attrs, "name", l.cfg.shortened(info.ServerInfo.Name, 64), "version", l.cfg.shortened(info.ServerInfo.Version, 64))
	}
	l.log.Info("mcp session begun", attrs...)
	l.work.Go(func() { l.watch(s) })
}

// failed records a failed attempt, and sets the time of the next one: the delay
// grows, with a random part so that many workers do not retry at the same time.
func (l *link) failed(err error) {
	l.lastErr = err
	wait := min(lastRetry, firstRetry<<min(l.fails, 10))
	l.fails++
	l.retryAt = time.Now().Add(wait/2 + rand.N(wait/2+1))
}

// watch pings a session until it ends, and then forgets it.
func (l *link) watch(s *session) {
	gone := make(chan error, 1)
	l.work.Go(func() { gone <- s.Wait() })
	pinging, stop := context.WithCancel(l.life)
	defer stop()
	l.work.Go(func() { l.ping(pinging, s) })
	var err error
	select {
	case err = <-gone:
	case <-s.ended:
	}
	s.kill()
	l.mu.Lock()
	if l.live == s {
		l.live = nil
	}
	switch short := time.Since(s.since) < steady; {
	case !short:
		l.fails, l.lastErr = 0, err
	case l.fails == 0:
		l.fails, l.lastErr = 1, err // the next call may start another session at once, but only once
	default:
		l.failed(err)
	}
	meant := l.ending
	l.mu.Unlock()
	<-s.ended
	if err = plain(err); s.exit != nil && err != nil {
		err = fmt.Errorf("%w; its program: %w", err, s.exit)
	} else if err == nil {
		err = s.exit // nil: it has no program
	}
	if !meant {
		l.log.Warn("mcp session ended", "err", err)
	}
	_ = s.Close() // releases the SDK's resources
}

// ping closes a session whose server does not answer any more. Protocol
// 2026-07-28 has no pings: there a request is used that no server knows,
// because its refusal also shows that the server is alive. Over HTTP there is
// then no session to close.
func (l *link) ping(ctx context.Context, s *session) {
	ask := func(ctx context.Context) error { return s.Ping(ctx, nil) }
	if s.InitializeResult().ProtocolVersion >= "2026-07-28" {
		if s.http {
			return
		}
		ask = func(ctx context.Context) error {
			_, err := sdk.CallCustomMethod[*probe, *probeResult](ctx, s.ClientSession, probeMethod, &probe{})
			return err
		}
	}
	if l.cfg.Ping < 0 {
		return
	}
	tick := time.NewTicker(l.cfg.Ping)
	defer tick.Stop()
	var silent time.Time // when the first ping after the last sign of life was missed
	for missed := 0; missed < 2; {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-tick.C:
		}
		pinging, cancel := context.WithTimeout(ctx, max(l.cfg.Ping/2, time.Millisecond))
		var seen note
		err := ask(context.WithValue(pinging, noteOfCall{}, &seen))
		cancel()
		var answer *jsonrpc.Error
		status := seen.status.Load()
		// Some servers answer methods that they do not know with 500.
		if err == nil || errors.As(err, &answer) && !rejected(answer) || status == http.StatusTooManyRequests || status == http.StatusInternalServerError {
			missed, silent = 0, time.Time{}
			continue
		}
		l.mu.Lock()
		if !silent.After(l.heard) {
			silent, missed = time.Now(), 0
		}
		busy := l.busy(silent)
		l.mu.Unlock()
		if !busy {
			missed++
		}
	}
	l.log.Warn("mcp server does not answer pings")
	s.kill()
}

// probeMethod is a method that no server knows.
const probeMethod = "aeemesh/ping"

type (
	probe       struct{ sdk.ParamsBase }
	probeResult struct{ sdk.ResultBase }
)

// changed records that the server's list of tools has changed. The SDK has forgotten the pages that
// it kept.
func (l *link) changed(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
	clear(s.listed)
}

// drop closes a session that cannot be used.
func (l *link) drop(s *session) {
	s.kill()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == s {
		l.live = nil
	}
}

// call is a call that the server has not answered yet.
type call struct {
	tool  string
	began time.Time
	ends  bool // it has a deadline
	note  *note
}

// enter assigns a progress token to a call.
func (l *link) enter(ctx context.Context, tool string, n *note) (token string, leave func(answered bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextID++
	token = fmt.Sprintf("call-%d", l.nextID)
	if l.calls == nil {
		l.calls = make(map[string]call)
	}
	_, ends := ctx.Deadline()
	l.calls[token] = call{tool, time.Now(), ends, n}
	return token, func(answered bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.calls, token)
		if answered {
			l.heard = time.Now()
		}
	}
}

// busy reports whether a server that has been silent since a time may be working on a call: many
// servers do one thing at a time, and answer no pings meanwhile. A call that began after that time
// does not count, because it may wait like the pings.
func (l *link) busy(silent time.Time) bool {
	for _, c := range l.calls {
		if c.ends && !c.began.After(silent) {
			return true
		}
	}
	return false
}

// occupied reports whether a server may have been working on a call since a time, so that it read
// nothing: a call that it has got and that has a deadline, or one that it has answered since.
func (l *link) occupied(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.ends && c.note.sent.Load() {
			return true
		}
	}
	return l.heard.After(since)
}

// neverOccupied stands for occupied of a connection without a link.
func neverOccupied(time.Time) bool { return false }

// progress passes on a server's progress report about a call.
func (l *link) progress(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	l.mu.Lock()
	running, ok := l.calls[token]
	if ok {
		l.heard = time.Now()
	}
	l.mu.Unlock()
	if !ok || l.cfg.Progress == nil {
		return
	}
	l.cfg.Progress(Progress{Server: l.name, Tool: running.tool, Progress: req.Params.Progress, Total: req.Params.Total, Message: l.cfg.shortened(req.Params.Message, 1<<10)})
}

// end closes the link, gracefully if the server answers at once.
func (l *link) end() {
	l.mu.Lock()
	s := l.live
	l.ending = true
	l.mu.Unlock()
	if s != nil {
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Close() }()
		timer := time.NewTimer(graceClose)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
		s.kill()
	}
}

// plain returns an error for the log without the address that HTTP errors
// quote, because the address may contain a key.
func plain(err error) error {
	var e *url.Error
	var start *startError
	what, hint := cert.Fault(err, "outbound.ca_file")
	switch {
	case what != "":
		return fmt.Errorf("%s: %s", what, hint)
	case errors.As(err, &e):
		return plain(e.Err)
	case errors.As(err, &start) && start.err != nil:
		return fmt.Errorf("%s: %w", start.words, plain(start.err))
	}
	return err
}
