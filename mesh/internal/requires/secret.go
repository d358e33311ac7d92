package requires

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// WithoutSecrets refuses to send an envelope whose requires hold a credential. The field MUST NOT
// carry any (AEE, "Privacy of Payload Contents"), because it is copied into hops, records and
// logs. The members that the mesh itself writes into a hop are not scanned.
func WithoutSecrets(e *envelope.Envelope) error {
	if e.ReplyTo == "" || !hasText(e.Requires) {
		return SecretIn(e.Requires)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(e.Requires, &members); err != nil {
		return envelope.Errorf(envelope.CodeRequires, "requires must be an object").WithCause(err)
	}
	for _, made := range [...]string{Tree, Handoff, HandedBy, Context} {
		delete(members, made)
	}
	return SecretIn(wire.MustJSON(members))
}

// SecretIn returns an error if requires contain something that looks like a credential.
// It uses the scan for agent documents, which finds obvious credentials only.
func SecretIn(requires json.RawMessage) error {
	if !hasText(requires) {
		return nil
	}
	pointer, what, found := aaif.FindCredential(requires)
	if !found {
		return nil
	}
	return envelope.Errorf(envelope.CodeRequires, "requires%s: %s, and requires must carry no secret: agents read credentials from their environment or a vault", pointer, what)
}

// hasText reports whether an object may contain a string. Most requires contain only
// numbers and need no scan.
func hasText(object []byte) bool {
	for i, c := range object {
		if c != ':' {
			continue
		}
		for i++; i < len(object) && (object[i] == ' ' || object[i] == '\t' || object[i] == '\n' || object[i] == '\r'); i++ {
		}
		if i < len(object) && (object[i] == '"' || object[i] == '[' || object[i] == '{') {
			return true
		}
	}
	return false
}
