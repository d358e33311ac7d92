package mcp

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// markPrefix begins the ids of the events with which the wire ends streams.
const markPrefix = "aeemesh-"

// lastEventID is the header with the id of the last event of a stream that broke off.
const lastEventID = "Last-Event-ID"

// streams ends a session's streams of messages (the answers to a GET) with an event of its own. The
// SDK ends the session, with all calls, when the third of them has ended without an event id. But
// proxies end each stream that is silent for a minute.
type streams struct {
	mu    sync.Mutex
	count int
	short int // how many in a row did not last
}

// carriesNotices reports whether the answer to a request is a stream of notices, if it is a stream.
func carriesNotices(req *http.Request, m message) bool {
	return req.Method == http.MethodGet || m.Method == "subscriptions/listen"
}

// isWhole reports whether a request is for a new stream, not for the rest of another. It returns the
// request without an id that the wire has made.
func isWhole(req *http.Request) (*http.Request, bool) {
	id := req.Header.Get(lastEventID)
	if req.Method != http.MethodGet || id != "" && !strings.HasPrefix(id, markPrefix) {
		return req, false
	}
	if id != "" {
		req = req.Clone(req.Context())
		req.Header.Del(lastEventID)
	}
	return req, true
}

// mark returns the event for the end of a stream that began at a time. After a stream that did not
// last, it sets a pause, which grows with each. pause is what the server has set, in milliseconds.
func (s *streams) mark(began time.Time, pause uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	id := fmt.Sprintf("id: %s%d\n", markPrefix, s.count)
	if time.Since(began) >= steady {
		s.short = 0
		return id + "\n"
	}
	pause = max(pause, min(uint64(minPause)<<min(s.short, 10), maxPause))
	s.short++
	return fmt.Sprintf("%sretry: %d\n\n", id, pause)
}

// listens records that a stream of a session's notices has begun or ended. Notices may have been
// lost before it began again.
func (l *link) listens(s *session, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if begun {
		s.notices++
		s.missed = s.missed || s.cut
	} else {
		s.notices--
		s.missed, s.cut = true, true
	}
	if s.missed {
		l.asked = time.Time{}
	}
}

// isOld reports whether the list of a session over HTTP may have changed without a notice: notices
// were lost, or no stream is there by which they could come, and no connection that breaks when the
// server is replaced. The list is then requested again, but not repeatedly within the interval of
// pings.
func (l *link) isOld(s *session) bool {
	age := l.cfg.Ping
	if age < 0 {
		age = DefaultPing
	}
	return s.http && (s.missed || s.notices == 0) && time.Since(l.asked) > age
}
