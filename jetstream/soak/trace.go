package soak

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"
)

// A digest represents bytes in a trace.
type digest [8]byte

func digestOf(b []byte) digest { s := sha256.Sum256(b); return digest(s[:8]) }

// A write is what the model needs of one revision of a run's record.
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
	Phase    string    `json:"phase,omitempty"` // of the run's transfer
	Claims   int       `json:"claims,omitempty"`

	Work        uint64 `json:"work,omitempty"`        // the sequence of the run's message, 0 if unknown
	Redelivered uint64 `json:"redelivered,omitempty"` // how often it was delivered before the delivery of the owner

	// Done are the steps with a result in this revision, by name (for an effect, its
	// idempotency key), with a digest of the result. Begun are the steps with an intent
	// and no result.
	Done  map[string]digest `json:"done,omitempty"`
	Begun []string          `json:"begun,omitempty"`

	Reply    digest `json:"-"` // of the terminal reply in the record
	HasReply bool   `json:"reply,omitempty"`
	Problem  string `json:"problem,omitempty"` // why it could not be read
}

// A reply is one terminal envelope that was published for a task.
type reply struct {
	Stored bool            `json:"stored"` // it is in the stream; otherwise it was only seen on the wire
	Seq    uint64          `json:"seq,omitempty"`
	At     time.Time       `json:"at"`
	Digest digest          `json:"-"`
	Type   string          `json:"type"`
	Body   json.RawMessage `json:"body,omitempty"` // the payload of the first one stored
}

// A task is a task of a client, and everything that was observed of it.
type task struct {
	ID, Entity, Run string
	Accepted        time.Time  // time of the acknowledgement; zero: never acknowledged
	Effects         []expected // effects whose receipts the result must contain, in order
	Cancelled       bool       // a cancel was sent
	Writes          []write
	Replies         []reply
	Calls           []call

	There        []write // the revisions of its record in the second system
	ThereReplies []reply // its terminal replies that are stored there

	Member   bool            // a team sent it to another agent
	Team     int             // for a team: how many tasks it sends
	Children map[string]bool // the ids of those tasks

	answered chan struct{} // closed by the first stored reply; nil after that
}

// terminal returns the first reply that is stored, if there is one.
func (t *task) terminal() (reply, bool) {
	i := slices.IndexFunc(t.Replies, func(r reply) bool { return r.Stored })
	if i < 0 {
		return reply{}, false
	}
	return t.Replies[i], true
}

// over reports whether the task has ended: it has its reply, and its record is terminal,
// in both systems if the reply came from the second.
func (t *task) over() bool {
	_, answered := t.terminal()
	return answered && ended(t.Writes) && (!t.relayed() || ended(t.There) && len(t.ThereReplies) > 0)
}

func ended(writes []write) bool { return len(writes) > 0 && writes[len(writes)-1].Over }

// expected is an effect that a task must have.
type expected struct {
	Step int
	Once bool // it is not safe to repeat, so it may be given up
}
