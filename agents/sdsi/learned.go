package sdsi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh"
)

// A Learner collects the texts of the key "other", and provides the keys that are learned from them
// (SDSI 6.2). Package learn implements it. Implementations must be safe for concurrent use.
type Learner interface {
	// View returns the learned keys for a client in a scenario, the cohort of the view, and the
	// client's name in the pool. A nil view means that nothing can be learned, the zero one that the
	// keys are not known yet.
	View(ctx context.Context, scenario string, from Sender) (v *evolve.View, cohort, client string)
	// Observe records one payload. done is closed when the payload is stored, or when the learner
	// stops waiting for that; nil: there is nothing to wait for.
	Observe(scenario string, from Sender, seen Seen) (done <-chan struct{})
	// Told records that a client has received keys.
	Told(scenario string, from Sender, keys []string)
}

// A Sender is the sender of a payload.
type Sender struct {
	Entity   string
	Verified bool // by a signature; otherwise Entity is only the sender's claim
}

func senderOf(t *mesh.Task) Sender { return Sender{t.Envelope.From, t.KeyID != ""} }

// Seen is the part of one payload that a learner gets.
type Seen struct {
	ID     string   // of the task
	Others []string // the texts of "other"
	Keys   []evolve.Use
	// Refused reports that the payload was not accepted, or that no learned keys were known, so that
	// it is not known which of them it has: it does not count for the usage of keys.
	Refused bool
	// Values and Fragments have the payload's values of learned keys that clients get, and the words
	// from which the client has made them.
	Values    map[string]json.RawMessage
	Fragments map[string]string
}

// grown identifies the form of a template with patches.
type grown struct {
	schemaID   string
	cohort     string // each pool has its own generations
	generation uint64
	client     string // "" for a client without keys of its own
	unread     bool   // the keys of the pool are not known
}

// maxForms bounds the forms that a desk keeps.
const maxForms = 128

// learned is what the desk has learned about a scenario, as one client sees it.
type learned struct {
	desk   *Desk
	v      *version
	from   Sender
	view   *evolve.View
	cohort string
	client string
}

func (d *Desk) learned(ctx context.Context, v *version, from Sender) learned {
	l := learned{desk: d, v: v, from: from}
	if d.learner != nil {
		l.view, l.cohort, l.client = d.learner.View(ctx, v.Scenario, from)
	}
	return l
}

// patches returns the patches to send with a template.
func (l *learned) patches(t *template.Template) []template.Patch {
	if l.view == nil {
		return nil
	}
	return l.view.Patches(t, l.client, time.Now())
}

// recordSent records that the client has received patches.
func (l *learned) recordSent(patches []template.Patch) {
	if len(patches) == 0 {
		return
	}
	var keys []string
	for _, p := range patches {
		for _, k := range p.NewKeys {
			keys = append(keys, k.Name)
		}
	}
	l.desk.learner.Told(l.v.Scenario, l.from, keys)
}

// form returns the form of the version with its patches and withdrawn keys. It includes expired
// patches: their keys are accepted until the pool withdraws them. While the keys are not known, no
// key is refused: it may be a learned one (SDSI 6.2.3).
func (l *learned) form() *template.Form {
	d := l.desk
	unread := d.learner != nil && (l.view == nil || !l.view.Read())
	switch {
	case unread && d.cfg.Unknown == template.UnknownRefused:
		return l.cached(grown{schemaID: l.v.SchemaID, unread: true}, func() (*template.Form, error) {
			return template.NewForm(l.v.Template, template.FormOptions{Unknown: template.UnknownToOther})
		})
	case l.view == nil || l.view.Empty():
		return l.v.form
	}
	id := grown{schemaID: l.v.SchemaID, cohort: l.cohort, generation: l.view.Generation()}
	if l.view.Own(l.client) {
		id.client = l.client
	}
	return l.cached(id, func() (*template.Form, error) {
		return template.NewForm(l.patched(), template.FormOptions{Unknown: d.cfg.Unknown, Withdrawn: l.view.Withdrawn(l.client)})
	})
}

// cached returns the form of this id, which it makes if there is none.
func (l *learned) cached(id grown, makes func() (*template.Form, error)) *template.Form {
	d := l.desk
	d.mu.Lock()
	f := d.forms[id]
	d.mu.Unlock()
	if f != nil {
		return f
	}
	f, err := makes()
	if err != nil { // serve clients with the template itself
		l.unfit(err)
		f = l.v.form
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.forms) >= maxForms {
		clear(d.forms)
	}
	d.forms[id] = f
	return f
}

// patched returns the template with its patches.
func (l *learned) patched() *template.Template {
	return withPatches(l.v.Template, l.view.Patches(l.v.Template, l.client, time.Time{}), func(p template.Patch, err error) {
		l.unfit(fmt.Errorf("patch %s: %w", p.PatchID, err))
	})
}

// withPatches returns a template with patches, as many as one patch may have keys. A patch that
// does not apply is left out, by the agent and by its clients, without effect on the others.
func withPatches(t *template.Template, patches []template.Patch, left func(template.Patch, error)) *template.Template {
	for some := range slices.Chunk(patches, template.MaxPatchKeys) {
		if next, err := t.Apply(some...); err == nil {
			t = next
			continue
		}
		for _, p := range some {
			next, err := t.Apply(p)
			if err != nil {
				left(p, err)
				continue
			}
			t = next
		}
	}
	return t
}

func (l *learned) unfit(err error) {
	l.desk.log.Error("what was learned does not fit the template", "scenario", l.v.Scenario, "schema_id", l.v.SchemaID, "err", err)
}

// observe passes a checked payload to the learner; err is the result of the check.
func (l *learned) observe(id string, sent *template.Payload, filled *template.Filled, err error) (done <-chan struct{}) {
	if l.view == nil || sent.NoUpdates {
		return nil
	}
	seen := Seen{ID: id, Refused: l.view.Empty()}
	var refused *template.PayloadError
	wrongType := map[string]bool{}
	if errors.As(err, &refused) {
		seen.Refused = true
		for _, p := range refused.Problems {
			wrongType[p.Key] = true
		}
	} else {
		seen.Others = filled.Other
	}
	var values map[string]json.RawMessage
	if !l.view.Empty() || !l.view.Read() {
		_ = json.Unmarshal(sent.Payload, &values) // Check has read it
	}
	if len(seen.Others) > 0 && !l.view.Read() {
		// The others may be values of learned keys, which are not to be stored.
		seen.Others = template.OtherTexts(values[template.Other])
	}
	if !l.view.Empty() {
		for name, value := range values {
			k, state := l.view.Key(name, l.client)
			if state == "" || string(value) == "null" && k.Type != template.Null { // null counts as absent
				continue
			}
			seen.Keys = append(seen.Keys, evolve.Use{Key: name, WrongType: wrongType[name]})
			if fragment := sent.Fragments[name]; fragment != "" && state != evolve.Withdrawn && !wrongType[name] && !seen.Refused {
				if seen.Fragments == nil {
					seen.Values, seen.Fragments = map[string]json.RawMessage{}, map[string]string{}
				}
				seen.Values[name], seen.Fragments[name] = value, fragment
			}
		}
	}
	if len(seen.Keys)+len(seen.Others) == 0 && (l.view.Empty() || seen.Refused) {
		return nil
	}
	return l.desk.learner.Observe(l.v.Scenario, l.from, seen)
}

// suggest adds a patch with the learned keys to a result (SDSI 6.2.2), for a client that has put
// something into "other". It returns the result unchanged if that is not possible.
func (l *learned) suggest(sent *template.Payload, filled *template.Filled, result json.RawMessage) json.RawMessage {
	if l.view == nil || sent.NoUpdates || len(filled.Other) == 0 || len(result) < 2 || result[0] != '{' {
		return result
	}
	patches := news(l.patches(l.v.Template), sent)
	if len(patches) == 0 {
		return result
	}
	// If there are too many keys for one patch, it has the newest ones; the client gets the others
	// with the template.
	patches = patches[max(0, len(patches)-template.MaxPatchKeys):]
	all, err := template.Merge(patches...)
	if err != nil {
		return result
	}
	raw, err := json.Marshal(all)
	if err != nil || len(result)+len(raw) > maxWithSuggestion {
		return result
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil || members[template.SuggestionMember] != nil {
		return result // the agent has added a suggestion of its own
	}
	separator := ","
	if len(members) == 0 {
		separator = ""
	}
	end := len(result) - 1
	for result[end] != '}' { // white space
		end--
	}
	out := append([]byte(nil), result[:end]...)
	out = append(out, separator+`"`+template.SuggestionMember+`":`...)
	out = append(append(out, raw...), '}')
	if l.desk.intents.Validate(l.v.handled, intents.Result, out) != nil { // the response schema has no room for it
		return result
	}
	l.recordSent(patches)
	return out
}

// news removes the patches of keys that the payload has, and of deprecated keys: a client gets
// these when it requests the template. A client that sends null for a key knows the key.
func news(patches []template.Patch, sent *template.Payload) []template.Patch {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(sent.Payload, &members) // Check has read it
	return slices.DeleteFunc(patches, func(p template.Patch) bool {
		return slices.ContainsFunc(p.NewKeys, func(k template.Key) bool { return k.Deprecated || members[k.Name] != nil })
	})
}

// maxWithSuggestion bounds, in bytes, a result with a suggestion, which must fit into one message.
const maxWithSuggestion = 512 << 10

// moveUnsupported moves the values of learned keys that the agent's own schema does not allow to the texts
// of "other".
func (l *learned) moveUnsupported(values json.RawMessage, others []string) (json.RawMessage, []string) {
	if l.view == nil || l.view.Empty() || !l.v.held {
		return values, others
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(values, &members) != nil {
		return values, others
	}
	var names []string
	for name := range members {
		if _, state := l.view.Key(name, l.client); state != "" && l.v.Key(name) == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 || l.desk.misfit(values) == nil {
		return values, others
	}
	out := l.noRoom(values, names)
	slices.Sort(out)
	for i, name := range out {
		if len(others) >= template.MaxFragments {
			l.desk.log.Info("values of learned keys are left out: the agent's schema does not allow them, and other is full", "schema_id", l.v.SchemaID, "keys", out[i:])
			break
		}
		others = append(others, textOfKey(name, members[name])...)
	}
	return template.Without(values, out...), others
}

// textOfKey returns a key's value as a text of "other", cleaned and bounded like the others (SDSI 7).
func textOfKey(name string, value json.RawMessage) []string {
	text := string(value)
	if value[0] == '"' {
		_ = json.Unmarshal(value, &text) // Check has read it
	}
	quoted, _ := json.Marshal(name + ": " + text) // a string always marshals
	return template.OtherTexts(quoted)
}

// maxLooks bounds how often noRoom validates values. Each validation reports some 20 names.
const maxLooks = 8

// noRoom returns the learned keys that must be removed so that the values fit the agent's own
// schema: the names in the schema's problems, or all names if that is not enough.
func (l *learned) noRoom(values json.RawMessage, names []string) (out []string) {
	for range maxLooks {
		misfit := l.desk.misfit(template.Without(values, append(out, template.Other)...))
		if misfit == nil {
			return out
		}
		before := len(out)
		for _, p := range misfit.Problems {
			name, _, _ := strings.Cut(strings.TrimPrefix(p.Pointer, "/"), "/")
			if slices.Contains(names, name) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		if len(out) == before {
			break
		}
	}
	return names
}

// values returns the learned keys that an input has.
func (l *learned) values(input json.RawMessage) []LearnedValue {
	if l.view == nil || l.view.Empty() {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(input, &members) != nil {
		return nil
	}
	var out []LearnedValue
	for _, k := range l.form().Template().Keys {
		if value := members[k.Name]; value != nil {
			if _, state := l.view.Key(k.Name, l.client); state != "" && l.v.Key(k.Name) == nil {
				out = append(out, LearnedValue{k, value})
			}
		}
	}
	return out
}
