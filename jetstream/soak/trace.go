package soak

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"
)

// A digest stands for bytes in a trace.
type digest [8]byte

func digestOf(b []byte) digest { s := sha256.Sum256(b); return digest(s[:8]) }

// A write is one revision of a run's record: what the model needs of it.
type write struct {
	Revision uint64    `json:"revision"`
	At       time.Time `json:"at"` // the server's time
	Epoch    uint64    `json:"epoch"`
	Owner    string    `json:"owner"`
	Status   string    `json:"status"`
	Over     bool      `json:"over,omitempty"` // the status is terminal
	Running  bool      `json:"running,omitempty"`
	Kind     string    `json:"kind"` // the step's
	Name     string    `json:"name,omitempty"`
	Phase    string    `json:"phase,omitempty"` // of the run's move
	Claims   int       `json:"claims,omitempty"`

	// Done are the steps that have their result in this revision, by name (the
	// idempotency key of an effect), with a digest of it. Begun are those that
	// have an intent and no result.
	Done  map[string]digest `json:"done,omitempty"`
	Begun []string          `json:"begun,omitempty"`

	Reply    digest `json:"-"` // of the terminal reply that it holds
	HasReply bool   `json:"reply,omitempty"`
	Problem  string `json:"problem,omitempty"` // it could not be read: why
}

// A reply is one terminal envelope that was published for a task.
type reply struct {
	Stored bool            `json:"stored"` // it is in the stream; else it was only seen on its way
	Seq    uint64          `json:"seq,omitempty"`
	At     time.Time       `json:"at"`
	Digest digest          `json:"-"`
	Type   string          `json:"type"`
	Body   json.RawMessage `json:"body,omitempty"` // the payload of the first one stored
}

// A task is what a client had accepted, and all that was seen of it after.
type task struct {
	ID, Entity, Run string
	Accepted        time.Time  // of the acknowledgement; zero: never acknowledged
	Effects         []expected // that its result must have the receipts of, in order
	Cancelled       bool       // somebody asked for it
	Writes          []write
	Replies         []reply
	Calls           []call

	There        []write // the revisions of its record in the second system
	ThereReplies []reply // its terminal replies that are stored there

	Member   bool            // a team has given it to another agent
	Team     int             // of a team: to how many it gives tasks
	Children map[string]bool // those tasks, by id

	answered chan struct{} // closed by the first reply that is stored; nil after it
}

// terminal is the last reply that is stored, if there is one.
func (t *task) terminal() (reply, bool) {
	i := slices.IndexFunc(t.Replies, func(r reply) bool { return r.Stored })
	if i < 0 {
		return reply{}, false
	}
	return t.Replies[i], true
}

// over reports whether nothing more should happen to the task: it has its reply,
// and its record is terminal, in both systems where the reply came from the second.
func (t *task) over() bool {
	_, answered := t.terminal()
	return answered && ended(t.Writes) && (!t.relayed() || ended(t.There) && len(t.ThereReplies) > 0)
}

func ended(writes []write) bool { return len(writes) > 0 && writes[len(writes)-1].Over }

// expected is an effect that a task has.
type expected struct {
	Step int
	Once bool // it is not safe to repeat, so it may be given up
}
