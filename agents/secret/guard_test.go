package secret_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

func ref(path string) aaif.VaultRef { return aaif.VaultRef{Provider: aaif.VaultCustom, Path: path} }

func TestGuardAllowsPathsOnly(t *testing.T) {
	t.Parallel()
	v := secrettest.NewVault(map[string]string{"secret/agents/mail": "v-mail", "secret/admin": "v-admin", "secret/agents/a/b": "v-deep"})
	none := secret.Guard(v, secret.Options{})
	some := secret.Guard(v, secret.Options{Allow: []string{"secret/agents/*"}})
	for path, want := range map[string]secret.Kind{
		"secret/agents/mail": "", "secret/admin": secret.ErrNotAllowed, "secret/agents/a/b": secret.ErrNotAllowed, "": secret.ErrInvalid,
		"secret/agents/../admin": secret.ErrInvalid, "secret/agents/./mail": secret.ErrInvalid, "secret/agents/%2e%2e": secret.ErrInvalid,
		`secret/agents/..\admin`: secret.ErrInvalid, "secret/agents/x?list=true": secret.ErrInvalid, "secret/agents/x#y": secret.ErrInvalid,
		"secret/agents/x\ny": secret.ErrInvalid, "secret/agents/" + strings.Repeat("x", 2000): secret.ErrInvalid,
	} {
		if _, err := some.Read(t.Context(), ref(path)); want == "" && err != nil || want != "" && !errors.Is(err, want) {
			t.Errorf("%q: %v, want %q", path, err, string(want))
		}
		if _, err := none.Read(t.Context(), ref(path)); !errors.Is(err, secret.ErrNotAllowed) && !errors.Is(err, secret.ErrInvalid) {
			t.Errorf("%q with nothing allowed: %v", path, err)
		}
	}
	if v.Reads() != 1 {
		t.Errorf("the vault was asked %d times, want once", v.Reads())
	}
}

// Finding 23 of the security review: key and version were under no list.
func TestKeysAndVersionsAreAllowedToo(t *testing.T) {
	t.Parallel()
	all := secret.VaultFunc(func(context.Context, aaif.VaultRef) (secret.Secret, error) { return secret.New("value"), nil })
	for _, tt := range []struct {
		allow, key, version string
		lax, strict         bool
	}{
		{"p", "", "", true, true},
		{"p", "k", "", true, false},
		{"p", "", "3", true, false},
		{"p", "", "latest", true, true},
		{"p#k", "k", "", true, true},
		{"p#k", "", "", false, false},
		{"p#k", "other", "", false, false},
		{"p#k", "k", "3", true, false},
		{"p#a/*", "a/b", "", true, true},
		{"p#a/*", "a/b/c", "", false, false},
		{"p#**", "../admin", "", true, true},
		{"p?version=3", "", "3", true, true},
		{"p?version=3", "", "", false, false},
		{"p?version=3#k", "k", "3", true, true},
		{"p?version=**#**", "", "", true, true},
		{"p?version=**#**", "k", "3", true, true},
	} {
		for strict, want := range map[bool]bool{false: tt.lax, true: tt.strict} {
			v := secret.Guard(all, secret.Options{Allow: []string{"other#**", tt.allow}, Strict: strict})
			_, err := v.Read(t.Context(), aaif.VaultRef{Provider: aaif.VaultCustom, Path: "p", Key: tt.key, Version: tt.version})
			if (err == nil) != want || err != nil && !errors.Is(err, secret.ErrNotAllowed) {
				t.Errorf("%s, strict %v: key %q version %q: %v, want allowed %v", tt.allow, strict, tt.key, tt.version, err, want)
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"a/b", "a/b", true}, {"a/b", "a/bc", false}, {"a/b", "a", false}, {"a/*", "a/b", true}, {"a/*", "a/b/c", false}, {"a/*/c", "a/b/c", true},
		{"a/**", "a/b/c", true}, {"a/**", "ab", false}, {"**", "anything/at/all", true}, {"*", "one", true}, {"*", "one/two", false},
		{"**/x", "a/b/x", true}, {"a*c", "abbc", true}, {"a*c", "ab/c", false}, {"", "", true}, {"", "a", false},
		{"https://kv.example/secrets/*", "https://kv.example/secrets/mail", true}, {"https://kv.example/secrets/*", "https://kv.example.evil/secrets/mail", false},
		{"kv.example/*", "kvxexample/mail", false}, {"a+", "aa", false}, {"[ab]", "a", false},
	} {
		if got := secret.Matches(tt.pattern, tt.path); got != tt.want {
			t.Errorf("Matches(%q, %q) = %v", tt.pattern, tt.path, got)
		}
	}
}

func TestGuardRemembersForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, now := secrettest.NewVault(map[string]string{"a": "first"}), time.Now()
		g := secret.Guard(v, secret.Options{Allow: []string{"*"}, TTL: time.Minute, Now: func() time.Time { return now }})
		read := func(ctx context.Context, want string) {
			t.Helper()
			if got, err := g.Read(ctx, ref("a")); err != nil || got.Reveal() != want {
				t.Fatalf("Read = %q, %v; want %q", got.Reveal(), err, want)
			}
		}
		read(t.Context(), "first")
		v.Put("a", "second")
		read(t.Context(), "first")
		read(secret.Fresh(t.Context()), "second")
		v.Put("a", "third")
		now = now.Add(61 * time.Second)
		read(t.Context(), "third")
		if v.Reads() != 3 {
			t.Errorf("%d reads, want 3", v.Reads())
		}
		// A failure is not remembered, and neither is anything where TTL is negative.
		v.Fail(secret.ErrUnavailable)
		if _, err := g.Read(secret.Fresh(t.Context()), ref("a")); !errors.Is(err, secret.ErrUnavailable) {
			t.Errorf("err = %v", err)
		}
		v.Fail("")
		read(t.Context(), "third")
		g = secret.Guard(v, secret.Options{Allow: []string{"*"}, TTL: -1})
		before := v.Reads()
		read(t.Context(), "third")
		read(t.Context(), "third")
		if v.Reads() != before+2 {
			t.Errorf("a cache that is off remembers")
		}
	})
}

// Concurrent callers of one secret share one read; a caller that gives up does
// not stop it for the others; and a read of a vault that hangs times out.
func TestGuardReadsOnceForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, release := 0, make(chan struct{})
		g := secret.Guard(secret.VaultFunc(func(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
			reads++
			select {
			case <-release:
				return secret.New("value"), nil
			case <-ctx.Done():
				return secret.Secret{}, secret.Failed(ref, ctx.Err())
			}
		}), secret.Options{Allow: []string{"*"}, Timeout: time.Second})
		impatient, cancel := context.WithCancel(t.Context())
		gaveUp, got := make(chan error, 1), make(chan error, 5)
		go func() { _, err := g.Read(impatient, ref("a")); gaveUp <- err }()
		synctest.Wait()
		for range 5 {
			go func() { _, err := g.Read(t.Context(), ref("a")); got <- err }()
		}
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		close(release)
		for range 5 {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
		release = nil
		if _, err := g.Read(t.Context(), ref("b")); !errors.Is(err, secret.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a vault that hangs: %v", err)
		}
	})
}

func TestGuardWithstandsItsVault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		read func() (secret.Secret, error)
		want secret.Kind
	}{
		"panics":     {func() (secret.Secret, error) { panic("with " + value) }, secret.ErrUnavailable},
		"foreign":    {func() (secret.Secret, error) { return secret.Secret{}, errors.New("token " + value) }, secret.ErrUnavailable},
		"empty":      {func() (secret.Secret, error) { return secret.Secret{}, nil }, secret.ErrNotFound},
		"far to big": {func() (secret.Secret, error) { return secret.New(strings.Repeat("x", 100)), nil }, secret.ErrInvalid},
	} {
		g := secret.Guard(secret.VaultFunc(func(context.Context, aaif.VaultRef) (secret.Secret, error) { return tt.read() }), secret.Options{Allow: []string{"*"}, MaxBytes: 99})
		_, err := g.Read(t.Context(), ref("a"))
		if !errors.Is(err, tt.want) || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Documents choose the references, so their number has no other bound.
func TestGuardRemembersABoundedNumber(t *testing.T) {
	t.Parallel()
	g := secret.Guard(secret.VaultFunc(func(context.Context, aaif.VaultRef) (secret.Secret, error) { return secret.New("value"), nil }), secret.Options{Allow: []string{"*"}})
	for i := range 1100 {
		if _, err := g.Read(t.Context(), ref(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if n := secret.Cached(g); n > 1024 {
			t.Fatalf("%d entries are cached", n)
		}
	}
}

func FuzzMatches(f *testing.F) {
	f.Add("a/**/b*", "a/c/d/b")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(path) > 200 || !utf8.ValidString(pattern) || !utf8.ValidString(path) {
			return
		}
		got := secret.Matches(pattern, path)
		if !strings.Contains(pattern, "*") && got != (pattern == path) {
			t.Errorf("a pattern without stars: Matches(%q, %q) = %v", pattern, path, got)
		}
		if !secret.Matches(path, path) && !strings.Contains(path, "*") {
			t.Errorf("%q does not match itself", path)
		}
	})
}
