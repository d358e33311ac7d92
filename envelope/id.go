package envelope

import (
	"bufio"
	"crypto/rand"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// ids makes ULIDs that grow within one process, also within one millisecond,
// from the operating system's random numbers (AEE, Security Considerations,
// "Replay Attacks": ids must not be predictable or reused).
var ids = idSource{entropy: newEntropy()}

type idSource struct {
	mu      sync.Mutex
	last    uint64 // the time of the latest id, in milliseconds
	entropy *ulid.MonotonicEntropy
}

func newEntropy() *ulid.MonotonicEntropy {
	var random io.Reader = bufio.NewReaderSize(rand.Reader, 1024)
	return ulid.Monotonic(random, 0)
}

// NewID returns a fresh message or correlation id: a ULID, 26 characters,
// greater than every one that this process has made before, also where the
// clock goes back.
func NewID() string {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.next(ulid.Timestamp(time.Now()))
}

func (s *idSource) next(ms uint64) string {
	for s.last = max(s.last, ms); ; s.last++ {
		if id, err := ulid.New(s.last, s.entropy); err == nil {
			return id.String()
		}
		// The 80 random bits overflowed within this millisecond: the next
		// one starts afresh.
	}
}

// TimeLayout is how [Now] writes field ts: ISO 8601, UTC, milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Now returns the time of now for field ts.
func Now() string {
	t := time.Now()
	sec := t.Unix()
	c := lastSecond.Load()
	if c == nil || c.unix != sec {
		c = &second{unix: sec, text: t.UTC().Format("2006-01-02T15:04:05.")}
		lastSecond.Store(c)
	}
	ms := t.Nanosecond() / 1e6
	var b [len(TimeLayout)]byte
	out := append(b[:0], c.text...)
	out = append(out, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
	return string(out)
}

// second is one second written out: most of a timestamp is that of the one
// before.
type second struct {
	unix int64
	text string
}

var lastSecond atomic.Pointer[second]

// Time reads field ts. AEE recommends ISO 8601 and demands no more than ten
// characters: RFC 3339, a date and time without zone (taken as UTC), and a
// bare date are understood; ok is false for anything else.
func (e *Envelope) Time() (t time.Time, ok bool) {
	if t, err := time.Parse(time.RFC3339Nano, e.TS); err == nil {
		return t.UTC(), true
	}
	for _, layout := range [...]string{"2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "20060102T150405Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, e.TS); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}
