package session

import (
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// ConnectionStatus prints changes of the connection. A long-running command prints all of
// them, a short one only failures.
func ConnectionStatus(t *term.Terminal, long bool) func(natsconn.Status) {
	var away seldom
	return func(s natsconn.Status) {
		why := ""
		attrs := []any{"url", s.URL}
		if s.Err != nil {
			why = ": " + outcome.Text(s.Err)
			attrs = append(attrs, "err", outcome.Text(s.Err))
		}
		good := term.Event{Level: slog.LevelInfo, Style: term.StyleGood, Msg: s.State, Attrs: attrs}
		bad := term.Event{Level: slog.LevelWarn, Label: "warning: ", Mark: term.StyleWarn, Msg: s.State, Attrs: attrs}
		switch s.State {
		case "connected":
			away.over()
			if long {
				t.Tell(good, "connected to %s", s.URL)
			}
		case "disconnected":
			t.Tell(bad, "disconnected from %s%s; reconnecting", s.URL, why)
		case "reconnected":
			away.over()
			t.Tell(good, "reconnected to %s", s.URL)
		case "error":
			if s.URL != "" && !away.now(s.URL+why) {
				return
			}
			bad.Msg = "no connection"
			if s.URL != "" {
				t.Tell(bad, "no connection to %s%s; trying again", s.URL, why)
			} else {
				bad.Msg = "NATS"
				t.Tell(bad, "NATS%s", why)
			}
		}
	}
}

// seldom lets a repeated message through the first time, and then at growing
// intervals: the 8th time, the 64th, the 512th.
type seldom struct {
	mu       sync.Mutex
	text     string
	n, again int
}

func (s *seldom) now(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what != s.text {
		s.text, s.n, s.again = what, 0, 1
	}
	if s.n++; s.n < s.again {
		return false
	}
	s.again *= 8
	return true
}

// over resets a message: its next occurrence counts as the first.
func (s *seldom) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = ""
}

// quietAboutServices hides that the NATS user may not discover workers and
// consumers, make consumers, ask the leader for a run's record, or ask for a
// stream: the command works without, or fails and says so itself.
func quietAboutServices(tell func(natsconn.Status)) func(natsconn.Status) {
	return func(s natsconn.Status) {
		hidden := func(subject string) bool { // "$JS.API.…", and of another domain "$JS.hub.API.…", "$JS.hub.API.$KV.…"
			text := s.Err.Error()
			return strings.Contains(text, `"`+subject) || strings.Contains(text, ".API."+strings.TrimPrefix(subject, "$JS.API."))
		}
		if !errors.Is(s.Err, nats.ErrPermissionViolation) || !hidden("$SRV.") && !hidden("$JS.API.CONSUMER.") && !hidden("$JS.API.STREAM.INFO.") && !hidden("$KV."+jetstream.BucketState) {
			tell(s)
		}
	}
}

// QuietAboutPermissions hides permission violations, which the caller's
// requests report themselves.
func QuietAboutPermissions(tell func(natsconn.Status)) func(natsconn.Status) {
	return func(s natsconn.Status) {
		if !errors.Is(s.Err, nats.ErrPermissionViolation) {
			tell(s)
		}
	}
}
