package template

import (
	"bytes"
	"encoding/json"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// MaxPayload is the most bytes of a payload with its schema_id.
const MaxPayload = 256 << 10

var compiledPayload = mustCompile([]byte(`{
  "type": "object",
  "required": ["schema_id", "payload"],
  "properties": {
    "schema_id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"},
    "payload": {"type": "object"}
  }
}`))

var payloadMembers = knownMembers("schema_id", "payload")

// ParsePayload reads what a client sends (SDSI 5.1): {"schema_id": …, "payload": {…}}. It
// does not know the template; see [Form.Check]. Other members are ignored. The error is an
// [*Error] with all problems. The payload shares no memory with raw.
func ParsePayload(raw []byte) (*Payload, error) {
	var r report
	p := r.payload(raw, compiledPayload)
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
		}
	}
	return p
}

// Encode returns the payload in JSON.
func (p *Payload) Encode() json.RawMessage {
	return object(member{"schema_id", quoteJSON(p.SchemaID)}, member{"payload", p.Payload})
}
