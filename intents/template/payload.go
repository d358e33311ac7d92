package template

import (
	"bytes"
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// MaxPayload bounds the bytes of a payload with its schema_id.
const MaxPayload = 256 << 10

var compiledPayload = compiled(func() []byte {
	return []byte(`{
  "type": "object",
  "required": ["schema_id", "payload"],
  "properties": {
    "schema_id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"},
    "payload": {"type": "object"},
    "fragments": {"type": "object"},
    "schema_updates": {"type": "boolean"}
  }
}`)
})

var payloadMembers = knownMembers("schema_id", "payload", "fragments", "schema_updates")

// ParsePayload reads what a client sends (SDSI 5.1): {"schema_id": …, "payload": {…}}. It does not
// check the payload against the template; see [Form.Check]. Other members are ignored. The error is
// an [*Error] with all problems. The payload shares no memory with raw.
func ParsePayload(raw []byte) (*Payload, error) {
	var r report
	p := r.payload(raw, compiledPayload())
	if err := r.err("payload"); err != nil {
		return nil, err
	}
	return p, nil
}

func (r *report) payload(raw []byte, s *schema.Schema) *Payload {
	if len(raw) > MaxPayload {
		r.add("", "limit", remedies["limit"], "has more than %d bytes", MaxPayload)
		return nil
	}
	if !r.structure(s, raw, "") {
		return nil
	}
	p := &Payload{}
	all := membersOf(raw)
	r.names(all, "", payloadMembers, false)
	for _, m := range all {
		switch m.name {
		case "schema_id":
			p.SchemaID = textOf(m.value)
		case "payload":
			p.Payload = bytes.Clone(m.value)
		case "fragments":
			p.Fragments = fragmentsOf(m.value)
		case "schema_updates":
			p.NoUpdates = string(m.value) == "false"
		}
	}
	return p
}

// fragmentsOf reads the fragments of keys. They are only evidence, so fragments that are not texts,
// or exceed the limits, are left out without an error.
func fragmentsOf(raw []byte) map[string]string {
	var out map[string]string
	for _, m := range membersOf(raw) {
		if text := visible(textOf(m.value)); text != "" && len(out) < MaxFragments && len(m.name) <= 128 {
			if out == nil {
				out = map[string]string{}
			}
			out[m.name] = clip.Text(text, MaxFragmentBytes)
		}
	}
	return out
}

// Encode returns the payload in JSON.
func (p *Payload) Encode() json.RawMessage {
	members := []member{{"schema_id", quoteJSON(p.SchemaID)}, {"payload", p.Payload}}
	if len(p.Fragments) > 0 {
		members = append(members, member{"fragments", marshal(p.Fragments)})
	}
	if p.NoUpdates {
		members = append(members, member{"schema_updates", json.RawMessage("false")})
	}
	return object(members...)
}
