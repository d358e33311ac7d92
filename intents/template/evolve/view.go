package evolve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// A View is the part of a pool that clients get. It is immutable and safe for concurrent use. The
// zero View is that of a pool that was not read yet.
type View struct {
	read       bool
	lives      []life // without counts
	generation uint64
}

// View returns the current view.
func (p *Pool) View() *View {
	v := &View{read: true}
	for _, l := range p.doc.Lives {
		v.generation = max(v.generation, l.Number)
		if l.State.accepted() {
			v.lives = append(v.lives, life{Key: l.Key, Refines: l.Refines, Owner: l.Owner, State: l.State, Since: l.Since, Expires: l.Expires, Number: l.Number})
		}
	}
	v.generation = v.generation<<10 | uint64(len(p.doc.Lives))
	return v
}

// Generation returns a number that differs between two views of the same pool if clients get
// something else. Views of different pools may have the same number.
func (v *View) Generation() uint64 { return v.generation }

// Read reports whether the pool was read. If not, it is not known which keys it has.
func (v *View) Read() bool { return v.read }

// Empty reports whether the view has no keys, neither advertised nor withdrawn ones.
func (v *View) Empty() bool { return len(v.lives) == 0 }

// Own reports whether a client has keys of its own.
func (v *View) Own(client string) bool {
	return client != "" && slices.ContainsFunc(v.lives, func(l life) bool { return l.Owner == client })
}

// Patches returns the patches of a template for a client (SDSI 6.2.2), with the advertised keys for
// all and the client's own. It leaves out keys that the template itself has, and patches that
// expire at now or before; with the zero time it leaves out only those that expire when they begin.
func (v *View) Patches(t *template.Template, client string, now time.Time) []template.Patch {
	var out []template.Patch
	room := template.MaxKeys - len(t.Keys)
	for _, l := range v.visible(client) {
		if !l.State.advertised() || max(now.Unix(), l.Since) >= l.Expires { // clocks differ
			continue
		}
		patch := template.Patch{PatchID: fmt.Sprintf("%s.%d", l.Key.Name, l.Number), ParentSchemaID: t.SchemaID,
			Timestamp: time.Unix(l.Since, 0).UTC(), Expires: time.Unix(l.Expires, 0).UTC()}
		switch there := t.Key(l.Key.Name); {
		case l.refines(t):
			patch.ModifiedKeys = []template.Refinement{{Name: l.Key.Name, Description: l.Key.Description}}
		case !l.Refines && there == nil && room > 0:
			room--
			patch.NewKeys = []template.Key{l.Key}
		default:
			continue
		}
		out = append(out, patch)
	}
	return out
}

// refines reports whether it improves the description that a key of a template has: it adds to it.
func (l *life) refines(t *template.Template) bool {
	there := t.Key(l.Key.Name)
	return l.Refines && there != nil && l.Key.Description != there.Description && strings.HasPrefix(l.Key.Description, there.Description)
}

// Withdrawn returns the withdrawn keys that payloads of a client may still have (SDSI 6.2.3).
func (v *View) Withdrawn(client string) []template.Key {
	var out []template.Key
	for _, l := range v.visible(client) {
		if l.State == Withdrawn {
			out = append(out, l.Key)
		}
	}
	return out
}

// Key returns a key of the pool that a client may send, and its state; "" if there is none.
func (v *View) Key(name, client string) (template.Key, State) {
	for _, l := range v.visible(client) {
		if !l.Refines && l.Key.Name == name {
			return l.Key, l.State
		}
	}
	return template.Key{}, ""
}

// visible returns the keys for all and the own keys of one client. If two have the same name, it
// returns the one for all, unless the client's own one hides it.
func (v *View) visible(client string) (out []life) {
	for _, l := range v.lives {
		if l.Owner == "" && !slices.ContainsFunc(v.lives, func(own life) bool { return own.hides(&l, client) }) {
			out = append(out, l)
		}
	}
	for _, l := range v.lives {
		if l.Owner != "" && l.Owner == client && !slices.ContainsFunc(out, func(x life) bool { return x.Key.Name == l.Key.Name }) {
			out = append(out, l)
		}
	}
	return out
}
