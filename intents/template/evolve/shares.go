package evolve

import (
	"slices"
	"time"
)

// shares counts on one day what clients do, so that no client counts for more than a small
// part of it: one that sends very much could move the metrics of all keys by itself. It
// follows the busiest clients only, as the algorithm of Misra and Gries does: a client that
// does more than one part in len(Top)+1 of all is among them.
type shares struct {
	Day int64     `json:"d"`
	N   int       `json:"n"` // that counted, of all clients
	Top []portion `json:"t,omitempty"`
}

type portion struct {
	Client string `json:"c"`
	N      int    `json:"n"`
}

// A limit says how much a client may count for: its first least on a day, and beyond them
// one part in part. follow is how many clients are followed; it is more than part.
type limit struct{ least, part, follow int }

// With these a client counts for less than 5 % of the payloads, which is what keeps a key,
// and for less than 10 % of the values of a key, which is what keeps one from becoming
// stable.
var valueLimit = limit{least: 5, part: 20, follow: 24}

func (c *Config) payloadLimit() limit { return limit{least: c.MinPayloads, part: 32, follow: 64} }

// A Sampler takes a part of the values that clients send for a key, as a [Pool] counts them: of
// no client many more than of the others. It is not safe for concurrent use.
type Sampler struct{ values shares }

// Take reports whether a value of a client is in the sample.
func (s *Sampler) Take(client string, now time.Time) bool {
	return s.values.take(client, valueLimit, now)
}

// take reports whether something that a client does counts.
func (s *shares) take(client string, l limit, now time.Time) bool {
	if d := dayOf(now); s.Day != d {
		*s = shares{Day: d}
	}
	at := slices.IndexFunc(s.Top, func(p portion) bool { return p.Client == client })
	switch {
	case at >= 0 && s.Top[at].N >= max(l.least, s.N/l.part):
		return false
	case at >= 0:
		s.Top[at].N++
	case len(s.Top) < l.follow:
		s.Top = append(s.Top, portion{client, 1})
	default:
		for i := range s.Top {
			s.Top[i].N--
		}
		s.Top = slices.DeleteFunc(s.Top, func(p portion) bool { return p.N == 0 })
	}
	s.N++
	return true
}

// forget removes a client, and reports whether it was there.
func (s *shares) forget(client string) bool {
	before := len(s.Top)
	s.Top = slices.DeleteFunc(s.Top, func(p portion) bool { return p.Client == client })
	return len(s.Top) != before
}

// fits reports whether it is within the bounds.
func (s *shares) fits(l limit) bool {
	return s.N >= 0 && len(s.Top) <= l.follow && !slices.ContainsFunc(s.Top, func(p portion) bool { return p.N < 1 || p.N > s.N })
}
