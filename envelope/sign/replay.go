package sign

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// CheckTime refuses an envelope whose ts is further than skew from now, in
// either direction, or cannot be read: E_STALE. A signature covers ts, so it
// bounds for how long a recorded envelope can be played again.
func CheckTime(e *envelope.Envelope, now time.Time, skew time.Duration) error {
	t, ok := e.Time()
	if !ok {
		return envelope.Errorf(envelope.CodeStale, "ts is no ISO 8601 time, so its age cannot be checked")
	}
	switch age := now.Sub(t); {
	case age > skew:
		return envelope.Errorf(envelope.CodeStale, "ts is %v old, at most %v is allowed", age.Round(time.Millisecond), skew)
	case age < -skew:
		return envelope.Errorf(envelope.CodeStale, "ts is %v in the future, at most %v is allowed", (-age).Round(time.Millisecond), skew)
	}
	return nil
}

const (
	replayShards = 16
	// replayMax bounds how many ids one shard remembers in one generation:
	// two million in all, some 60 MB.
	replayMax = 1 << 16
)

// Replay remembers the envelopes of the last while and refuses those that come
// again (AEE, Security Considerations, "Replay Attacks"). An envelope is known
// by its from and id together, so that nobody can spoil another's ids. Each is
// remembered for at least the window and at most twice as long, by a 64-bit
// keyed hash. Memory is bounded: beyond two million ids the oldest are
// forgotten early, which [Replay.Early] counts. A Replay may be used by many
// goroutines.
type Replay struct {
	window time.Duration
	seed   maphash.Seed
	early  atomic.Int64
	shards [replayShards]replayShard
}

// replayShard holds two generations; the older one goes when the younger has
// lasted for the window.
type replayShard struct {
	mu         sync.Mutex
	young, old map[uint64]struct{}
	since      time.Time // when young began
}

// NewReplay makes an empty memory. The window must be above 0.
func NewReplay(window time.Duration) *Replay {
	return &Replay{window: window, seed: maphash.MakeSeed()}
}

// Check refuses an envelope that was checked before within the window, with
// E_REPLAY, and remembers it otherwise. Times given should not go backwards.
func (r *Replay) Check(e *envelope.Envelope, now time.Time) error {
	if r.firstSeen(e.From, e.ID, now) {
		return nil
	}
	return envelope.Errorf(envelope.CodeReplay, "an envelope with this id came before, within %v", r.window)
}

func (r *Replay) firstSeen(from, id string, now time.Time) bool {
	var h maphash.Hash
	h.SetSeed(r.seed)
	h.WriteString(from)
	h.WriteByte(0)
	h.WriteString(id)
	key := h.Sum64()
	s := &r.shards[key%replayShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch age := now.Sub(s.since); {
	case age >= 2*r.window:
		s.young, s.old, s.since = nil, nil, now
	case age >= r.window:
		s.young, s.old, s.since = nil, s.young, now
	case len(s.young) >= replayMax:
		s.young, s.old, s.since = nil, s.young, now
		r.early.Add(1)
	}
	if _, seen := s.young[key]; seen {
		return false
	}
	if _, seen := s.old[key]; seen {
		return false
	}
	if s.young == nil {
		s.young = make(map[uint64]struct{})
	}
	s.young[key] = struct{}{}
	return true
}

// Early is how often ids were forgotten before their window had passed,
// because there were too many.
func (r *Replay) Early() int64 { return r.early.Load() }
