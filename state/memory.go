package state

import (
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Whose says whom a run belongs to, for the walls between the scopes of memory.
// An empty name is nobody's: it equals no other, not even another empty one.
type Whose struct {
	User    string
	Session string
	Run     string
}

// Memories are the items of the snapshot that may be loaded into a run, given
// whose checkpoint it is and whose run it becomes (AAIF, Memory Configuration):
//
//   - user: only into a run of the same user;
//   - session: only into a run of the same user in the same session;
//   - task: only into the same run;
//   - long_term: into any.
//
// A run that goes on under its own id belongs to whom it belonged to before.
//
// An item's ttl_remaining_seconds is the time to live that it is to be given
// from now on: what it had when it was captured, less the time since. Absent or zero
// it does not expire. Items whose time is over are left out. Embeddings are not in a snapshot: whoever
// loads the items computes them anew.
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

// Remember makes items the snapshot, with the time to live that they had left then.
func (c *Checkpoint) Remember(items []aaif.MemoryItem, then time.Time) {
	c.Doc.MemorySnapshot, c.memoryAt = items, then
}

// memoriesLeft are the items of the snapshot whose time is not over, with the time to
// live that they have left, in whole seconds, and when they had exactly that.
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
