package evolve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// A State is where a key is in its life (SDSI 6.2.3).
type State string

// The states of a key.
const (
	Pending      State = "pending"      // an operator decides
	Queued       State = "queued"       // waits until another trial has ended
	Experimental State = "experimental" // on trial
	Stable       State = "stable"
	Deprecated   State = "deprecated" // is withdrawn after the grace period
	Withdrawn    State = "withdrawn"  // is accepted, and advertised no more
	Rejected     State = "rejected"   // by an operator; is not proposed again for a while
	Retired      State = "retired"    // was withdrawn; is not proposed again for a while
)

// advertised reports whether clients are told of the key.
func (s State) advertised() bool { return s == Experimental || s == Stable || s == Deprecated }

// life is a key and what is known of it.
type life struct {
	Key      template.Key `json:"key"`
	Refines  bool         `json:"refines,omitempty"` // it describes a key of the template, and adds none
	Owner    string       `json:"owner,omitempty"`   // the client whose own key it is
	Cluster  uint64       `json:"cluster"`
	State    State        `json:"state"`
	Since    int64        `json:"since"`   // of the state
	Expires  int64        `json:"expires"` // of the patch
	Number   uint64       `json:"number"`  // of the last change
	Why      string       `json:"why,omitempty"`
	Approved string       `json:"approved,omitempty"` // by an operator
	Days     []daily      `json:"days,omitempty"`
	Sample   []sampled    `json:"sample,omitempty"`
	Typing   shares       `json:"typing,omitzero"`  // of today's values whose type is counted
	Judging  shares       `json:"judging,omitzero"` // of today's judgements
}

// daily has what was counted on one day.
type daily struct {
	Day       int64 `json:"d"` // since 1970
	Payloads  int   `json:"n"`
	Present   int   `json:"p,omitempty"`
	Typed     int   `json:"t,omitempty"`
	WrongType int   `json:"w,omitempty"`
	Judged    int   `json:"j,omitempty"`
	Aligned   int   `json:"a,omitempty"`
}

// sampled is a client whose adoption of a key is followed: of those that have received it,
// the ones with the smallest names, which are hashes.
type sampled struct {
	Client  string `json:"c"`
	Adopted bool   `json:"a,omitempty"`
}

func dayOf(now time.Time) int64 { return now.Unix() / 86400 }

func (l *life) today(cfg Config, now time.Time) *daily {
	d := dayOf(now)
	if n := len(l.Days); n == 0 || l.Days[n-1].Day < d {
		l.Days = append(l.Days, daily{Day: d})
		oldest := d - cfg.Window.seconds()/86400
		for len(l.Days) > 1 && (l.Days[0].Day < oldest || len(l.Days) > 400) {
			l.Days = slices.Delete(l.Days, 0, 1)
		}
	}
	return &l.Days[len(l.Days)-1]
}

// use counts a payload for the keys that it could have had. A client counts for a part only
// of the payloads of a day, and of the values of a key.
func (p *Pool) use(o Observation, now time.Time) {
	asked, counts := false, false
	for _, l := range p.doc.Lives {
		if l.Refines || l.Owner != "" && l.Owner != o.Client || !l.State.advertised() && l.State != Withdrawn {
			continue
		}
		if !asked {
			asked, counts = true, !o.Refused && p.doc.Payloads.take(o.Client, p.cfg.payloadLimit(), now)
		}
		at := slices.IndexFunc(o.Keys, func(u Use) bool { return u.Key == l.Key.Name })
		if at < 0 && !counts || at >= 0 && o.Refused && !o.Keys[at].WrongType {
			continue
		}
		d := l.today(p.cfg, now)
		if counts {
			d.Payloads++
		}
		if at < 0 {
			continue
		}
		if counts {
			d.Present++
		}
		if l.Typing.take(o.Client, valueLimit, now) {
			d.Typed++
			if o.Keys[at].WrongType {
				d.WrongType++
			}
		}
		if !o.Keys[at].WrongType {
			l.sample(o.Client, true)
		}
	}
}

// sample notes that a client has received a key, or has used it.
func (l *life) sample(client string, adopted bool) bool {
	at, there := slices.BinarySearchFunc(l.Sample, client, func(s sampled, c string) int { return cmp.Compare(s.Client, c) })
	if there {
		changed := adopted && !l.Sample[at].Adopted
		l.Sample[at].Adopted = l.Sample[at].Adopted || adopted
		return changed
	}
	if at >= maxSampled {
		return false
	}
	l.Sample = slices.Insert(l.Sample, at, sampled{client, adopted})
	if len(l.Sample) > maxSampled {
		l.Sample = l.Sample[:maxSampled]
	}
	return true
}

// Received notes that a client was told of keys. It reports whether that is news.
func (p *Pool) Received(client string, keys []string) bool {
	news := false
	for _, l := range p.doc.Lives {
		if l.State.advertised() && slices.Contains(keys, l.Key.Name) && (l.Owner == "" || l.Owner == client) {
			news = l.sample(client, false) || news
		}
	}
	return news
}

// Judge counts a value of a client that was compared with the words it stands for.
func (p *Pool) Judge(key, client string, aligned bool, now time.Time) {
	for _, l := range p.doc.Lives {
		if l.Key.Name == key && l.State.advertised() && l.Judging.take(client, valueLimit, now) {
			d := l.today(p.cfg, now)
			d.Judged++
			if aligned {
				d.Aligned++
			}
		}
	}
}

// Metrics are the four of SDSI 6.2.3 over the window, with what they are made of. A ratio of
// nothing is -1.
type Metrics struct {
	Payloads          int     `json:"payloads"`
	Present           int     `json:"present"`
	Judged            int     `json:"judged"`
	UsageFrequency    float64 `json:"usage_frequency"`
	AlignmentAccuracy float64 `json:"semantic_alignment_accuracy"`
	TypeCorrectness   float64 `json:"value_type_correctness"`
	AdoptionRate      float64 `json:"client_adoption_rate"`
}

func (l *life) metrics(cfg Config, now time.Time) (m Metrics) {
	oldest := dayOf(now) - cfg.Window.seconds()/86400
	typed, wrong, aligned, adopted := 0, 0, 0, 0
	for _, d := range l.Days {
		if d.Day >= oldest {
			m.Payloads, m.Present, m.Judged = m.Payloads+d.Payloads, m.Present+d.Present, m.Judged+d.Judged
			typed, wrong, aligned = typed+d.Typed, wrong+d.WrongType, aligned+d.Aligned
		}
	}
	for _, s := range l.Sample {
		if s.Adopted {
			adopted++
		}
	}
	ratio := func(n, of int) float64 {
		if of == 0 {
			return -1
		}
		return float64(n) / float64(of)
	}
	m.UsageFrequency, m.AlignmentAccuracy = ratio(m.Present, m.Payloads), ratio(aligned, m.Judged)
	m.TypeCorrectness, m.AdoptionRate = ratio(typed-wrong, typed), ratio(adopted, len(l.Sample))
	return m
}

// Propose makes a key of a cluster (SDSI 6.2.2): it goes on trial, waits for a place, or
// for an operator, where sensitive says why. A key whose name is in the base template, or
// in the pool, refines the description there. The error wraps [ErrNoKey] if k cannot be a
// key; the cluster then waits for more.
func (p *Pool) Propose(id uint64, k template.Key, base *template.Template, sensitive string, now time.Time) error {
	c := p.cluster(id)
	if c == nil || !c.ripe(p.cfg, now) {
		return fmt.Errorf("%w: it has cooled down, or has a key", ErrNoKey)
	}
	about := p.describe(c, now)
	k, err := checkCandidate(k, about)
	if err != nil {
		return err
	}
	if sensitive == "" && p.cfg.Approve == ApproveAll {
		sensitive = "every change waits for an operator"
	}
	if there := likeNamed(base, k.Name); there != nil {
		return p.refineBase(c, there, about, sensitive, now)
	}
	if there := p.life(k.Name, c.Owner); there != nil {
		c.Key = there.Key.Name
		if there.State.advertised() && sensitive == "" && there.Owner == c.Owner {
			there.Key.Description = refined(there.Key, about)
			p.move(there, there.State, KindRefined, "clients ask for it in other words", now)
		}
		return nil
	}
	l := &life{Key: k, Owner: c.Owner, Cluster: c.ID}
	if err := p.admit(l, base); err != nil {
		return err
	}
	c.Key = k.Name
	p.doc.Lives = append(p.doc.Lives, l)
	p.begin(l, sensitive, now)
	return nil
}

// admit reports whether there is room for a further key. Keys that have retired make room.
func (p *Pool) admit(l *life, base *template.Template) error {
	if at := slices.IndexFunc(p.doc.Lives, func(x *life) bool { return x.State == Retired }); at >= 0 && len(p.doc.Lives) >= maxLives*3/4 {
		p.doc.Lives = slices.Delete(p.doc.Lives, at, at+1)
	}
	all, own := 0, 0
	for _, x := range p.doc.Lives {
		if x.Owner == "" {
			all++
		} else if x.Owner == l.Owner && x.State != Rejected && x.State != Retired {
			own++
		}
	}
	switch {
	case len(p.doc.Lives) >= maxLives:
		return fmt.Errorf("%w: the pool has %d keys, in all states", ErrNoKey, maxLives)
	case l.Owner == "" && all >= maxLives*3/4: // clients' own keys take no place of all
		return fmt.Errorf("%w: the pool has %d keys of all clients, in all states", ErrNoKey, all)
	case l.Owner != "" && own >= p.cfg.MaxPersonal:
		return fmt.Errorf("%w: the client has %d keys of its own", ErrNoKey, own)
	case len(base.Keys)+p.cfg.MaxKeys > template.MaxKeys:
		return fmt.Errorf("%w: the template has %d keys, at most %d are possible", ErrNoKey, len(base.Keys), template.MaxKeys)
	}
	return nil
}

// refineBase proposes a better description of a key of the template.
func (p *Pool) refineBase(c *cluster, base *template.Key, about Cluster, sensitive string, now time.Time) error {
	c.Key = base.Name
	text := refined(*base, about)
	if base.Name == template.Other || text == base.Description || c.Owner != "" || p.life(base.Name, "") != nil || len(p.doc.Lives) >= maxLives {
		return nil
	}
	k := *base
	k.Description, k.Descriptions = text, nil
	l := &life{Key: k, Refines: true, Cluster: c.ID}
	p.doc.Lives = append(p.doc.Lives, l)
	if sensitive != "" {
		p.move(l, Pending, KindProposed, sensitive, now)
	} else {
		p.move(l, Stable, KindRefined, "clients ask for it in other words", now)
	}
	return nil
}

// begin decides what a new, or an approved, key is first.
func (p *Pool) begin(l *life, sensitive string, now time.Time) {
	switch {
	case sensitive != "" && l.Approved == "":
		p.move(l, Pending, KindProposed, sensitive, now)
	case l.Refines:
		p.move(l, Stable, KindRefined, "approved", now)
	case p.full(l.Owner):
		p.move(l, Queued, KindQueued, "as many keys are on trial as may be", now)
	default:
		p.move(l, Experimental, KindTrial, "", now)
	}
}

// full reports whether one more key on trial would be too many: for any client, if it is
// for all, or for its owner.
func (p *Pool) full(owner string) bool {
	trials, keys, own := 0, 0, map[string]int{}
	for _, l := range p.doc.Lives {
		switch {
		case l.Refines:
		case l.Owner != "" && l.State == Experimental:
			own[l.Owner]++
		case l.Owner == "" && l.State.advertised():
			keys++
			if l.State == Experimental {
				trials++
			}
		}
	}
	if owner != "" {
		return trials+own[owner] >= p.cfg.MaxTrials
	}
	most := 0
	for _, n := range own {
		most = max(most, n)
	}
	return trials+most >= p.cfg.MaxTrials || keys >= p.cfg.MaxKeys
}

// life returns a key that a client would see: of all, or its own.
func (p *Pool) life(name, owner string) *life {
	for _, l := range p.doc.Lives {
		if sameName(l.Key.Name, name) && (l.Owner == "" || l.Owner == owner) {
			return l
		}
	}
	return nil
}

// likeNamed returns the key of a template that has a name or its plural; nil: none has.
func likeNamed(t *template.Template, name string) *template.Key {
	if k := t.Key(name); k != nil {
		return k
	}
	for i := range t.Keys {
		if sameName(t.Keys[i].Name, name) {
			return &t.Keys[i]
		}
	}
	return nil
}

// sameName reports whether two names are one, but for plurals and the order of their words.
func sameName(a, b string) bool {
	if a == b {
		return true
	}
	parts := func(name string) []string {
		words := strings.Split(name, "_")
		for i, w := range words {
			if len(w) > 3 && !strings.HasSuffix(w, "ss") {
				words[i] = strings.TrimSuffix(w, "s")
			}
		}
		slices.Sort(words)
		return words
	}
	return slices.Equal(parts(a), parts(b))
}

func (p *Pool) move(l *life, to State, kind, why string, now time.Time) {
	if l.State != to {
		l.State, l.Since = to, now.Unix()
	}
	l.Key.Experimental, l.Key.Deprecated = to == Experimental && !l.Refines, to == Deprecated && !l.Refines
	l.Why, l.Number = why, p.doc.Next
	p.renew(l, now)
	p.event(now, Event{Kind: kind, Key: l.Key.Name, Why: why, Client: l.Owner})
}

// by notes who brought about the latest event.
func (p *Pool) by(operator string) { p.doc.Events[len(p.doc.Events)-1].By = operator }

// renew sets when the patch expires: a client that does not ask again stops using the key.
func (p *Pool) renew(l *life, now time.Time) {
	switch l.State {
	case Deprecated:
		l.Expires = l.Since + p.cfg.Grace.seconds()
	default:
		l.Expires = now.Unix() + p.cfg.Window.seconds()
	}
}

// Advance moves the keys whose time has come (SDSI 6.2.3), and reports whether something
// has changed. Call it now and then.
func (p *Pool) Advance(now time.Time) bool {
	before := p.doc.Next
	for _, l := range slices.Clone(p.doc.Lives) {
		p.advance(l, now)
	}
	changed := p.doc.Next != before
	for _, l := range p.doc.Lives { // in the order of their proposals
		if l.State == Queued && !p.full(l.Owner) {
			p.move(l, Experimental, KindTrial, "", now)
			changed = true
		}
	}
	return p.cool(now) || changed
}

func (p *Pool) advance(l *life, now time.Time) {
	age := now.Unix() - l.Since
	switch l.State {
	case Experimental:
		if age >= p.cfg.Trial.seconds() {
			p.decide(l, now)
		}
	case Stable:
		if l.Refines {
			break
		}
		if m := l.metrics(p.cfg, now); age >= p.cfg.Window.seconds() {
			if why := p.unfit(m); why != "" {
				p.move(l, Deprecated, KindDeprecated, why, now)
			}
		}
	case Deprecated:
		if age >= p.cfg.Grace.seconds() {
			p.move(l, Withdrawn, KindWithdrawn, l.Why, now)
		}
	case Withdrawn:
		if age >= p.cfg.Compat.seconds() {
			p.move(l, Retired, KindEnded, l.Why, now)
		}
	case Pending, Queued:
		if age >= p.cfg.Window.seconds() {
			p.end(l, KindEnded, "nobody decided, or no place came free", now)
		}
	case Rejected, Retired:
		if age >= p.cfg.Retire.seconds() {
			p.end(l, "", "", now)
		}
	}
	if l.State.advertised() && l.State != Deprecated && l.Expires-now.Unix() < p.cfg.Window.seconds()/2 {
		p.renew(l, now)
		l.Number = p.next()
	}
}

// decide ends a trial, if the metrics say how.
func (p *Pool) decide(l *life, now time.Time) {
	m := l.metrics(p.cfg, now)
	switch why := p.unfit(m); {
	case why != "":
		p.move(l, Deprecated, KindDeprecated, why, now)
	case m.Payloads >= p.cfg.MinPayloads && m.UsageFrequency >= p.cfg.PromoteUsage && m.TypeCorrectness >= p.cfg.PromoteTypes &&
		(m.Judged >= p.cfg.MinJudged && m.AlignmentAccuracy >= p.cfg.PromoteAccuracy || m.Judged < p.cfg.MinJudged && l.Approved != ""):
		p.move(l, Stable, KindPromoted, fmt.Sprintf("usage %.0f %%, accuracy %s, types %.0f %%", 100*m.UsageFrequency, percent(m.AlignmentAccuracy), 100*m.TypeCorrectness), now)
	case now.Unix()-l.Since >= p.cfg.Window.seconds():
		p.move(l, Deprecated, KindDeprecated, "the trial came to no decision", now)
	}
}

func percent(ratio float64) string {
	if ratio < 0 {
		return "not judged"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}

// unfit says why the metrics call for a deprecation; "": they do not.
func (p *Pool) unfit(m Metrics) string {
	switch {
	case m.Payloads < p.cfg.MinPayloads:
		return ""
	case m.UsageFrequency < p.cfg.DeprecateUsage:
		return fmt.Sprintf("usage %.1f %%, below %g %%", 100*m.UsageFrequency, 100*p.cfg.DeprecateUsage)
	case m.Judged >= p.cfg.MinJudged && m.AlignmentAccuracy < p.cfg.DeprecateAccuracy:
		return fmt.Sprintf("accuracy %.0f %%, below %g %%", 100*m.AlignmentAccuracy, 100*p.cfg.DeprecateAccuracy)
	case m.TypeCorrectness >= 0 && m.TypeCorrectness < p.cfg.DeprecateTypes:
		return fmt.Sprintf("types %.0f %%, below %g %%", 100*m.TypeCorrectness, 100*p.cfg.DeprecateTypes)
	}
	return ""
}

// end removes a key and its cluster, so that a new demand has to begin anew.
func (p *Pool) end(l *life, kind, why string, now time.Time) {
	p.doc.Lives = slices.DeleteFunc(p.doc.Lives, func(x *life) bool { return x == l })
	p.doc.Clusters = slices.DeleteFunc(p.doc.Clusters, func(c *cluster) bool { return c.Key == l.Key.Name && c.Owner == l.Owner })
	if kind != "" {
		p.event(now, Event{Kind: kind, Key: l.Key.Name, Why: why, Client: l.Owner})
	}
}

// cool removes the clusters that nobody feeds any more.
func (p *Pool) cool(now time.Time) bool {
	before := len(p.doc.Clusters)
	p.doc.Clusters = slices.DeleteFunc(p.doc.Clusters, func(c *cluster) bool {
		last := c.At
		if n := len(c.Votes); n > 0 {
			last = max(last, c.Votes[n-1].At)
		}
		return c.Key == "" && now.Unix()-last > max(p.cfg.Recent.seconds(), p.cfg.Window.seconds())
	})
	return len(p.doc.Clusters) != before
}

// Approve lets a key that waits for an operator, or for a place, begin its trial. Of a key on
// trial it says that the operator has looked at its values: it can be promoted although no
// values were judged.
func (p *Pool) Approve(key, by string, now time.Time) error {
	l, err := p.find(key, Pending, Queued, Experimental)
	if err != nil {
		return err
	}
	switch l.State {
	case Pending, Queued:
		l.Approved = by
		p.begin(l, "", now)
	case Experimental:
		l.Approved = by
		p.move(l, Experimental, KindTrial, "an operator has looked at its values", now)
	default:
		return fmt.Errorf("the key %s is %s: only what is pending, queued or experimental can be approved", key, l.State)
	}
	p.by(by)
	return nil
}

// Reject ends a key's way: one that clients know of is deprecated, and the others are
// remembered, so that they are not proposed again for [Config.Retire].
func (p *Pool) Reject(key, by, why string, now time.Time) error {
	l, err := p.find(key, Pending, Queued, Experimental, Stable)
	if err != nil {
		return err
	}
	to := Rejected
	switch l.State {
	case Experimental, Stable:
		if !l.Refines {
			to = Deprecated
		}
	case Pending, Queued:
	default:
		return fmt.Errorf("the key %s is %s already", key, l.State)
	}
	p.move(l, to, KindRejected, why, now)
	p.by(by)
	return nil
}

// ErrUnknownKey is wrapped by the error about a key that the pool does not have.
var ErrUnknownKey = fmt.Errorf("the pool has no such key")

// find returns a key by its name: of several clients' own keys one in one of the states.
func (p *Pool) find(key string, states ...State) (found *life, err error) {
	for _, l := range p.doc.Lives {
		if l.Key.Name == key && (found == nil || slices.Contains(states, l.State) && !slices.Contains(states, found.State)) {
			found = l
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, key)
	}
	return found, nil
}

// A Key is a key of the pool, for a person.
type Key struct {
	template.Key
	State    State     `json:"state"`
	Refines  bool      `json:"refines,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why,omitempty"`
	Approved string    `json:"approved,omitempty"`
	Metrics  Metrics   `json:"metrics"`
}

// Keys returns the keys in all states, in the order of their proposals.
func (p *Pool) Keys(now time.Time) []Key {
	out := make([]Key, 0, len(p.doc.Lives))
	for _, l := range p.doc.Lives {
		out = append(out, Key{Key: l.Key, State: l.State, Refines: l.Refines, Owner: l.Owner, Since: time.Unix(l.Since, 0).UTC(), Why: l.Why, Approved: l.Approved, Metrics: l.metrics(p.cfg, now)})
	}
	return out
}

var epoch = time.Unix(0, 0).UTC()

// Encode returns the pool as it is stored, at most [Config.MaxBytes] long: clusters are
// removed until it fits.
func (p *Pool) Encode(now time.Time) ([]byte, error) {
	for {
		raw, err := json.Marshal(&p.doc)
		if err != nil || len(raw) <= p.cfg.MaxBytes || len(p.doc.Clusters) == 0 {
			if err == nil && len(raw) > p.cfg.MaxBytes {
				err = fmt.Errorf("the pool has %d bytes without any cluster, at most %d are stored", len(raw), p.cfg.MaxBytes)
			}
			return raw, err
		}
		for n := max(1, len(p.doc.Clusters)*(len(raw)-p.cfg.MaxBytes)/len(raw)); n > 0 && len(p.doc.Clusters) > 0; n-- {
			p.evict(now, nil)
		}
	}
}
