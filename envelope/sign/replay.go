package sign

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// CheckTime refuses an envelope with E_STALE if its ts is further than skew from now, in
// either direction, or cannot be parsed. A signature covers ts, so this limits for how
// long a recorded envelope can be replayed.
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
	// replayMax is the most ids that one shard remembers in one generation: two million
	// in all, 32 MB at most.
	replayMax = 1 << 16
)

// Replay remembers recent envelopes and refuses those that come again (AEE, Security
// Considerations, "Replay Attacks"). It identifies an envelope by its from and id
// together, so that no sender can use up another's ids. It remembers each for at least
// the window and at most twice as long, by a 63-bit keyed hash. Memory is limited: beyond
// two million ids it forgets the oldest early, which [Replay.Early] counts. Many
// goroutines may use a Replay.
type Replay struct {
	window time.Duration
	seed   maphash.Seed
	max    int // ids of one shard in one generation
	early  atomic.Int64
	shards [replayShards]replayShard
}

// replayShard holds two generations; the older one is dropped when the younger one has
// lasted for the window.
type replayShard struct {
	mu         sync.Mutex
	young, old idSet
	since      time.Time // when young began
}

// idSet is a set of hashes: a table with linear probing, which needs one memory access
// where a map needs several. A worker uses it once for each task.
type idSet struct {
	slots []uint64 // the length is a power of two; 0 is an empty slot
	n     int
}

func (s *idSet) has(key uint64) bool {
	if s.n == 0 {
		return false
	}
	mask := uint64(len(s.slots) - 1)
	for i := key >> 8 & mask; s.slots[i] != 0; i = (i + 1) & mask {
		if s.slots[i] == key {
			return true
		}
	}
	return false
}

// add adds a key that is not in the set.
func (s *idSet) add(key uint64) {
	if s.n >= len(s.slots)/4*3 {
		old := s.slots
		s.slots, s.n = make([]uint64, max(256, 2*len(old))), 0
		for _, k := range old {
			if k != 0 {
				s.add(k)
			}
		}
	}
	mask := uint64(len(s.slots) - 1)
	i := key >> 8 & mask
	for s.slots[i] != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = key
	s.n++
}

// NewReplay returns an empty Replay. The window must be above 0.
func NewReplay(window time.Duration) *Replay {
	return &Replay{window: window, seed: maphash.MakeSeed(), max: replayMax}
}

// Check refuses an envelope with E_REPLAY if it was checked before within the window;
// otherwise it remembers the envelope. The times should not decrease from call to call.
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
	key := h.Sum64() | 1<<63 // never 0
	s := &r.shards[key%replayShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch age := now.Sub(s.since); {
	case age >= 2*r.window:
		s.young, s.old, s.since = idSet{}, idSet{}, now
	case age >= r.window:
		s.young, s.old, s.since = idSet{}, s.young, now
	case s.young.n >= r.max:
		s.young, s.old, s.since = idSet{}, s.young, now
		r.early.Add(1)
	}
	if s.young.has(key) || s.old.has(key) {
		return false
	}
	s.young.add(key)
	return true
}

// Early counts how often ids were forgotten before the end of their window because there
// were too many.
func (r *Replay) Early() int64 { return r.early.Load() }
