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

// Limits of one observation, of one cluster and of a pool.
const (
	MaxFragments     = 20  // of one observation
	MaxFragmentBytes = 200 // of one fragment; longer ones are truncated
	maxVotes         = 64  // of one cluster
	maxSayings       = 16  // texts of one cluster
	maxPerClient     = 3   // texts of one client in a cluster
	maxSeen          = 512 // remembered ids of observations
	maxEvents        = 64
	maxLives         = 160 // keys in all states
	maxSampled       = 64  // clients in the sample that measures the adoption of a key
	maxDimensions    = 4096
)

// A Pool is the differential semantic pool of one scenario (SDSI 6.2.1), with the keys that were
// made from it. It is not safe for concurrent use.
type Pool struct {
	cfg Config
	doc document
}

// document is the stored form of a pool. Times are seconds since 1970.
type document struct {
	Version  int        `json:"version"`
	Embedder string     `json:"embedder"` // of the vectors
	Rules    Config     `json:"rules"`    // of the worker that wrote it
	Next     uint64     `json:"next"`     // the number of the next cluster or event
	Told     uint64     `json:"told"`     // events up to this number are published
	Clusters []*cluster `json:"clusters,omitempty"`
	Lives    []*life    `json:"keys,omitempty"`
	Events   []Event    `json:"events,omitempty"`
	Seen     []string   `json:"seen,omitempty"`
	Payloads shares     `json:"payloads,omitzero"` // today's payloads that count for the keys
}

// New returns an empty pool for the vectors of one embedder.
func New(cfg Config, embedder string) (*Pool, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Pool{cfg: cfg, doc: document{Version: 1, Next: 1, Embedder: embedder, Rules: cfg}}, nil
}

// Client returns the name under which a pool stores a client: a hash of its entity. All clients
// that have not proved their identity share one name, that of entity "".
func Client(entity string) string {
	if entity == "" {
		return "?"
	}
	return short("aeemesh sdsi client\n" + entity)
}

// An Observation is the part of one payload that a pool counts.
type Observation struct {
	// ID identifies the request. A repeated request is not counted again, unless 512 others were
	// counted in between.
	ID string
	// Client is the sender's name, from [Client].
	Client string
	// Fragments are the texts of "other", with their vectors.
	Fragments []Fragment
	// Keys are the keys of this pool that the payload has.
	Keys []Use
	// Refused reports that the payload was not accepted; then only Keys with a wrong type count.
	Refused bool
}

// A Fragment is a text that fits no key, with its vector of unit length.
type Fragment struct {
	Text   string
	Vector []float32
}

// A Use is a key for which a payload has a value.
type Use struct {
	Key       string
	WrongType bool // the value does not conform to the key
}

// Observe counts one payload. It returns false for a payload that was counted before.
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

// short returns 12 characters that stand for a text: a part of its hash.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Embedder returns the name of the embedder of the vectors.
func (p *Pool) Embedder() string { return p.doc.Embedder }

// UseEmbedder sets the embedder. It removes all clusters if their vectors come from another
// embedder, because vectors of two embedders cannot be compared. Keys stay.
func (p *Pool) UseEmbedder(name string, now time.Time) {
	if p.doc.Embedder == name {
		return
	}
	if n := len(p.doc.Clusters); n > 0 {
		p.event(now, Event{Kind: KindEmptied, Why: fmt.Sprintf("%d clusters were of the embedder %s, and it is %s now", n, p.doc.Embedder, name)})
	}
	p.doc.Embedder, p.doc.Clusters = name, nil
}

// Forget removes all stored data of a client: its votes, its texts and its own keys. Keys for all
// clients stay, because their descriptions contain only words of several clients. A cluster that
// began with a text of the client is removed, because its vector is that of the text, unless at
// least [Config.Anonymity] other clients have voted for it. Forget reports whether there was
// anything to remove.
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
			c.Leader = "" // other clients have voted for it, too
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
	KindProposed   = "proposed"   // a key was made from a cluster, and waits for an operator
	KindQueued     = "queued"     // it waits until another trial has ended
	KindTrial      = "trial"      // it is on trial now
	KindPromoted   = "promoted"   // it is stable now
	KindRefined    = "refined"    // it has a better description
	KindDeprecated = "deprecated" // it will be withdrawn
	KindWithdrawn  = "withdrawn"  // it is no longer in patches, but still accepted
	KindEnded      = "ended"      // it is not accepted any more
	KindRejected   = "rejected"   // an operator has rejected it
	KindEmptied    = "emptied"    // the clusters were removed
)

// An Event is a step in the life of a key. Its number gives the order of the events of a pool, and
// identifies a repeated one.
type Event struct {
	Number uint64    `json:"number"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Key    string    `json:"key_name,omitempty"`
	Why    string    `json:"why,omitempty"`
	By     string    `json:"by,omitempty"`     // the operator
	Client string    `json:"client,omitempty"` // the client whose own key it is
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

// Told records that the events up to a number are published.
func (p *Pool) Told(number uint64) { p.doc.Told = min(max(p.doc.Told, number), p.doc.Next-1) }

// Events returns the latest events, oldest first.
func (p *Pool) Events() []Event { return slices.Clone(p.doc.Events) }
