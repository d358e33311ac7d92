package secret

import (
	"context"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/subprocess"
)

// Set holds everything that a worker's documents may read. The zero Set and a
// nil one permit nothing. Its fields must not be changed once it is in use; it
// is safe for concurrent use.
type Set struct {
	// Env looks up an environment variable. Default: none is set.
	Env func(name string) (string, bool)
	// AllowEnv are the variables that documents may name: whole names, or
	// patterns in the way of [path.Match], such as BILLING_*. Default none.
	// NATS_* and AEEMESH_* are never permitted.
	AllowEnv []string
	// Vaults are the configured vaults, by their names in documents. Wrap them
	// with [Guard].
	Vaults map[aaif.VaultProvider]Vault

	once  sync.Once
	known *Redactor
}

// Resolve reads the secret that an auth block names: its vault_ref, else its
// env_var (AAIF, Tool Definitions). For a block that names neither, or whose
// type is none, it returns the zero Secret.
func (s *Set) Resolve(ctx context.Context, auth *aaif.Auth) (Secret, error) {
	switch {
	case auth == nil || auth.Type == aaif.AuthNone:
		return Secret{}, nil
	case auth.VaultRef != nil:
		return s.Read(ctx, *auth.VaultRef)
	case auth.EnvVar != "":
		return s.Variable(auth.EnvVar)
	}
	return Secret{}, nil
}

// Read reads an entry of one of the vaults.
func (s *Set) Read(ctx context.Context, ref aaif.VaultRef) (Secret, error) {
	var v Vault
	if s != nil {
		v = s.Vaults[ref.Provider]
	}
	if v == nil {
		return Secret{}, noVault(ref)
	}
	got, err := v.Read(ctx, ref)
	if err != nil {
		return Secret{}, err
	}
	s.Redactor().Add(got)
	return got, nil
}

// Variable reads an environment variable on behalf of a document.
func (s *Set) Variable(name string) (Secret, error) {
	if err := s.checkVariable(name); err != nil {
		return Secret{}, err
	}
	value, ok := "", false
	if s.Env != nil { // and s is not nil, because it permits the name
		value, ok = s.Env(name)
	}
	if !ok || value == "" {
		return Secret{}, &Error{Kind: ErrNotFound, Ref: "env_var " + Clip(name), Message: "the variable is not set"}
	}
	got := New(value)
	s.Redactor().Add(got)
	return got, nil
}

// AllowsEnv reports whether documents may name a variable.
func (s *Set) AllowsEnv(name string) bool {
	return s != nil && name != "" && !subprocess.MeshOwn(name) && slices.ContainsFunc(s.AllowEnv, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Check reports, without reading anything, why an auth block's secret can never
// be read: a variable or a path that is not permitted, or a vault that is not
// configured. A vault with a method Check(aaif.VaultRef) error, such as a
// Guard, is asked.
func (s *Set) Check(auth *aaif.Auth) error {
	switch {
	case auth == nil || auth.Type == "" || auth.Type == aaif.AuthNone:
		return nil
	case auth.VaultRef != nil:
		var v Vault
		if s != nil {
			v = s.Vaults[auth.VaultRef.Provider]
		}
		if v == nil {
			return noVault(*auth.VaultRef)
		}
		if c, ok := v.(interface{ Check(aaif.VaultRef) error }); ok {
			return c.Check(*auth.VaultRef)
		}
	case auth.EnvVar != "":
		return s.checkVariable(auth.EnvVar)
	}
	return nil
}

func noVault(ref aaif.VaultRef) error {
	return Errorf(ErrNotAllowed, ref, "this worker has no vault %s", Clip(string(ref.Provider)))
}

func (s *Set) checkVariable(name string) error {
	e := &Error{Kind: ErrNotAllowed, Ref: "env_var " + Clip(name)}
	switch {
	case subprocess.MeshOwn(name):
		e.Message = "it may let a process into the mesh, and is never given to a document"
	case !s.AllowsEnv(name):
		e.Message = "the operator has not allowed documents to read this variable"
	default:
		return nil
	}
	return e
}

// Providers returns the vaults of the Set, in order: a worker's offer
// auth.vault.
func (s *Set) Providers() []aaif.VaultProvider {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Vaults))
}

// Redactor returns a Redactor that knows every secret that this Set has
// returned. Scrub with it the answers of servers that were sent a secret.
func (s *Set) Redactor() *Redactor {
	if s == nil {
		return nil
	}
	s.once.Do(func() { s.known = &Redactor{} })
	return s.known
}
