package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// A Report is the result of a simulation.
type Report struct {
	Requests int           `json:"requests"`
	Clients  int           `json:"clients"`
	Start    time.Time     `json:"start"`
	Took     time.Duration `json:"took_ns"`
	// Limits are the rules of the simulation.
	Limits evolve.Config `json:"rules"`
	// Before and After count the wishes of the first day and of the last tenth of the days, and how
	// many of them no key covered.
	Before Tally `json:"first_day"`
	After  Tally `json:"last_tenth"`
	// Keys are all keys of the simulation, in the order in which they were proposed.
	Keys []*Key `json:"keys"`
	// MostKeys, MostTrials and MostClusters are the largest numbers at one time. MostKeys counts
	// the keys that a client gets beside the template.
	MostKeys     int `json:"most_keys"`
	MostTrials   int `json:"most_trials"`
	MostClusters int `json:"most_clusters"`
	// LastKey is the day on which the last new key was advertised; -1 if none was.
	LastKey int `json:"last_key_day"`
	// LargestPool is the largest stored size, in bytes.
	LargestPool int      `json:"largest_pool"`
	Attacks     []*Tried `json:"attacks,omitempty"`
	Days        []Day    `json:"days"`
}

// A Tally counts wishes.
type Tally struct {
	Wishes int `json:"wishes"`
	Other  int `json:"other"` // no key covered them
}

// Rest is the part of the wishes that no key covered; 0 if there were none.
func (t Tally) Rest() float64 { return float64(t.Other) / float64(max(1, t.Wishes)) }

// Tried is the result of an attack.
type Tried struct {
	Kind string `json:"kind"`
	Tally
	// Keys are the keys whose descriptions have words that only the attacker uses.
	Keys []string `json:"keys,omitempty"`
	// Told are those of them that other clients have received.
	Told []string `json:"told,omitempty"`
}

func (r *Report) attack(kind string) *Tally {
	for _, a := range r.Attacks {
		if a.Kind == kind {
			return &a.Tally
		}
	}
	r.Attacks = append(r.Attacks, &Tried{Kind: kind})
	return &r.Attacks[len(r.Attacks)-1].Tally
}

// A Day is one day of a simulation. Its wishes are those of honest clients.
type Day struct {
	Day      int `json:"day"`
	Requests int `json:"requests"`
	Tally
	Keys   int `json:"keys"` // advertised to clients, at the end of the day
	Trials int `json:"trials"`
}

// A Key is a key that was made from the requests.
type Key struct {
	Name        string         `json:"key_name"`
	Type        template.Type  `json:"key_type"`
	Description string         `json:"semantic_description"` // the last one
	Why         string         `json:"why,omitempty"`        // of the last change
	Spans       []Span         `json:"spans"`
	Metrics     evolve.Metrics `json:"metrics"`
	gone        bool
}

// A Span is the time that a key was in one state, in days since the start. State "" means that the
// key did not exist any more.
type Span struct {
	State evolve.State `json:"state"`
	From  float64      `json:"from_day"`
}

// follow records the states of the keys.
func (s *simulation) follow(keys []evolve.Key) {
	day := s.now.Sub(s.report.Start).Hours() / 24
	told, trials := 0, 0
	for _, k := range s.keys {
		k.gone = true
	}
	for _, k := range keys {
		if k.Refines {
			continue
		}
		known := s.keys[k.Name]
		if known == nil {
			known = &Key{Name: k.Name}
			s.keys[k.Name] = known
			s.report.Keys = append(s.report.Keys, known)
		}
		known.gone = false
		known.Type, known.Description, known.Why, known.Metrics = k.Type, k.Description, k.Why, k.Metrics
		fresh := known.state() == "" || known.state() == evolve.Pending || known.state() == evolve.Queued
		known.enter(k.State, day)
		switch k.State {
		case evolve.Experimental:
			trials++
			told++
			if fresh {
				s.report.LastKey = int(day)
			}
		case evolve.Stable, evolve.Deprecated:
			told++
		}
	}
	for _, k := range s.keys {
		if k.gone {
			k.enter("", day)
		}
	}
	r := s.report
	r.MostKeys, r.MostTrials = max(r.MostKeys, told), max(r.MostTrials, trials)
	r.MostClusters = max(r.MostClusters, s.pool.Size())
	if s.today != nil {
		s.today.Keys, s.today.Trials = told, trials
	}
	if g := s.view.Generation(); g != s.spotted {
		s.spotted = g
		s.findPlanted(keys)
	}
}

func (k *Key) state() evolve.State {
	if len(k.Spans) == 0 {
		return ""
	}
	return k.Spans[len(k.Spans)-1].State
}

func (k *Key) enter(state evolve.State, day float64) {
	if k.state() != state {
		k.Spans = append(k.Spans, Span{state, day})
	}
}

// findPlanted searches the names and descriptions of keys for an attacker's words.
func (s *simulation) findPlanted(keys []evolve.Key) {
	for _, a := range s.attackers {
		own := a.own
		s.report.attack(a.Kind)
		tried := s.report.Attacks[slices.IndexFunc(s.report.Attacks, func(t *Tried) bool { return t.Kind == a.Kind })]
		for _, k := range keys {
			if k.Owner != "" || !slices.ContainsFunc(template.Words(strings.ReplaceAll(k.Name, "_", " ")+" "+k.Description), func(w template.Word) bool { return slices.Contains(own, w.Text) }) {
				continue
			}
			if !slices.Contains(tried.Keys, k.Name) {
				tried.Keys = append(tried.Keys, k.Name)
			}
			told := k.State == evolve.Experimental || k.State == evolve.Stable || k.State == evolve.Deprecated
			if told && !slices.Contains(tried.Told, k.Name) {
				tried.Told = append(tried.Told, k.Name)
			}
		}
	}
}

func (s *simulation) finish(took time.Duration) {
	r := s.report
	r.Clients, r.Took = len(s.clients), took
	r.Before = r.Days[0].Tally
	for _, d := range r.Days[len(r.Days)-max(1, len(r.Days)/10):] {
		r.After.Wishes, r.After.Other = r.After.Wishes+d.Wishes, r.After.Other+d.Other
	}
	slices.SortStableFunc(r.Attacks, func(a, b *Tried) int { return cmp.Compare(a.Kind, b.Kind) })
}
