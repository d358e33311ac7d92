package state

import (
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Whose says to which user and session a run belongs, for the scopes of memories. An
// empty name equals no other, not even another empty one.
type Whose struct {
	User    string
	Session string
	Run     string
}

// Memories returns the items of the snapshot that may be loaded into a run. was is the
// owner of the checkpoint, is that of the run (AAIF, Memory Configuration):
//
//   - user: only into a run of the same user;
//   - session: only into a run of the same user in the same session;
//   - task: only into the same run;
//   - long_term: into any.
//
// A run that continues under its own id keeps its user and session.
//
// An item's ttl_remaining_seconds is its time to live from now on: the value at its
// capture less the time since. An item without it, or with zero, does not expire. Expired
// items are left out. A snapshot has no embeddings: the caller has to compute them again.
func (c *Checkpoint) Memories(was, is Whose) []aaif.MemoryItem {
	sameRun := was.Run != "" && was.Run == is.Run
	sameUser := sameRun || was.User != "" && was.User == is.User
	sameSession := sameRun || sameUser && was.Session != "" && was.Session == is.Session
	var kept []aaif.MemoryItem
	left, _ := c.memoriesLeft(time.Now())
	for _, m := range left {
		may := false
		switch m.Scope {
		case aaif.ScopeUser:
			may = sameUser
		case aaif.ScopeSession:
			may = sameSession
		case aaif.ScopeTask:
			may = sameRun
		case aaif.ScopeLongTerm:
			may = true
		}
		if may {
			kept = append(kept, m)
		}
	}
	return kept
}

// Remember sets the snapshot to items whose time to live was exact at the time then.
func (c *Checkpoint) Remember(items []aaif.MemoryItem, then time.Time) {
	c.Doc.MemorySnapshot, c.memoryAt = items, then
}

// memoriesLeft returns the items of the snapshot that have not expired, with their
// remaining time to live in whole seconds, and the time at which these values are exact.
func (c *Checkpoint) memoriesLeft(now time.Time) ([]aaif.MemoryItem, time.Time) {
	since := c.memoryAt
	if since.IsZero() {
		since = c.At()
	}
	if since.IsZero() || now.Before(since) {
		since = now
	}
	gone := now.Sub(since).Truncate(time.Second)
	var left []aaif.MemoryItem
	for _, m := range c.Doc.MemorySnapshot {
		switch ttl := m.TTLRemainingSeconds; {
		case !ttl.IsSet() || ttl.Float64() == 0:
		case ttl.Float64() <= gone.Seconds():
			continue
		case gone > 0:
			m.TTLRemainingSeconds = aaif.Int(ttl.Int64() - int64(gone.Seconds()))
		}
		left = append(left, m)
	}
	return left, since.Add(gone)
}
