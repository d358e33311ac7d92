package envelope

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// ids makes ULIDs that grow within one process, also within one millisecond,
// from the operating system's random numbers (AEE, Security Considerations,
// "Replay Attacks": ids must not be predictable or reused).
var ids = idSource{read: func(p []byte) { rand.Read(p) }} // never fails

type idSource struct {
	mu   sync.Mutex
	read func([]byte) // fills it with random bytes
	pool [512]byte    // of them
	left int          // how many of the pool's, at its end, are unused

	ms uint64 // the time of the latest id
	hi uint16 // and its 80 random bits
	lo uint64
}

// random returns n bytes that nobody has seen.
func (s *idSource) random(n int) []byte {
	if s.left < n {
		s.read(s.pool[:])
		s.left = len(s.pool)
	}
	at := len(s.pool) - s.left
	s.left -= n
	return s.pool[at : at+n]
}

// next makes the id of a moment in milliseconds: random bits for the first in
// a millisecond, and for the others those of the one before plus a random step.
func (s *idSource) next(ms uint64) (id ulid.ULID) {
	if ms <= s.ms {
		var carry uint64
		before := s.hi
		s.lo, carry = bits.Add64(s.lo, 1+uint64(binary.LittleEndian.Uint32(s.random(4))), 0)
		s.hi += uint16(carry)
		ms = s.ms
		if s.hi < before {
			ms++ // overflow: the next millisecond starts afresh
		}
	}
	if ms > s.ms {
		s.ms = ms
		s.hi = binary.LittleEndian.Uint16(s.random(2))
		s.lo = binary.LittleEndian.Uint64(s.random(8))
	}
	_ = id.SetTime(s.ms) // fails in the year 10889
	binary.BigEndian.PutUint16(id[6:], s.hi)
	binary.BigEndian.PutUint64(id[8:], s.lo)
	return id
}

// appendID appends a fresh id for the moment t.
func (s *idSource) appendID(dst []byte, t time.Time) []byte {
	s.mu.Lock()
	id := s.next(ulid.Timestamp(t))
	s.mu.Unlock()
	dst = append(dst, make([]byte, ulid.EncodedSize)...)
	_ = id.MarshalTextTo(dst[len(dst)-ulid.EncodedSize:]) // there is room
	return dst
}

// NewID returns a fresh message or correlation id: a ULID, 26 characters,
// greater than every one that this process has made before, also where the
// clock goes back.
func NewID() string {
	var b [ulid.EncodedSize]byte
	return string(ids.appendID(b[:0], time.Now()))
}

// DeriveID returns the id that follows from parts: a ULID whose time is that of
// the ULID base, or at where base is none, and whose 80 other bits are the first of
// SHA-256 over the parts, each behind its length in eight bytes, big-endian. Whoever
// derives an id again gets the same one, and needs not store it.
func DeriveID(base string, at time.Time, parts ...string) string {
	var id ulid.ULID
	if was, err := ulid.ParseStrict(base); err == nil {
		copy(id[:6], was[:6])
	} else if ms := at.UnixMilli(); ms > 0 {
		_ = id.SetTime(uint64(ms)) // fails in the year 10889
	}
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		io.WriteString(h, p)
	}
	copy(id[6:], h.Sum(nil))
	return id.String()
}

// TimeLayout is how [Now] writes field ts: ISO 8601, UTC, milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Now returns the time of now for field ts.
func Now() string {
	var b [len(TimeLayout)]byte
	return string(appendTime(b[:0], time.Now()))
}

// stamp is [NewID] and [Now] of one moment, in one allocation.
func stamp() (id, ts string) {
	t := time.Now()
	var b [ulid.EncodedSize + len(TimeLayout)]byte
	both := string(appendTime(ids.appendID(b[:0], t), t))
	return both[:ulid.EncodedSize], both[ulid.EncodedSize:]
}

// appendTime appends t as field ts has it.
func appendTime(dst []byte, t time.Time) []byte {
	sec := t.Unix()
	c := lastSecond.Load()
	if c == nil || c.unix != sec {
		c = &second{unix: sec, text: t.UTC().Format("2006-01-02T15:04:05.")}
		lastSecond.Store(c)
	}
	ms := t.Nanosecond() / 1e6
	dst = append(dst, c.text...)
	return append(dst, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// second is one second written out: most of a timestamp is that of the one
// before, and most that come in are of now.
type second struct {
	unix int64
	text string
}

var lastSecond atomic.Pointer[second]

// recent reads a timestamp in the form and of the second of the last one that
// was written.
func recent(ts string) (t time.Time, ok bool) {
	c := lastSecond.Load()
	if c == nil || len(ts) != len(TimeLayout) || ts[:len(c.text)] != c.text || ts[len(ts)-1] != 'Z' {
		return t, false
	}
	ms := int64(0)
	for _, d := range []byte(ts[len(c.text) : len(ts)-1]) {
		if d < '0' || d > '9' {
			return t, false
		}
		ms = 10*ms + int64(d-'0')
	}
	return time.Unix(c.unix, ms*1e6).UTC(), true
}

// Time reads field ts. AEE recommends ISO 8601 and demands no more than ten
// characters: RFC 3339, a date and time without zone (taken as UTC), and a
// bare date are understood; ok is false for anything else.
func (e *Envelope) Time() (t time.Time, ok bool) {
	if t, ok := recent(e.TS); ok {
		return t, true
	}
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

// IDTime is when an id was made, by the clock of who made it; ok is false where
// it is no ULID, and so does not say.
func IDTime(id string) (t time.Time, ok bool) {
	u, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}, false
	}
	return ulid.Time(u.Time()).UTC(), true
}
