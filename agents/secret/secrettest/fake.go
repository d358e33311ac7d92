package secrettest

import (
	"context"
	"strings"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// Vault is a vault in memory. Entries are values by path, or by path@version.
// Its methods change its behaviour.
type Vault struct {
	mu      sync.Mutex
	entries map[string]string
	failing secret.Kind
	reads   int
}

// NewVault makes a Vault with these entries.
func NewVault(entries map[string]string) *Vault {
	v := &Vault{entries: map[string]string{}}
	for path, value := range entries {
		v.Put(path, value)
	}
	return v
}

// Put sets the value of an entry.
func (v *Vault) Put(path, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.entries[path] = value
}

// Fail makes every read fail with this kind; "" makes them succeed again.
func (v *Vault) Fail(kind secret.Kind) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failing = kind
}

// Reads returns the number of reads so far.
func (v *Vault) Reads() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reads
}

// Read returns an entry, or the member of it that ref.Key names. Paths that begin
// with "denied/" are denied.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	if err := ctx.Err(); err != nil {
		return secret.Secret{}, secret.Failed(ref, err)
	}
	if v.failing != "" {
		return secret.Secret{}, secret.Errorf(v.failing, ref, "as told")
	}
	if strings.HasPrefix(ref.Path, "denied/") {
		return secret.Secret{}, secret.Errorf(secret.ErrDenied, ref, "as told")
	}
	name := ref.Path
	if ref.Version != "" {
		name += "@" + ref.Version
	}
	value, ok := v.entries[name]
	if !ok {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "there is no such entry")
	}
	return secret.Member(ref, value)
}
