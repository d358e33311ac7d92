package secret

import (
	"context"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// VaultFunc is a function as a Vault.
type VaultFunc func(ctx context.Context, ref aaif.VaultRef) (Secret, error)

// Read calls f.
func (f VaultFunc) Read(ctx context.Context, ref aaif.VaultRef) (Secret, error) { return f(ctx, ref) }

// Matches reports whether a path matches a pattern of Options.Allow.
func Matches(pattern, path string) bool { return compile(pattern).MatchString(path) }

// Cached returns how many entries the Guard v has cached.
func Cached(v Vault) int {
	g := v.(*guarded)
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.entries)
}
