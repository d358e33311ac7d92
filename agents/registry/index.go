package registry

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Card is an entry without its document, as an index keeps it.
type Card struct {
	Key      string
	Revision uint64
	Time     time.Time // when the registry stored it
	Entity   string
	AgentID  string
	Aliases  []string
	Name     string
	Version  string
	Skills   []string
}

// CardOf returns the card of an entry.
func CardOf(e *Entry) Card {
	r := &e.Record
	return Card{e.Key, e.Revision, e.Time, r.Entity, r.AgentID, r.Aliases, r.Name, r.Version, r.Skills}
}

// Index finds registrations by their names. The zero value is empty. It is not
// safe for concurrent use.
type Index struct{ cards map[string]Card }

// Set adds an entry. An entry that was removed or is invalid is deleted from
// the index.
func (x *Index) Set(e *Entry) {
	if e.Removed || e.Err != nil {
		delete(x.cards, e.Key)
		return
	}
	if x.cards == nil {
		x.cards = map[string]Card{}
	}
	x.cards[e.Key] = CardOf(e)
}

// All returns the cards, in the order of their keys.
func (x *Index) All() []Card {
	out := slices.AppendSeq(make([]Card, 0, len(x.cards)), maps.Values(x.cards))
	sorted.By(out, func(a, b Card) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// Find returns the registration that a name stands for: an agent_id, an entity,
// an alias, or an entity without its type, in this order.
func (x *Index) Find(name string) (Card, bool) {
	if c, ok := x.cards[KeyOf(name, "")]; ok && name != "" {
		return c, true
	}
	for _, means := range []func(*Card) bool{
		func(c *Card) bool { return c.Entity == name },
		func(c *Card) bool { return slices.Contains(c.Aliases, name) },
		func(c *Card) bool { _, short, _ := strings.Cut(c.Entity, "."); return short == name },
	} {
		if c, ok := x.first(means); ok {
			return c, true
		}
	}
	return Card{}, false
}

// Entity returns the registration of an entity.
func (x *Index) Entity(entity string) (Card, bool) {
	return x.first(func(c *Card) bool { return c.Entity == entity })
}

// first returns the earliest written of the cards for which f is true.
func (x *Index) first(f func(*Card) bool) (found Card, ok bool) {
	for _, c := range x.cards {
		if f(&c) && (!ok || c.Revision < found.Revision) {
			found, ok = c, true
		}
	}
	return found, ok
}

// Taken returns the registration of another agent that has the record's entity,
// or one of its aliases.
func (x *Index) Taken(r *Record) (Card, bool) {
	return x.first(func(c *Card) bool { return c.rivals(r) })
}

// rivals reports whether c belongs to another agent and has the record's entity, or one of its
// aliases.
func (c *Card) rivals(r *Record) bool {
	return c.Key != r.Key() && (c.Entity == r.Entity || slices.ContainsFunc(r.Aliases, func(a string) bool { return slices.Contains(c.Aliases, a) }))
}

// Skilled returns the registrations with a skill, in the order of their
// entities; see [FoldSkill].
func (x *Index) Skilled(skill string) []Card {
	want := FoldSkill(skill)
	var out []Card
	for _, c := range x.cards {
		if slices.ContainsFunc(c.Skills, func(s string) bool { return FoldSkill(s) == want }) {
			out = append(out, c)
		}
	}
	sorted.By(out, func(a, b Card) int {
		return cmp.Or(strings.Compare(a.Entity, b.Entity), cmp.Compare(a.Revision, b.Revision))
	})
	return out
}

// SkillOf returns the skill of a reference skill:NAME, folded as by [FoldSkill]. name is the
// part after "skill:", which may be percent-encoded; the result is "" if it names no skill.
func SkillOf(name string) string {
	text, err := url.PathUnescape(strings.TrimPrefix(name, "//"))
	if err != nil {
		return ""
	}
	return FoldSkill(text)
}

// FoldSkill normalises a skill for comparison: small letters and digits, with
// one _ for anything between. "Go review", "go-review" and "go_review" are the
// same skill.
func FoldSkill(skill string) string {
	var b strings.Builder
	gap := false
	for _, r := range skill {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			gap = true
			continue
		}
		if gap && b.Len() > 0 {
			b.WriteByte('_')
		}
		gap = false
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func byRevision(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) }
