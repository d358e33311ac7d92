package secret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// The defaults of Options.
const (
	DefaultTTL      = 30 * time.Second
	DefaultTimeout  = 10 * time.Second
	DefaultMaxBytes = 64 << 10
)

// maxCached bounds the number of cached entries, which documents choose.
const maxCached = 1024

// Options are the settings of a Guard.
type Options struct {
	// Allow are the entries that documents may name, in the vault's own words:
	// PATH, PATH#KEY, PATH?version=VERSION or PATH?version=VERSION#KEY. In each part "*"
	// is any text without a slash, "**" any text at all, the rest stands for
	// itself. An entry that names no key allows every one, and so with versions;
	// see Strict. Default none.
	Allow []string
	// Strict changes entries of Allow: without a key they permit no key, and
	// without a version only the current one. It is for vaults whose key and
	// version may have any effect, such as a program.
	Strict bool
	// TTL is how long a secret is cached. Default 30 s; negative disables the
	// cache. Failures are never cached.
	TTL time.Duration
	// Timeout is the timeout of one read. Default 10 s.
	Timeout time.Duration
	// MaxBytes bounds the size of a secret. Default 64 KiB.
	MaxBytes int
	// Now is the clock of the cache. Default [time.Now].
	Now func() time.Time
}

// Guard adds to a vault what all vaults have in common. Malformed and forbidden
// references are refused before the vault sees them. A read has a timeout. A
// secret is cached for a short time, and concurrent reads of it share one read.
// A panic becomes an error.
func Guard(v Vault, o Options) Vault {
	g := &guarded{vault: v, Options: o, entries: map[aaif.VaultRef]*entry{}}
	g.TTL = cmp.Or(g.TTL, DefaultTTL)
	if g.Timeout <= 0 {
		g.Timeout = DefaultTimeout
	}
	if g.MaxBytes <= 0 {
		g.MaxBytes = DefaultMaxBytes
	}
	if g.Now == nil {
		g.Now = time.Now
	}
	for _, pattern := range o.Allow {
		g.allow = append(g.allow, parseAllowed(pattern))
	}
	return g
}

type freshKey struct{}

// Fresh makes the reads of a context bypass the cache: for a caller whose
// secret was refused, because it may have changed since it was read.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

type guarded struct {
	Options
	vault Vault
	allow []allowed

	mu      sync.Mutex
	entries map[aaif.VaultRef]*entry
}

// An entry is a read that is running, until done is closed, or one that
// succeeded.
type entry struct {
	done   chan struct{}
	secret Secret
	err    error
	until  time.Time
}

// Format prints nothing of the content: secrets do not print, and printing must
// not race with reads either.
func (g *guarded) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[vault]") }

// Read reads through the cache. A caller that waits for another caller's read
// stops waiting when its own context ends; the read has its own timeout.
func (g *guarded) Read(ctx context.Context, ref aaif.VaultRef) (Secret, error) {
	if err := g.Check(ref); err != nil {
		return Secret{}, err
	}
	if err := ctx.Err(); err != nil {
		return Secret{}, Failed(ref, err)
	}
	e, mine := g.enter(ctx, ref)
	if mine {
		go g.fill(context.WithoutCancel(ctx), ref, e)
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	select {
	case <-e.done:
		return e.secret, e.err
	case <-ctx.Done():
		return Secret{}, Failed(ref, ctx.Err())
	}
}

// Check refuses references that the vault must not see.
func (g *guarded) Check(ref aaif.VaultRef) error {
	if err := CheckRef(ref); err != nil {
		return err
	}
	path := false
	for _, a := range g.allow {
		if !a.path.MatchString(ref.Path) {
			continue
		}
		path = true
		if part(a.key, ref.Key, g.Strict && ref.Key != "") && part(a.version, ref.Version, g.Strict && ref.Version != "" && ref.Version != "latest") {
			return nil
		}
	}
	if path {
		return Errorf(ErrNotAllowed, ref, "the operator has not allowed documents to read this key or version of the path")
	}
	return Errorf(ErrNotAllowed, ref, "the operator has not allowed documents to read this path")
}

// enter returns the entry of a reference, or makes one, which the caller must
// fill.
func (g *guarded) enter(ctx context.Context, ref aaif.VaultRef) (e *entry, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[ref]; e != nil {
		select {
		case <-e.done:
			if g.Now().Before(e.until) && ctx.Value(freshKey{}) == nil {
				return e, false
			}
		default:
			return e, false // it is running, so its result is fresh
		}
	}
	if len(g.entries) >= maxCached {
		for old, e := range g.entries {
			if !g.Now().Before(e.until) || len(g.entries) >= maxCached {
				delete(g.entries, old)
			}
		}
	}
	e = &entry{done: make(chan struct{})}
	g.entries[ref] = e
	return e, true
}

// fill reads a secret for an entry, and removes the entry if there is nothing
// to cache.
func (g *guarded) fill(ctx context.Context, ref aaif.VaultRef, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	s, err := g.read(ctx, ref)
	g.mu.Lock()
	defer g.mu.Unlock()
	e.secret, e.err, e.until = s, err, g.Now().Add(g.TTL)
	if (err != nil || g.TTL < 0) && g.entries[ref] == e {
		delete(g.entries, ref)
	}
	close(e.done)
}

func (g *guarded) read(ctx context.Context, ref aaif.VaultRef) (s Secret, err error) {
	defer func() {
		if recover() != nil { // its value may contain anything
			s, err = Secret{}, Errorf(ErrUnavailable, ref, "its client panicked")
		}
	}()
	s, err = g.vault.Read(ctx, ref)
	var known *Error
	switch {
	case err == nil && s.IsZero():
		return Secret{}, Errorf(ErrNotFound, ref, "it is empty")
	case err == nil && len(s.Reveal()) > g.MaxBytes:
		return Secret{}, Errorf(ErrInvalid, ref, "it has %d bytes, and %d are allowed", len(s.Reveal()), g.MaxBytes)
	case err != nil && !errors.As(err, &known):
		return Secret{}, Failed(ref, err)
	}
	return s, err
}

// CheckRef refuses references that no vault should see: without a path, too
// long, or with parts that could address something else.
func CheckRef(ref aaif.VaultRef) error {
	invalid := func(format string, args ...any) error { return Errorf(ErrInvalid, ref, format, args...) }
	for name, text := range map[string]string{"path": ref.Path, "key": ref.Key, "version": ref.Version} {
		if len(text) > 1024 {
			return invalid("the %s has more than 1024 bytes", name)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
			return invalid("the %s has control characters", name)
		}
	}
	switch {
	case ref.Path == "":
		return invalid("the path is missing")
	case strings.ContainsAny(ref.Path, `\?#%`):
		return invalid(`a path has none of \ ? # %%`)
	}
	for part := range strings.SplitSeq(ref.Path, "/") {
		if part == "." || part == ".." {
			return invalid("the path has a part %q", part)
		}
	}
	return nil
}
