package state

import "github.com/aeemesh/aeemesh/agents/aaif"

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
// from now on; absent or zero it does not expire. Items whose time was over when
// they were captured are left out. Embeddings are not in a snapshot: whoever
// loads the items computes them anew.
func (c *Checkpoint) Memories(was, is Whose) []aaif.MemoryItem {
	sameRun := was.Run != "" && was.Run == is.Run
	sameUser := sameRun || was.User != "" && was.User == is.User
	sameSession := sameRun || sameUser && was.Session != "" && was.Session == is.Session
	var kept []aaif.MemoryItem
	for _, m := range c.Doc.MemorySnapshot {
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
		if may && m.TTLRemainingSeconds.Float64() >= 0 {
			kept = append(kept, m)
		}
	}
	return kept
}
