package template

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// ErrConflict is wrapped by the error of [Template.Apply] and [Merge] if two patches define the
// same key, or describe it, in different ways.
var ErrConflict = errors.New("patches conflict")

// Apply returns the template with patches applied. t is not changed. New keys follow the template's
// keys, ordered by their patches' timestamps and ids, before a final "other"; the order of the
// arguments has no effect. schema_id does not change: a patch belongs to a version and makes no new
// one.
//
// Apply also uses expired patches; see [Patch.Expired]. It refuses an invalid patch, a patch of
// another template, a new key that the template has, and a refinement of a key that neither the
// template nor a patch has. Two patches may contain the same; if they disagree, the error is
// [ErrConflict].
func (t *Template) Apply(patches ...Patch) (*Template, error) {
	c := t.clone()
	if len(patches) == 0 {
		return c, nil
	}
	all, err := merge(patches)
	if err != nil {
		return nil, err
	}
	var r report
	if all.ParentSchemaID != t.SchemaID {
		r.add("/parent_schema_id", "parent", "apply it to the template that it was made for",
			"the patch is for %s and the template is %s", quoted(all.ParentSchemaID), quoted(t.SchemaID))
	}
	for i, k := range all.NewKeys { // all has its own list
		all.NewKeys[i].Learned = true
		if t.Key(k.Name) != nil {
			r.add(at("/new_keys", k.Name), "additive", "refine the key, or choose another name", "the template has the key %s already", quoted(k.Name))
		}
	}
	if len(t.Keys)+len(all.NewKeys) > MaxKeys {
		r.add("/new_keys", "limit", "withdraw keys that are not used", "the template would have more than %d keys", MaxKeys)
	}
	end := len(c.Keys)
	if end > 0 && c.Keys[end-1].Name == Other {
		end--
	}
	c.Keys = slices.Insert(c.Keys, end, all.NewKeys...)
	for _, refined := range all.ModifiedKeys {
		if k := c.Key(refined.Name); k == nil {
			r.add(at("/modified_keys", refined.Name), "unknown", "add it as a new key", "there is no key %s to describe", quoted(refined.Name))
		} else {
			k.Description = refined.Description
		}
	}
	if err := r.err("patch"); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("the template with its patches: %w", err)
	}
	return c.clone(), nil
}

// Merge returns one patch with the content of all patches, the latest timestamp, the earliest
// expiry and, if there are several, an id made from theirs. The order of the arguments has no
// effect. It refuses invalid patches and patches of different templates; the error is [ErrConflict]
// if two of them disagree.
func Merge(patches ...Patch) (Patch, error) { return merge(patches) }

func merge(patches []Patch) (Patch, error) {
	if len(patches) == 0 {
		return Patch{}, errors.New("no patches to merge")
	}
	var problems []error
	for i := range patches {
		if err := patches[i].Validate(); err != nil {
			problems = append(problems, fmt.Errorf("patch %s: %w", quoted(patches[i].PatchID), err))
		}
	}
	if len(problems) > 0 {
		return Patch{}, errors.Join(problems...)
	}
	patches = inOrder(patches)
	if len(patches) == 1 {
		return patches[0].clone(), nil
	}
	m := merging{keys: map[string]Key{}, texts: map[string]string{}}
	for i := range patches {
		m.add(&patches[i])
	}
	if len(m.problems) > 0 {
		return Patch{}, errors.Join(m.problems...)
	}
	m.fold()
	if err := m.out.Validate(); err != nil {
		return Patch{}, fmt.Errorf("the merged patch: %w", err)
	}
	return m.out, nil
}

// inOrder sorts patches by timestamp, id and content, and removes duplicates.
func inOrder(patches []Patch) []Patch {
	type hashed struct {
		Patch
		hash string
	}
	all := make([]hashed, len(patches))
	for i, p := range patches {
		all[i] = hashed{p, p.Hash()}
	}
	sorted.By(all, func(a, b hashed) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), strings.Compare(a.PatchID, b.PatchID), strings.Compare(a.hash, b.hash))
	})
	all = slices.CompactFunc(all, func(a, b hashed) bool { return a.hash == b.hash })
	out := make([]Patch, len(all))
	for i, p := range all {
		out[i] = p.Patch
	}
	return out
}

// A merging is a merge of patches.
type merging struct {
	out      Patch
	keys     map[string]Key
	texts    map[string]string // refinements by key
	ids      []string
	problems []error
}

func (m *merging) add(p *Patch) {
	if len(m.ids) == 0 {
		m.out.ParentSchemaID, m.out.Timestamp, m.out.Expires = p.ParentSchemaID, p.Timestamp, p.Expires
	}
	if p.ParentSchemaID != m.out.ParentSchemaID {
		m.problems = append(m.problems, fmt.Errorf("patch %s is for %s, and others are for %s", quoted(p.PatchID), quoted(p.ParentSchemaID), quoted(m.out.ParentSchemaID)))
	}
	m.ids = append(m.ids, p.Hash())
	m.out.PatchID = "merged-" + strings.TrimPrefix(hashOf([]byte(strings.Join(m.ids, "\n"))), "sha256:")[:24]
	m.out.Timestamp = slices.MaxFunc([]time.Time{p.Timestamp, m.out.Timestamp}, time.Time.Compare)
	m.out.Expires = slices.MinFunc([]time.Time{p.Expires, m.out.Expires}, time.Time.Compare)
	for _, k := range p.clone().NewKeys {
		if before, ok := m.keys[k.Name]; !ok {
			m.keys[k.Name] = k
			m.out.NewKeys = append(m.out.NewKeys, k)
		} else if !same(before, k) {
			m.conflict(p, k.Name, "defines")
		}
	}
	for _, k := range p.ModifiedKeys {
		if before, ok := m.texts[k.Name]; !ok {
			m.texts[k.Name] = k.Description
			m.out.ModifiedKeys = append(m.out.ModifiedKeys, k)
		} else if before != k.Description {
			m.conflict(p, k.Name, "describes")
		}
	}
}

// fold moves refinements of new keys into these keys, because a patch must not have a key twice.
func (m *merging) fold() {
	for i := range m.out.NewKeys {
		if text, ok := m.texts[m.out.NewKeys[i].Name]; ok {
			m.out.NewKeys[i].Description = text
		}
	}
	m.out.ModifiedKeys = slices.DeleteFunc(m.out.ModifiedKeys, func(k Refinement) bool {
		_, isNew := m.keys[k.Name]
		return isNew
	})
}

func (m *merging) conflict(p *Patch, name, verb string) {
	m.problems = append(m.problems, fmt.Errorf("%w: patch %s %s the key %s differently from another patch", ErrConflict, quoted(p.PatchID), verb, name))
}

// same reports whether two key definitions mean the same.
func same(a, b Key) bool {
	x, errX := json.Marshal(normal(a))
	y, errY := json.Marshal(normal(b))
	return errX == nil && errY == nil && digest(x) == digest(y)
}

// normal removes a default of null.
func normal(k Key) Key {
	if isNull(k.Default) {
		k.Default = nil
	}
	return k
}

// clone copies the lists and the keys' maps.
func (p *Patch) clone() Patch {
	c := *p
	c.NewKeys = (&Template{Keys: p.NewKeys}).clone().Keys
	c.ModifiedKeys = slices.Clone(p.ModifiedKeys)
	return c
}
