package evolve

import (
	"slices"
	"time"
)

// shares counts the events of one day by client, so that each client counts for a small part only:
// otherwise a client that sends very much could determine the metrics of all keys. It tracks only
// the busiest clients, by the algorithm of Misra and Gries: a client with more than one part in
// len(Top)+1 of all events is among them.
type shares struct {
	Day int64     `json:"d"`
	N   int       `json:"n"` // events of all clients that counted
	Top []portion `json:"t,omitempty"`
}

type portion struct {
	Client string `json:"c"`
	N      int    `json:"n"`
}

// A limit bounds how much a client may count: its first least events of a day, and beyond that one
// part in part of all. follow is how many clients are tracked; it is more than part.
type limit struct{ least, part, follow int }

// With these limits a client counts for less than 5 % of the payloads, the share of usage that
// keeps a key, and for less than 10 % of the values of a key, the share that can keep a key from
// becoming stable.
var valueLimit = limit{least: 5, part: 20, follow: 24}

func (c *Config) payloadLimit() limit { return limit{least: c.MinPayloads, part: 32, follow: 64} }

// A Sampler selects values that clients send for a key, by the limit with which a [Pool] counts
// them: from no client many more than from the others. It is not safe for concurrent use.
type Sampler struct{ values shares }

// Take reports whether a value of a client is in the sample, which has at most most values of a day;
// 0: any number.
func (s *Sampler) Take(client string, most int, now time.Time) bool {
	if most > 0 && s.values.Day == dayOf(now) && s.values.N >= most {
		return false
	}
	return s.values.take(client, valueLimit, now)
}

// take reports whether an event of a client counts, and counts it.
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

// fits reports whether decoded shares are within the bounds.
func (s *shares) fits(l limit) bool {
	return s.N >= 0 && len(s.Top) <= l.follow && !slices.ContainsFunc(s.Top, func(p portion) bool { return p.N < 1 || p.N > s.N })
}
