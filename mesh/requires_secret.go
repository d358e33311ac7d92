package mesh

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// withoutSecrets refuses to send an envelope whose requires hold a credential: the field
// MUST NOT carry any (AEE, "Privacy of Payload Contents"), for it is copied into hops,
// records and logs. The requires of a hop are the mesh's own, and [Task.Call] has looked
// at what its caller adds.
func withoutSecrets(e *envelope.Envelope) error {
	if e.ReplyTo != "" {
		return nil
	}
	return secretIn(e.Requires)
}

// secretIn is an error where requires hold what looks like a credential. The scan is
// that of agents' documents, and finds what is plain to see.
func secretIn(requires json.RawMessage) error {
	if !hasText(requires) {
		return nil
	}
	pointer, what, found := aaif.FindCredential(requires)
	if !found {
		return nil
	}
	return envelope.Errorf(envelope.CodeRequires, "requires%s: %s, and requires must carry no secret: agents read credentials from their environment or a vault", pointer, what)
}

// hasText reports whether an object may have a text in it: most requires are numbers,
// and need no scan.
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
