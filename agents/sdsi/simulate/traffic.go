package simulate

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// A Request is one request of one client.
type Request struct {
	At     time.Time `json:"at"`
	Client string    `json:"client"`
	// Wishes are the client's words for wishes that the template has no key for; mostly none.
	Wishes []string `json:"wishes,omitempty"`
	attack string   // the attack that it belongs to
}

// Traffic is a sequence of requests in the order of time. An error ends it.
type Traffic = iter.Seq2[Request, error]

// A Generator generates requests. A field of 0 means its default.
type Generator struct {
	// Requests is the number of requests, without those of attackers. Default 1,000,000.
	Requests int `json:"requests,omitempty"`
	// Days is the number of days over which they are spread. Default 180.
	Days int `json:"days,omitempty"`
	// Clients is the number of clients. A few of them send most requests. Default 200.
	Clients int `json:"clients,omitempty"`
	// Noise is the share of requests with a wish that does not recur. Default 0.05.
	Noise float64 `json:"noise,omitempty"`
	// Wishes are the wishes that recur. Default: wishes of travellers.
	Wishes []Wish `json:"wishes,omitempty"`
	// Seed is the seed of the random numbers: another seed gives other requests of the same kind.
	Seed uint64 `json:"seed,omitempty"`
	// Attacks are added to the requests.
	Attacks []Attack `json:"attacks,omitempty"`
}

// A Wish is a wish that recurs.
type Wish struct {
	// Says are texts that express it. "{n}" stands for a number from 1 to 9.
	Says []string `json:"says"`
	// Share is the share of the requests with this wish.
	Share float64 `json:"share"`
	// From is the first day with this wish, and To the first day without it. Default: all days.
	From int `json:"from_day,omitempty"`
	To   int `json:"to_day,omitempty"`
}

// travellers are the default wishes: steady ones, a rare one, a passing one, and one that an
// operator must approve.
var travellers = []Wish{
	{Says: []string{"window seat", "a window seat please", "window seat, please", "seat at the window"}, Share: 0.24},
	{Says: []string{"vegetarian meal", "a vegetarian meal please", "vegetarian meals"}, Share: 0.2},
	{Says: []string{"{n} suitcases", "{n} suitcases please", "with {n} suitcases"}, Share: 0.17},
	{Says: []string{"quiet cabin", "a quiet cabin", "quiet cabin please"}, Share: 0.09},
	{Says: []string{"travelling with a small dog", "travelling with my small dog"}, Share: 0.03},
	{Says: []string{"football match transfer", "transfer to the football match"}, Share: 0.2, From: 40, To: 75},
	{Says: []string{"pay by company invoice", "pay by invoice of the company"}, Share: 0.1},
}

// start is the first day. Nothing depends on it.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// WithDefaults returns the generator with the defaults filled in, or all errors in it.
func (g Generator) WithDefaults() (Generator, error) {
	g.Requests, g.Days, g.Clients, g.Noise = cmp.Or(g.Requests, 1_000_000), cmp.Or(g.Days, 180), cmp.Or(g.Clients, 200), cmp.Or(g.Noise, 0.05)
	if g.Wishes == nil {
		g.Wishes = travellers
	}
	var bad []error
	if g.Requests < 1 || g.Requests > 100_000_000 {
		bad = append(bad, fmt.Errorf("requests: %d is not between 1 and 100,000,000", g.Requests))
	}
	if g.Days < 1 || g.Days > 3660 {
		bad = append(bad, fmt.Errorf("days: %d is not between 1 and 3660", g.Days))
	}
	if g.Clients < 1 || g.Clients > 1_000_000 {
		bad = append(bad, fmt.Errorf("clients: %d is not between 1 and 1,000,000", g.Clients))
	}
	if !(g.Noise >= 0 && g.Noise <= 1) {
		bad = append(bad, fmt.Errorf("noise: %g is not between 0 and 1", g.Noise))
	}
	for _, a := range g.Attacks {
		if a.Identities < 0 {
			bad = append(bad, fmt.Errorf("identities: %d is negative", a.Identities))
		}
	}
	for i, w := range g.Wishes {
		if len(w.Says) == 0 || !(w.Share > 0 && w.Share <= 1) || w.From < 0 || w.To < 0 || w.To > 0 && w.To <= w.From {
			bad = append(bad, fmt.Errorf("wishes[%d]: it has words in says, a share between 0 and 1, and days in order", i))
		}
	}
	for _, a := range g.Attacks {
		if !a.known() {
			bad = append(bad, fmt.Errorf("attacks: %q is none of %s", a.Kind, strings.Join(Attacks, ", ")))
		}
	}
	return g, errors.Join(bad...)
}

// Traffic returns the requests. Equal generators give equal requests. g must have its defaults.
func (g Generator) Traffic() Traffic {
	return func(yield func(Request, error) bool) {
		random := rand.New(rand.NewPCG(g.Seed, 14))
		busy := rand.NewZipf(random, 1.3, float64(g.Clients)/20+1, uint64(g.Clients-1))
		attackers := g.attackers()
		step := float64(g.Days) * 24 * float64(time.Hour) / float64(g.Requests)
		for i := range g.Requests {
			at := time.Duration(float64(i) * step)
			day := int(at / (24 * time.Hour))
			r := Request{At: start.Add(at), Client: "agent.client_" + strconv.FormatUint(busy.Uint64(), 10)}
			for _, w := range g.Wishes {
				if day >= w.From && (w.To == 0 || day < w.To) && random.Float64() < w.Share {
					r.Wishes = append(r.Wishes, say(random, w.Says))
				}
			}
			if random.Float64() < g.Noise {
				r.Wishes = append(r.Wishes, nonsense(random))
			}
			if !yield(r, nil) {
				return
			}
			for _, a := range attackers {
				if bad, ok := a.request(random, day); ok {
					bad.At = r.At
					if !yield(bad, nil) {
						return
					}
				}
			}
		}
	}
}

func say(random *rand.Rand, says []string) string {
	text := says[random.IntN(len(says))]
	if strings.Contains(text, "{n}") {
		text = strings.ReplaceAll(text, "{n}", strconv.Itoa(1+random.IntN(9)))
	}
	return text
}

// nonsense returns random words, for a wish that does not recur.
func nonsense(random *rand.Rand) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for word := range 2 {
		if word > 0 {
			b.WriteByte(' ')
		}
		for range 2 + random.IntN(3) {
			b.WriteByte(consonants[random.IntN(len(consonants))])
			b.WriteByte(vowels[random.IntN(len(vowels))])
		}
	}
	return b.String()
}

// maxLine bounds, in bytes, a line of a file of requests.
const maxLine = 1 << 20

// Requests reads requests: a JSON object on each line, in the order of time.
func Requests(r io.Reader) Traffic {
	return func(yield func(Request, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		var last time.Time
		for n := 1; lines.Scan(); n++ {
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			var req Request
			dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
			dec.DisallowUnknownFields()
			err := dec.Decode(&req)
			switch {
			case err != nil:
			case dec.More():
				err = errors.New("more than one object")
			case req.Client == "" || req.At.IsZero():
				err = errors.New(`"client" and "at" are required`)
			case req.At.Before(last):
				err = fmt.Errorf("%s is before the request above it", req.At.Format(time.RFC3339))
			}
			if err != nil {
				yield(req, fmt.Errorf("line %d: %w", n, err))
				return
			}
			last = req.At
			if !yield(req, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Request{}, fmt.Errorf("after the last line that was read: %w", err))
		}
	}
}
