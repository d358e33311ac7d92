package evolve

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Bounds of what one observation and one cluster may hold.
const (
	MaxFragments     = 20  // of one observation
	MaxFragmentBytes = 200 // of one fragment; more is cut
	maxVotes         = 64  // of one cluster
	maxSayings       = 16  // texts of one cluster
	maxPerClient     = 3   // texts of one client in a cluster
	maxSeen          = 512 // ids of observations that are remembered
	maxEvents        = 64
	maxLives         = 160 // keys in all states
	maxSampled       = 64  // clients whose adoption of a key is followed
	maxDimensions    = 4096
)

// A Pool is the differential semantic pool of one scenario (SDSI 6.2.1), with the keys
// that have come out of it. It is not safe for concurrent use.
type Pool struct {
	cfg Config
	doc document
}

// document is what is stored of a pool. Times are seconds since 1970.
type document struct {
	Version  int        `json:"version"`
	Embedder string     `json:"embedder"` // of the vectors
	Rules    Config     `json:"rules"`    // of the worker that has written it
	Next     uint64     `json:"next"`     // the number of the next cluster or event
	Told     uint64     `json:"told"`     // events up to here have been published
	Clusters []*cluster `json:"clusters,omitempty"`
	Lives    []*life    `json:"keys,omitempty"`
	Events   []Event    `json:"events,omitempty"`
	Seen     []string   `json:"seen,omitempty"`
	Payloads shares     `json:"payloads,omitzero"` // of today's that count for the keys
}

// New returns an empty pool for vectors of one embedder.
func New(cfg Config, embedder string) (*Pool, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Pool{cfg: cfg, doc: document{Version: 1, Next: 1, Embedder: embedder, Rules: cfg}}, nil
}

// Client returns the name under which a pool stores a client: a hash of its entity. Clients
// that have not proved who they are have one name together, that of entity "".
func Client(entity string) string {
	if entity == "" {
		return "?"
	}
	sum := sha256.Sum256([]byte("aeemesh sdsi client\n" + entity))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// An Observation is what one payload tells.
type Observation struct {
	// ID identifies the request. A repeated one is not counted again.
	ID string
	// Client is the [Client] that has sent it.
	Client string
	// Fragments are the texts of "other", with their vectors.
	Fragments []Fragment
	// Keys are the keys of this pool that the payload has.
	Keys []Use
	// Refused says that the payload was not accepted: only Keys with a wrong type count.
	Refused bool
}

// A Fragment is a text that fits no key, and its vector of unit length.
type Fragment struct {
	Text   string
	Vector []float32
}

// A Use is a value that a payload has for a key.
type Use struct {
	Key       string
	WrongType bool // the value does not conform to the key
}

// Observe counts one payload. It reports false for one that was counted before.
func (p *Pool) Observe(o Observation, now time.Time) bool {
	id := short(o.ID)
	if o.ID != "" {
		if slices.Contains(p.doc.Seen, id) {
			return false
		}
		p.doc.Seen = append(p.doc.Seen, id)
		if over := len(p.doc.Seen) - maxSeen; over > 0 {
			p.doc.Seen = slices.Delete(p.doc.Seen, 0, over)
		}
	}
	p.use(o, now)
	for i, f := range o.Fragments {
		if i == MaxFragments {
			break
		}
		f.Text = clip.Text(f.Text, MaxFragmentBytes)
		if f.Text == "" || len(f.Vector) == 0 || len(f.Vector) > maxDimensions {
			continue
		}
		p.join(f, o.Client, now)
	}
	return true
}

func short(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Embedder returns the name of the embedder of the vectors.
func (p *Pool) Embedder() string { return p.doc.Embedder }

// UseEmbedder removes the clusters if their vectors are of another embedder: vectors of two
// embedders cannot be compared. Keys stay.
func (p *Pool) UseEmbedder(name string, now time.Time) {
	if p.doc.Embedder == name {
		return
	}
	if n := len(p.doc.Clusters); n > 0 {
		p.event(now, Event{Kind: KindEmptied, Why: fmt.Sprintf("%d clusters were of the embedder %s, and it is %s now", n, p.doc.Embedder, name)})
	}
	p.doc.Embedder, p.doc.Clusters = name, nil
}

// Forget removes all that is stored of a client: its votes, texts and keys of its own. The
// keys of all stay: what others know of them are words of several clients. A cluster stays if
// [Config.Anonymity] other clients feed it. If fewer do and it began with a text of the
// client, it goes: its vector is of that text. Forget reports whether there was something.
func (p *Pool) Forget(client string, now time.Time) bool {
	found := p.doc.Payloads.forget(client)
	keep := p.doc.Clusters[:0]
	for _, c := range p.doc.Clusters {
		led := c.Owner == client || c.Leader == client
		found = c.forget(p.cfg, client, now) || led || found
		switch {
		case c.Owner == client || len(c.Votes) == 0, led && c.clients() < p.cfg.Anonymity:
			continue
		case led:
			c.Leader = "" // of several
		}
		keep = append(keep, c)
	}
	clear(p.doc.Clusters[len(keep):])
	p.doc.Clusters = keep
	lives := p.doc.Lives[:0]
	for _, l := range p.doc.Lives {
		if l.Owner == client {
			found = true
			continue
		}
		before := len(l.Sample)
		l.Sample = slices.DeleteFunc(l.Sample, func(s sampled) bool { return s.Client == client })
		typed, judged := l.Typing.forget(client), l.Judging.forget(client)
		found = found || before != len(l.Sample) || typed || judged
		lives = append(lives, l)
	}
	clear(p.doc.Lives[len(lives):])
	p.doc.Lives = lives
	p.doc.Events = slices.DeleteFunc(p.doc.Events, func(e Event) bool { return e.Client == client })
	return found
}

// The kinds of events.
const (
	KindProposed   = "proposed"   // a cluster has become a key that waits for an operator
	KindQueued     = "queued"     // a key waits until another trial has ended
	KindTrial      = "trial"      // a key is on trial now
	KindPromoted   = "promoted"   // it is stable now
	KindRefined    = "refined"    // a key has a better description
	KindDeprecated = "deprecated" // it will be withdrawn
	KindWithdrawn  = "withdrawn"  // it is no longer in patches, and still accepted
	KindEnded      = "ended"      // it is not accepted any more
	KindRejected   = "rejected"   // an operator does not want it
	KindEmptied    = "emptied"    // the clusters are gone
)

// An Event is a step in the life of a key. Its number orders the events of a pool, and
// tells a repeated one.
type Event struct {
	Number uint64    `json:"number"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Key    string    `json:"key_name,omitempty"`
	Why    string    `json:"why,omitempty"`
	By     string    `json:"by,omitempty"`     // the operator
	Client string    `json:"client,omitempty"` // whose own key it is
}

func (p *Pool) event(now time.Time, e Event) {
	e.Number, e.At = p.next(), now.UTC().Truncate(time.Second)
	p.doc.Events = append(p.doc.Events, e)
	if over := len(p.doc.Events) - maxEvents; over > 0 {
		p.doc.Events = slices.Delete(p.doc.Events, 0, over)
	}
}

func (p *Pool) next() uint64 {
	n := p.doc.Next
	p.doc.Next++
	return n
}

// Untold returns the events that have not been published.
func (p *Pool) Untold() []Event {
	at, _ := slices.BinarySearchFunc(p.doc.Events, p.doc.Told+1, func(e Event, n uint64) int { return cmp.Compare(e.Number, n) })
	return slices.Clone(p.doc.Events[at:])
}

// Told notes that the events up to a number are published.
func (p *Pool) Told(number uint64) { p.doc.Told = min(max(p.doc.Told, number), p.doc.Next-1) }

// Events returns the latest events, the oldest first.
func (p *Pool) Events() []Event { return slices.Clone(p.doc.Events) }
