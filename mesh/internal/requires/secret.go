package requires

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// WithoutSecrets refuses to send an envelope whose requires hold a credential. The field
// MUST NOT carry any (AEE, "Privacy of Payload Contents"), because it is copied into hops,
// records and logs. A hop is not scanned again: the mesh made its requires, and
// [Task.Call] has scanned the members that the handler added.
func WithoutSecrets(e *envelope.Envelope) error {
	if e.ReplyTo != "" {
		return nil
	}
	return SecretIn(e.Requires)
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
