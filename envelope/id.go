package envelope

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// ids makes ULIDs that increase within one process, even within one millisecond, from the
// operating system's random numbers (AEE, Security Considerations, "Replay Attacks": ids
// must not be predictable or reused).
var ids = idSource{read: func(p []byte) { rand.Read(p) }} // never fails

type idSource struct {
	mu   sync.Mutex
	read func([]byte) // fills its argument with random bytes
	pool [512]byte    // random bytes
	left int          // how many bytes at the end of pool are unused

	ms uint64 // the time of the latest id
	hi uint16 // and its 80 random bits
	lo uint64
}

// random returns n unused random bytes.
func (s *idSource) random(n int) []byte {
	if s.left < n {
		s.read(s.pool[:])
		s.left = len(s.pool)
	}
	at := len(s.pool) - s.left
	s.left -= n
	return s.pool[at : at+n]
}

// next makes the id for a time in milliseconds: random bits for the first id of a
// millisecond; for the others, the bits of the previous id plus a random step.
func (s *idSource) next(ms uint64) (id ulid.ULID) {
	if ms <= s.ms {
		var carry uint64
		before := s.hi
		s.lo, carry = bits.Add64(s.lo, 1+uint64(binary.LittleEndian.Uint32(s.random(4))), 0)
		s.hi += uint16(carry)
		ms = s.ms
		if s.hi < before {
			ms++ // overflow: use the next millisecond
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

// appendID appends a new id for the time t.
func (s *idSource) appendID(dst []byte, t time.Time) []byte {
	s.mu.Lock()
	id := s.next(ulid.Timestamp(t))
	s.mu.Unlock()
	dst = append(dst, make([]byte, ulid.EncodedSize)...)
	_ = id.MarshalTextTo(dst[len(dst)-ulid.EncodedSize:]) // there is room
	return dst
}

// NewID returns a new message or correlation id: a ULID, 26 characters, greater than
// every id that this process has made before, even if the clock goes back.
func NewID() string {
	var b [ulid.EncodedSize]byte
	return string(ids.appendID(b[:0], time.Now()))
}

// DeriveID returns an id that is derived from parts: a ULID with the time of the ULID
// base, or the time at if base is not a ULID, and with the first 80 bits of the SHA-256
// over the parts, each preceded by its length in eight bytes, big-endian. The same
// arguments give the same id, so it need not be stored.
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

// TimeLayout is the format of field ts as [Now] writes it: ISO 8601, UTC, milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Now returns the current time for field ts.
func Now() string {
	var b [len(TimeLayout)]byte
	return string(appendTime(b[:0], time.Now()))
}

// stamp returns [NewID] and [Now] for the same time, in one allocation.
func stamp() (id, ts string) {
	t := time.Now()
	var b [ulid.EncodedSize + len(TimeLayout)]byte
	both := string(appendTime(ids.appendID(b[:0], t), t))
	return both[:ulid.EncodedSize], both[ulid.EncodedSize:]
}

// appendTime appends t in the format of field ts.
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

// second caches the text of one second: most timestamps that are written or read are of
// the same second as the one before.
type second struct {
	unix int64
	text string
}

var lastSecond atomic.Pointer[second]

// recent parses a timestamp that has our format and is of the cached second.
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

// Time parses field ts. AEE recommends ISO 8601 and requires only ten characters: Time
// accepts RFC 3339, the same without seconds or with a zone such as +0200 or +02, the basic
// format, a date and time without a zone (taken as UTC), and a bare date; ok is false for
// anything else, such as week dates and ordinal dates, which RFC 3339 excludes. A leap second,
// 23:59:60, counts as the second after it.
func (e *Envelope) Time() (t time.Time, ok bool) {
	if t, ok := recent(e.TS); ok {
		return t, true
	}
	if t, err := time.Parse(time.RFC3339Nano, e.TS); err == nil {
		return t.UTC(), true
	}
	ts := strings.ToUpper(e.TS) // RFC 3339 allows t and z
	if t, ok := otherTime(ts); ok {
		return t, true
	}
	for _, leap := range [...]struct{ is, was string }{{":59:60", ":59:59"}, {"5960", "5959"}} {
		if i := strings.LastIndex(ts, leap.is); i > len("20060102T") {
			t, ok := otherTime(ts[:i] + leap.was + ts[i+len(leap.is):])
			return t.Add(time.Second), ok
		}
	}
	return time.Time{}, false
}

// otherTime parses a timestamp in capitals.
func otherTime(ts string) (t time.Time, ok bool) {
	for _, layout := range [...]string{
		"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05",
		"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "20060102T150405Z07:00", "20060102T150405Z0700", time.DateOnly,
	} {
		if t, err := time.Parse(layout, ts); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// IDTime returns when an id was made, by its maker's clock; ok is false if the id is not
// a ULID.
func IDTime(id string) (t time.Time, ok bool) {
	u, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}, false
	}
	return ulid.Time(u.Time()).UTC(), true
}
