package recent

import "slices"

// IDs remembers the last [Max] ids that were added; "" is none. Most users have one or two, so it
// makes a map only for more than a few. The zero value is ready for use, by one goroutine at a
// time.
type IDs struct {
	known map[string]bool // nil while there are few
	ring  []string
	at    int // the oldest of a full ring
}

// Max is how many ids are remembered.
const Max = 4096

// few is how many ids are looked for one by one.
const few = 8

// Has reports whether an id is remembered.
func (r *IDs) Has(id string) bool {
	if r.known == nil {
		return id != "" && slices.Contains(r.ring, id)
	}
	return r.known[id]
}

// Add remembers an id that is not remembered, and forgets the oldest of more than Max.
func (r *IDs) Add(id string) {
	if id == "" {
		return
	}
	if r.known == nil && len(r.ring) >= few {
		r.known = map[string]bool{}
		for _, known := range r.ring {
			r.known[known] = true
		}
	}
	if r.known != nil {
		r.known[id] = true
	}
	if len(r.ring) < Max {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.known, r.ring[r.at])
	r.ring[r.at] = id
	r.at = (r.at + 1) % Max
}
