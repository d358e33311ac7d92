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
