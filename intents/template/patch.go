package template

import (
	stdjson "encoding/json"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/envelope"
)

// MaxPatchKeys is the most new keys, and the most refinements, of one patch.
const MaxPatchKeys = 50

// MaxPatches is the most patches beside one template.
const MaxPatches = 200

// ParsePatch reads one patch (SDSI 6.2.2). Unlike [Parse] it refuses unknown members, unless their
// names begin with x-: a patch can only add optional keys and improve descriptions, so any other
// content is an error that must not be ignored. The error is an [*Error] with all problems.
func ParsePatch(raw []byte) (*Patch, error) {
	var r report
	p := r.parsePatch(raw)
	if err := r.err("patch"); err != nil {
		return nil, err
	}
	return p, nil
}

// Validate checks a patch that was made in Go by the rules of [ParsePatch]. The error is
// an [*Error] with all problems.
func (p *Patch) Validate() error {
	var r report
	for i := range p.NewKeys {
		k := at("/new_keys", i)
		r.rawPart(k+"/default_value", p.NewKeys[i].Default)
		r.rawPart(k+"/value_schema", p.NewKeys[i].Value)
	}
	if err := r.err("patch"); err != nil {
		return err
	}
	raw, err := stdjson.Marshal(p)
	if err != nil {
		r.add("", "json", remedies["json"], "cannot be written as JSON")
		return r.err("patch")
	}
	r.texts(p)
	r.parsePatch(raw)
	return r.err("patch")
}

// texts adds the problems of texts that JSON cannot represent.
func (r *report) texts(p *Patch) {
	for i, k := range p.NewKeys {
		r.key(&Key{Name: k.Name, Description: k.Description, Descriptions: k.Descriptions, Property: k.Property}, at("/new_keys", i))
	}
	for i, k := range p.ModifiedKeys {
		r.text(at("/modified_keys", i)+"/semantic_description", k.Description, true)
	}
}

func (r *report) parsePatch(raw []byte) *Patch {
	if len(raw) > MaxBytes {
		r.add("", "limit", remedies["limit"], "has more than %d bytes", MaxBytes)
		return nil
	}
	if !r.structure(compiledPatch(), raw, "") || r.rootFails() {
		return nil
	}
	p := &Patch{}
	all := membersOf(raw)
	for _, m := range all {
		q := at("", m.name)
		switch m.name {
		case "new_keys":
			p.NewKeys = r.newKeys(m.value)
		case "modified_keys":
			p.ModifiedKeys = r.refinements(m.value)
		case "timestamp":
			p.Timestamp = r.time(q, m.value)
		case "expiration":
			p.Expires = r.time(q, m.value)
		case "patch_id":
			p.PatchID = textOf(m.value)
		case "parent_schema_id":
			p.ParentSchemaID = textOf(m.value)
		}
	}
	r.patch(p)
	return p
}

// newKeys reads key definitions, and validates them against the schema of a template's keys.
func (r *report) newKeys(raw []byte) []Key {
	items := itemsOf(raw)
	if len(items) > MaxPatchKeys {
		return nil // reported before
	}
	for i, item := range items {
		if len(item) > 0 && item[0] == '{' {
			r.structure(compiledKey(), item, at("/new_keys", i))
		}
	}
	return r.keys(raw, "/new_keys", true)
}

func (r *report) refinements(raw []byte) []Refinement {
	var all []Refinement
	for i, item := range itemsOf(raw) {
		var one Refinement
		if json.Unmarshal(item, &one) != nil || i >= MaxPatchKeys {
			continue
		}
		all = append(all, one)
	}
	return all
}

func (r *report) time(p string, raw []byte) time.Time {
	t, err := time.Parse(time.RFC3339, textOf(raw))
	if err != nil && !r.within(p) {
		r.add(p, "format", remedies["timestamp"], "is no time")
	}
	return t
}

// patch adds the problems that patch.schema.json cannot express.
func (r *report) patch(p *Patch) {
	if len(p.NewKeys)+len(p.ModifiedKeys) == 0 && len(r.problems) == 0 {
		r.add("", "empty", "add new_keys or modified_keys", "changes nothing")
	}
	if p.Timestamp.IsZero() && len(r.problems) == 0 {
		r.add("/timestamp", "required", remedies["timestamp"], "is not set")
	}
	if !p.Expires.After(p.Timestamp) && len(r.problems) == 0 {
		r.add("/expiration", "expiration", "write a time after the timestamp", "is not after the timestamp")
	}
	r.definitions(p.NewKeys, "/new_keys")
	names := map[string]bool{}
	for i, k := range p.NewKeys {
		q := at("/new_keys", i)
		names[k.Name] = true
		if k.Required {
			r.add(q+"/required", "additive", "write false", "a patch cannot add a required key: payloads of clients that do not know it would be refused")
		}
		if k.Name == Other {
			r.add(q+"/key_name", "additive", "choose another name", "every template has the key other already")
		}
	}
	for i, k := range p.ModifiedKeys {
		q := at("/modified_keys", i)
		switch {
		case k.Name == "":
		case k.Name == Other:
			r.add(q+"/key_name", "additive", "refine another key", "the key other is not changed by patches")
		case names[k.Name]:
			r.add(q+"/key_name", "unique", "keep one of them", "%s is in the patch twice", quoted(k.Name))
		}
		names[k.Name] = true
		r.text(q+"/semantic_description", k.Description, true)
	}
}

// Expired reports whether the patch must not be used any more at the given time.
func (p *Patch) Expired(at time.Time) bool { return !at.Before(p.Expires) }

// Hash returns "sha256:" and the hex digest of the patch in the canonical form of RFC 8785, "" for
// a patch that cannot be encoded as JSON.
func (p *Patch) Hash() string {
	raw, err := stdjson.Marshal(p)
	if err != nil {
		return ""
	}
	return digest(raw)
}

// compiledKey is the schema of one key definition.
var compiledKey = compiled(keySchema)

func keySchema() []byte {
	var whole struct {
		Defs stdjson.RawMessage `json:"$defs"`
	}
	if err := stdjson.Unmarshal(templateSchema, &whole); err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, `{"$ref":"#/$defs/key","$defs":%s}`, whole.Defs)
}

// digest returns the hash of a JSON text, "" if it has no canonical form.
func digest(raw []byte) string {
	canonical, err := envelope.Canonical(raw)
	if err != nil {
		return ""
	}
	return hashOf(canonical)
}
