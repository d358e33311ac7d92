package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Registrar registers documents, and keeps what a registration has that its
// document has not: an entity of its own, and aliases. It is not safe for
// concurrent use.
type Registrar struct {
	// Replace removes other registrations that have the entity or an alias of
	// a new one. Default: the new one is refused with a [TakenError].
	Replace bool
	// Dry writes nothing.
	Dry bool

	reg     Registry
	index   Index
	entries map[string]Entry // by key
}

// NewRegistrar returns a registrar for a registry with these entries.
func NewRegistrar(reg Registry, all []Entry) *Registrar {
	r := &Registrar{reg: reg, entries: map[string]Entry{}}
	for _, e := range all {
		r.entries[e.Key] = e
		r.index.Set(&e)
	}
	return r
}

// A TakenError says that another registration has an entity or an alias.
type TakenError struct {
	What string // the entity, or: the alias "x"
	Key  string // of the other registration
}

func (e *TakenError) Error() string {
	return e.What + " is registered already, of another definition: " + e.Key
}

// Record makes the record of a document. The entity and the aliases of an
// existing record stay, unless as names another entity. by is the registering
// entity.
func (r *Registrar) Record(doc *aaif.Document, as, by string) (Record, error) {
	rec, err := New(doc, Options{Entity: as, By: by})
	before, known := r.entries[KeyOf(doc.Definition().AgentID, as)]
	if doc.Definition().AgentID == "" && err == nil {
		before, known = r.entries[rec.Key()]
	}
	if !known || before.Err != nil {
		return rec, err
	}
	if as == "" {
		if made, _ := aaif.EntityName(before.Record.Name); made != before.Record.Entity {
			rec, err = New(doc, Options{Entity: before.Record.Entity, By: by})
		}
	}
	rec.Aliases = before.Record.Aliases
	return rec, err
}

// Free returns a [TakenError] if another registration has the record's entity
// or one of its aliases, and Replace is not set.
func (r *Registrar) Free(rec *Record) error {
	other, taken := r.index.Taken(rec)
	if !taken || r.Replace {
		return nil
	}
	what := rec.Entity
	if other.Entity != rec.Entity {
		i := slices.IndexFunc(rec.Aliases, func(a string) bool { return slices.Contains(other.Aliases, a) })
		what = fmt.Sprintf("the alias %q", rec.Aliases[i])
	}
	return &TakenError{what, other.Key}
}

// Registered is the result of [Registrar.Put].
type Registered struct {
	Outcome  string   // new, changed, unchanged
	Revision uint64   // 0 for a dry run that would change something
	Was      string   // the previous version, if it changed
	Replaced []string // the keys of the registrations that were removed for it
}

// Put registers a record, unless the same record is registered already. Then it removes the
// registrations that the record replaces; until they are removed, readers find these earlier ones.
// If Put fails in between, the next Put of the record removes the rest.
func (r *Registrar) Put(ctx context.Context, rec Record) (Registered, error) {
	key := rec.Key()
	out := Registered{Outcome: "new"}
	before, known := r.entries[key]
	switch {
	case known && before.Err == nil && before.Record.Same(&rec):
		out.Outcome, out.Revision = "unchanged", before.Revision
	case known:
		out.Outcome, out.Was = "changed", before.Record.Version
	}
	if out.Outcome != "unchanged" && !r.Dry {
		revision, err := r.reg.Put(ctx, rec, before.Revision)
		if err != nil {
			return out, err
		}
		out.Revision = revision
		e := Entry{Key: key, Revision: revision, Record: rec, Time: time.Now()}
		r.entries[key] = e
		r.index.Set(&e)
	}
	if !r.Replace {
		return out, nil
	}
	for _, other := range r.index.All() {
		if !other.rivals(&rec) {
			continue
		}
		if !r.Dry {
			if err := r.reg.Remove(ctx, other.Key, other.Revision); err != nil {
				return out, err
			}
			r.index.Set(&Entry{Key: other.Key, Removed: true})
		}
		out.Replaced = append(out.Replaced, other.Key)
	}
	return out, nil
}
