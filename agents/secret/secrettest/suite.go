package secrettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// The values of the entries of a [Subject].
const (
	PlainValue  = "plain-7Kq2/+x=Zt9 w&"  // with characters that encodings change
	MemberValue = "member-\"q\"-4fWm8e<>" // of key MemberKey
	OldValue    = "old-9vTn3sRy"
	MemberKey   = "api_key"
)

// Subject is a vault with entries. A reference with an empty path means that
// this kind of vault does not have the feature; its tests are skipped.
type Subject struct {
	Vault secret.Vault

	Plain  aaif.VaultRef // an entry that is PlainValue
	Member aaif.VaultRef // one with the key MemberKey, which is MemberValue
	Old    aaif.VaultRef // an earlier version, which is OldValue

	Missing        aaif.VaultRef // no such entry
	MissingVersion aaif.VaultRef // of an existing entry
	Denied         aaif.VaultRef // an entry that the vault denies

	// Credentials are the vault's own credentials, by name. Errors must not
	// contain them either.
	Credentials map[string]string
	// Break makes the vault fail from now on, as if it were down.
	Break func()
}

// Run tests the contract of [secret.Vault]. open makes a new vault for each
// test.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	test := func(name string, f func(t *testing.T, s Subject)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
	gives := func(t *testing.T, s Subject, ref aaif.VaultRef, want string) {
		t.Helper()
		if ref.Path == "" {
			t.Skip("this kind of vault has none")
		}
		got, err := s.Vault.Read(t.Context(), ref)
		if err != nil || got.Reveal() != want {
			t.Fatalf("Read(%+v) = %q, %v; want %q", ref, got.Reveal(), err, want)
		}
	}
	test("an entry", func(t *testing.T, s Subject) { gives(t, s, s.Plain, PlainValue) })
	test("a key of an entry", func(t *testing.T, s Subject) { gives(t, s, s.Member, MemberValue) })
	test("an earlier version", func(t *testing.T, s Subject) { gives(t, s, s.Old, OldValue) })

	fails := func(t *testing.T, s Subject, ctx context.Context, ref aaif.VaultRef, want secret.Kind) {
		t.Helper()
		if ref.Path == "" {
			t.Skip("this kind of vault has none")
		}
		got, err := s.Vault.Read(ctx, ref)
		if !errors.Is(err, want) || !got.IsZero() {
			t.Fatalf("Read(%+v) = %q, %v; want an error that is %q", ref, got.Reveal(), err, string(want))
		}
		s.clean(t, err)
		for _, part := range []string{string(ref.Provider), ref.Path} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q does not name %q", err, part)
			}
		}
	}
	kind := func(name string, want secret.Kind, ref func(Subject) aaif.VaultRef) {
		test(name, func(t *testing.T, s Subject) { fails(t, s, t.Context(), ref(s), want) })
	}
	kind("a missing entry", secret.ErrNotFound, func(s Subject) aaif.VaultRef { return s.Missing })
	kind("a missing version", secret.ErrNotFound, func(s Subject) aaif.VaultRef { return s.MissingVersion })
	kind("an entry that is denied", secret.ErrDenied, func(s Subject) aaif.VaultRef { return s.Denied })
	kind("a missing key", secret.ErrNotFound, func(s Subject) aaif.VaultRef {
		ref := s.Member
		ref.Key = "no_such_key"
		return ref
	})
	test("a vault that is down", func(t *testing.T, s Subject) {
		s.Break()
		fails(t, s, t.Context(), s.Plain, secret.ErrUnavailable)
	})
	test("a context that is done", func(t *testing.T, s Subject) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fails(t, s, ctx, s.Plain, secret.ErrUnavailable)
		if _, err := s.Vault.Read(ctx, s.Plain); !errors.Is(err, context.Canceled) {
			t.Errorf("the error %v is not the context's", err)
		}
	})
	test("many at once", func(t *testing.T, s Subject) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got, err := s.Vault.Read(t.Context(), s.Plain); err != nil || got.Reveal() != PlainValue {
					t.Errorf("Read = %q, %v", got.Reveal(), err)
				}
			})
		}
		wg.Wait()
	})
	test("it does not print what it authenticates with", func(t *testing.T, s Subject) {
		_, _ = s.Vault.Read(t.Context(), s.Plain)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if found := Find(fmt.Sprintf(verb, s.Vault), s.Credentials); found != nil {
				t.Errorf("%s shows %v", verb, found)
			}
		}
	})
}

// clean fails a test if an error, or one that it wraps, contains a secret.
func (s Subject) clean(t *testing.T, err error) {
	t.Helper()
	all := map[string]string{"plain": PlainValue, "member": MemberValue, "old": OldValue}
	maps.Copy(all, s.Credentials)
	for ; err != nil; err = errors.Unwrap(err) {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			if found := Find(fmt.Sprintf(verb, err), all); found != nil {
				t.Errorf("the error quotes %v", found)
			}
		}
	}
}
