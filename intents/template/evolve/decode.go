package evolve

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// errBounds is the error for a stored pool that [Pool.Encode] cannot have written.
var errBounds = errors.New("is beyond the bounds of a pool")

// Open is [Decode] with the rules that are stored with the pool.
func Open(raw []byte) (*Pool, error) {
	var written struct{ Rules Config }
	if err := json.Unmarshal(raw, &written); err != nil {
		return nil, fmt.Errorf("stored pool: %w", err)
	}
	if r := &written.Rules; r.Window != 0 { // workers accepted a shorter one before
		r.Window = max(r.Window, r.Trial)
	}
	return Decode(raw, written.Rules)
}

// Decode decodes a pool that [Pool.Encode] has written. It refuses a pool beyond the bounds,
// because every client with permission to write to the bucket could have written it.
func Decode(raw []byte, cfg Config) (*Pool, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg}
	if len(raw) > 1<<20 {
		return nil, fmt.Errorf("stored pool: %w", errBounds)
	}
	if err := json.Unmarshal(raw, &p.doc); err != nil {
		return nil, fmt.Errorf("stored pool: %w", err)
	}
	if p.doc.Version != 1 {
		return nil, fmt.Errorf("stored pool: version %d; this release reads version 1", p.doc.Version)
	}
	if err := p.doc.check(); err != nil {
		return nil, fmt.Errorf("stored pool: %w", err)
	}
	p.doc.Rules = cfg
	return p, nil
}

// lastSecond is the last second of the year 9999, in Unix time. Later times cannot be written as
// JSON.
const lastSecond = 253402300799

func (d *document) check() error {
	if len(d.Clusters) > 1024 || len(d.Lives) > maxLives || len(d.Events) > maxEvents || len(d.Seen) > maxSeen ||
		d.Next == 0 || !d.Payloads.fits(limit{follow: 64}) || d.Next > math.MaxInt64 || d.Told >= d.Next {
		return errBounds
	}
	last := uint64(0)
	for _, e := range d.Events {
		if e.Number <= last || e.Number >= d.Next {
			return fmt.Errorf("event %d: %w", e.Number, errBounds)
		}
		last = e.Number
	}
	for _, c := range d.Clusters {
		if c == nil || len(c.Vector) == 0 || len(c.Vector) > maxDimensions || len(c.Votes) > maxVotes || len(c.Sayings) > maxSayings ||
			!(c.Heat >= 0) || math.IsInf(c.Heat, 0) || c.ID >= d.Next {
			return fmt.Errorf("a cluster: %w", errBounds)
		}
		for _, s := range c.Sayings {
			if len(s.Text) > MaxFragmentBytes+3 {
				return fmt.Errorf("a text: %w", errBounds)
			}
		}
	}
	for _, l := range d.Lives {
		if l == nil || len(l.Days) > 401 || len(l.Sample) > maxSampled || !l.Typing.fits(valueLimit) || !l.Judging.fits(valueLimit) || l.Number >= d.Next {
			return fmt.Errorf("a key: %w", errBounds)
		}
		if min(l.Since, l.Expires) < 0 || max(l.Since, l.Expires) > lastSecond {
			return fmt.Errorf("key %s: the times: %w", l.Key.Name, errBounds)
		}
		switch l.State {
		case Pending, Queued, Experimental, Stable, Deprecated, Withdrawn, Rejected, Retired:
		default:
			return fmt.Errorf("key %s: state %q is not known", l.Key.Name, l.State)
		}
		if err := l.check(); err != nil {
			return fmt.Errorf("key %s: %w", l.Key.Name, err)
		}
	}
	return nil
}

// check validates the key by the rules for keys of patches.
func (l *life) check() error {
	epoch := time.Unix(0, 0).UTC()
	probe := template.Patch{PatchID: "p", ParentSchemaID: "t", Timestamp: epoch, Expires: epoch.AddDate(1, 0, 0)}
	if l.Refines {
		probe.ModifiedKeys = []template.Refinement{{Name: l.Key.Name, Description: l.Key.Description}}
	} else {
		probe.NewKeys = []template.Key{l.Key}
	}
	return probe.Validate()
}

// Encode returns the stored form of the pool, at most [Config.MaxBytes] long. If the pool is too
// large, Encode removes, in this order: the counts of keys that are not advertised, clusters, and,
// repeatedly, the older half of the other keys' counts.
func (p *Pool) Encode(now time.Time) ([]byte, error) {
	for {
		raw, err := json.Marshal(&p.doc)
		over := len(raw) - p.cfg.MaxBytes
		switch {
		case err != nil || over <= 0:
			return raw, err
		case p.uncount():
		case len(p.doc.Clusters) > 0:
			for n := max(1, len(p.doc.Clusters)*over/len(raw)); n > 0 && len(p.doc.Clusters) > 0; n-- {
				p.evict(now, nil)
			}
		case !p.shorten():
			return raw, fmt.Errorf("the pool has %d bytes without any cluster, at most %d are stored", len(raw), p.cfg.MaxBytes)
		}
	}
}

// uncount removes the counts of keys that are not advertised: no decision needs them.
func (p *Pool) uncount() (shorter bool) {
	for _, l := range p.doc.Lives {
		if !l.State.advertised() {
			shorter = l.uncount() || shorter
		}
	}
	return shorter
}

// shorten removes the older half of the keys' counts, and of the remembered ids of observations.
// Before that it removes the samples of clients, because no decision needs them.
func (p *Pool) shorten() (shorter bool) {
	for _, l := range p.doc.Lives {
		shorter, l.Sample = shorter || len(l.Sample) > 0, nil
	}
	if shorter {
		return true
	}
	for _, l := range p.doc.Lives {
		n := len(l.Days) / 2
		shorter, l.Days = shorter || n > 0, slices.Delete(l.Days, 0, n)
	}
	n := len(p.doc.Seen) / 2
	p.doc.Seen = slices.Delete(p.doc.Seen, 0, n)
	return shorter || n > 0
}
