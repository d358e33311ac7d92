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
//   - return when ctx is done;
//   - serve any number of goroutines at once.
//
// ref.Path is the vault's own name for an entry. With ref.Key the entry is a
// map, or a JSON object, and the secret its member; see [Member]. An empty
// ref.Version is the latest.
type Vault interface {
	Read(ctx context.Context, ref aaif.VaultRef) (Secret, error)
}

// VaultFunc is a function as a Vault.
type VaultFunc func(ctx context.Context, ref aaif.VaultRef) (Secret, error)

// Read calls f.
func (f VaultFunc) Read(ctx context.Context, ref aaif.VaultRef) (Secret, error) { return f(ctx, ref) }

// Member is what an entry's value gives for a reference: the value itself, or,
// where the reference has a key, the member of that name of the JSON object that
// the value is. A member that is a string is that string; any other is its JSON.
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
