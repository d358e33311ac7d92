package secret

import (
	"context"
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Vault reads secrets from one place. Implementers:
//
//   - read at each call, and keep nothing on disk; [Guard] caches;
//   - return an [*Error] for anything that fails: ErrNotFound, ErrDenied,
//     ErrUnavailable or ErrInvalid, with the reference and no value in it, and
//     without the words of libraries that have not been scrubbed;
//   - return soon after ctx ends;
//   - be safe for concurrent use.
//
// ref.Path is the vault's own name for an entry. With ref.Key the entry must be
// a map or a JSON object, and the secret is that member; see [Member]. An empty
// ref.Version means the latest.
type Vault interface {
	Read(ctx context.Context, ref aaif.VaultRef) (Secret, error)
}

// Member returns the secret in an entry's value: the value itself, or, if the
// reference has a key, that member of the JSON object in the value. A member
// that is a string is returned as that string, any other as JSON.
func Member(ref aaif.VaultRef, value string) (Secret, error) {
	if ref.Key == "" {
		if value == "" {
			return Secret{}, Errorf(ErrNotFound, ref, "it is empty")
		}
		return New(value), nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &members) != nil || members == nil {
		return Secret{}, Errorf(ErrInvalid, ref, "a key is asked for, and the entry is no JSON object")
	}
	raw, ok := members[ref.Key]
	if !ok {
		return Secret{}, Errorf(ErrNotFound, ref, "the entry has no such key")
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if text == "" || string(raw) == "null" {
		return Secret{}, Errorf(ErrNotFound, ref, "it is empty")
	}
	return New(text), nil
}
