package evolve

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// A cluster is one wish: fragments whose vectors are similar to the vector of its first fragment.
// The vector of the cluster never changes, so that a cluster cannot drift.
type cluster struct {
	ID      uint64   `json:"id"`
	Vector  []byte   `json:"vector"` // of the first fragment, quantized to int8
	Leader  string   `json:"leader"` // the client of the first fragment; "" if the client was forgotten
	Owner   string   `json:"owner,omitempty"`
	Heat    float64  `json:"heat"` // at At
	At      int64    `json:"at"`
	Votes   []vote   `json:"votes"`
	Sayings []saying `json:"sayings"`
	Key     string   `json:"key,omitempty"`     // the key that was made from it
	Claimed int64    `json:"claimed,omitempty"` // until then a worker makes a key from it

	long float64 // the length of Vector; 0 until it is computed
}

type vote struct {
	Client string `json:"c"`
	At     int64  `json:"t"`
}

type saying struct {
	Client string `json:"c"`
	Text   string `json:"s"`
}

// quantized returns a vector with one byte for each component.
func quantized(v []float32) []byte {
	most := float32(0)
	for _, x := range v {
		most = max(most, max(x, -x))
	}
	out := make([]byte, len(v))
	if !(most > 0) || math.IsInf(float64(most), 0) {
		return out
	}
	for i, x := range v {
		out[i] = byte(int8(math.Round(float64(x / most * 127))))
	}
	return out
}

// A vector is a quantized vector with its length, for comparisons with many clusters.
type vector struct {
	bytes  []byte
	parts  []part // the components that are not 0: few, if the embedder hashes parts of texts
	length float64
}

type part struct{ at, value int32 }

func vectorOf(bytes []byte) vector {
	v, sum := vector{bytes: bytes}, int32(0) // at most 127 * 127 * maxDimensions
	for i, x := range bytes {
		if x := int32(int8(x)); x != 0 {
			v.parts = append(v.parts, part{int32(i), x})
			sum += x * x
		}
	}
	v.length = math.Sqrt(float64(sum))
	return v
}

// near returns the similarity of a cluster and a vector; -1 if they cannot be compared.
func (c *cluster) near(v vector) float64 {
	if c.long == 0 {
		c.long = vectorOf(c.Vector).length
	}
	if len(c.Vector) != len(v.bytes) || c.long == 0 || v.length == 0 {
		return -1
	}
	sum := int32(0)
	for _, p := range v.parts {
		sum += int32(int8(c.Vector[p.at])) * p.value
	}
	return float64(sum) / (c.long * v.length)
}

// join adds a fragment to the most similar cluster, or begins a cluster.
func (p *Pool) join(f Fragment, client string, now time.Time) {
	v := vectorOf(quantized(f.Vector))
	p.joinOf("", v, f.Text, client, now)
	if p.cfg.Personal && client != Client("") {
		p.joinOf(client, v, f.Text, client, now)
	}
}

func (p *Pool) joinOf(owner string, v vector, text, client string, now time.Time) {
	var best *cluster
	nearest := p.cfg.Similarity
	for _, c := range p.doc.Clusters {
		if c.Owner == owner {
			if s := c.near(v); s >= nearest {
				best, nearest = c, s
			}
		}
	}
	if best == nil {
		best = &cluster{ID: p.next(), Vector: v.bytes, Leader: client, Owner: owner, At: now.Unix()}
		p.doc.Clusters = append(p.doc.Clusters, best)
		best.add(p.cfg, text, client, now)
		for len(p.doc.Clusters) > p.cfg.MaxClusters {
			p.evict(now, best)
		}
		return
	}
	best.add(p.cfg, text, client, now)
}

// add counts a fragment. A client's vote counts once in [Config.VoteEvery], except in the client's
// own cluster.
func (c *cluster) add(cfg Config, text, client string, now time.Time) {
	c.say(text, client)
	at := now.Unix()
	if c.Owner == "" {
		for _, v := range c.Votes {
			if v.Client == client && at-v.At < cfg.VoteEvery.seconds() {
				return
			}
		}
	}
	c.Heat, c.At = c.heat(cfg, now)+cfg.HeatPerVote, max(at, c.At)
	c.Votes = append(c.Votes, vote{client, at})
	if len(c.Votes) > maxVotes {
		c.Votes = slices.Delete(c.Votes, 0, len(c.Votes)-maxVotes)
	}
}

// say stores a text if the client has not said it before. If there are too many texts, the latest
// are kept.
func (c *cluster) say(text, client string) {
	n := 0
	for i, s := range c.Sayings {
		if s.Client == client {
			if strings.EqualFold(s.Text, text) {
				return
			}
			if n++; n == maxPerClient {
				c.Sayings = slices.Delete(c.Sayings, i, i+1)
				break
			}
		}
	}
	c.Sayings = append(c.Sayings, saying{client, text})
	if len(c.Sayings) > maxSayings {
		c.Sayings = slices.Delete(c.Sayings, 0, 1)
	}
}

// heat returns the heat at a time (SDSI 6.2.1: it decays exponentially).
func (c *cluster) heat(cfg Config, now time.Time) float64 {
	return cooled(cfg, c.Heat, c.At, now)
}

// cooled returns the rest, at the time now, of a heat at an earlier time.
func cooled(cfg Config, heat float64, at int64, now time.Time) float64 {
	age := max(now.Unix()-at, 0)
	return heat * math.Exp2(-float64(age)/float64(max(cfg.HalfLife.seconds(), 1)))
}

// recent returns how many clients have voted within [Config.Recent], and how often.
func (c *cluster) recent(cfg Config, now time.Time) (clients, votes int) {
	seen := make(map[string]bool, len(c.Votes))
	for _, v := range c.Votes {
		if now.Unix()-v.At <= cfg.Recent.seconds() {
			votes++
			seen[v.Client] = true
		}
	}
	return len(seen), votes
}

// ripe reports whether a key may be made from a cluster: its heat exceeds the threshold (SDSI
// 6.2.1), and enough clients have voted.
func (c *cluster) ripe(cfg Config, now time.Time) bool {
	if c.Key != "" || c.heat(cfg, now) <= cfg.MinHeat {
		return false
	}
	clients, votes := c.recent(cfg, now)
	if c.Owner != "" {
		return votes >= cfg.MinVotes
	}
	return clients >= cfg.MinClients || clients >= 2 && votes >= cfg.MinVotes
}

// evict removes the least valuable cluster: first one with the votes of a single client, of the
// client with the most such clusters; otherwise the coldest. It keeps a cluster that has a key, if
// possible.
func (p *Pool) evict(now time.Time, keep *cluster) {
	lone := map[string]int{}
	for _, c := range p.doc.Clusters {
		if who := c.alone(); who != "" {
			lone[who]++
		}
	}
	at, worst := -1, [3]float64{}
	for i, c := range p.doc.Clusters {
		if c == keep && len(p.doc.Clusters) > 1 {
			continue
		}
		rank := [3]float64{0, 0, c.heat(p.cfg, now)}
		switch who := c.alone(); {
		case c.Key != "":
			rank[0] = 2
		case who != "":
			rank[1] = -float64(lone[who])
		default:
			rank[0] = 1
		}
		if at < 0 || slices.Compare(rank[:], worst[:]) < 0 {
			at, worst = i, rank
		}
	}
	p.doc.Clusters = slices.Delete(p.doc.Clusters, at, at+1)
}

// forget removes a client's votes, their heat, and the client's texts. It reports whether there
// were any.
func (c *cluster) forget(cfg Config, client string, now time.Time) bool {
	before := len(c.Votes) + len(c.Sayings)
	c.Sayings = slices.DeleteFunc(c.Sayings, func(s saying) bool { return s.Client == client })
	c.Votes = slices.DeleteFunc(c.Votes, func(v vote) bool {
		if v.Client != client {
			return false
		}
		c.Heat = max(0, c.heat(cfg, now)-cooled(cfg, cfg.HeatPerVote, v.At, now))
		c.At = max(c.At, now.Unix())
		return true
	})
	return before != len(c.Votes)+len(c.Sayings)
}

// clients returns how many clients have a vote.
func (c *cluster) clients() int {
	seen := make(map[string]bool, len(c.Votes))
	for _, v := range c.Votes {
		seen[v.Client] = true
	}
	return len(seen)
}

// alone returns the only client that has voted for a cluster; "" if several clients have.
func (c *cluster) alone() string {
	for _, v := range c.Votes {
		if v.Client != c.Votes[0].Client {
			return ""
		}
	}
	if len(c.Votes) == 0 {
		return "?"
	}
	return c.Votes[0].Client
}

func (p *Pool) cluster(id uint64) *cluster {
	for _, c := range p.doc.Clusters {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// A Cluster describes a cluster for a person, or for the function that makes a key from it.
type Cluster struct {
	ID      uint64  `json:"id"`
	Heat    float64 `json:"heat"`
	Clients int     `json:"clients"` // that have voted within [Config.Recent]
	Votes   int     `json:"votes"`   // within [Config.Recent]
	// Examples are texts of the cluster, reduced to the words that several clients have used; the
	// most frequent first. For a client's own cluster they are the client's texts.
	Examples []string `json:"examples,omitempty"`
	Numbers  bool     `json:"numbers,omitempty"` // the texts differ in a number
	Owner    string   `json:"owner,omitempty"`   // the client whose own cluster it is
	Key      string   `json:"key_name,omitempty"`
	Ripe     bool     `json:"ripe,omitempty"`
	// Unproved reports that no client has proved its identity: together they count as one.
	Unproved bool `json:"unproved,omitempty"`
}

func (p *Pool) describe(c *cluster, now time.Time) Cluster {
	out := Cluster{ID: c.ID, Heat: math.Round(c.heat(p.cfg, now)*100) / 100, Owner: c.Owner, Key: c.Key, Ripe: c.ripe(p.cfg, now), Unproved: c.alone() == Client("")}
	out.Clients, out.Votes = c.recent(p.cfg, now)
	out.Examples, out.Numbers = c.examples(p.cfg)
	return out
}

// Size returns the number of clusters.
func (p *Pool) Size() int { return len(p.doc.Clusters) }

// Clusters returns all clusters, the hottest first.
func (p *Pool) Clusters(now time.Time) []Cluster {
	out := make([]Cluster, 0, len(p.doc.Clusters))
	for _, c := range p.doc.Clusters {
		out = append(out, p.describe(c, now))
	}
	sorted.By(out, func(a, b Cluster) int { return cmp.Compare(b.Heat, a.Heat) })
	return out
}

// Ripe returns the clusters from which a key can be made and that no worker has claimed.
func (p *Pool) Ripe(now time.Time) []Cluster {
	var out []Cluster
	for _, c := range p.doc.Clusters {
		if c.Claimed <= now.Unix() && c.ripe(p.cfg, now) {
			if d := p.describe(c, now); len(d.Examples) > 0 {
				out = append(out, d)
			}
		}
	}
	return out
}

// Claim reserves a cluster for one worker until now+d, so that only one worker calls a model for
// it. It returns false if another worker has claimed the cluster, or if it is not ripe.
func (p *Pool) Claim(id uint64, now time.Time, d time.Duration) bool {
	c := p.cluster(id)
	if c == nil || c.Claimed > now.Unix() || !c.ripe(p.cfg, now) {
		return false
	}
	c.Claimed = now.Add(d).Unix()
	return true
}
