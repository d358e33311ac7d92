package secret

import (
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

// maxCached bounds how many entries a cache has; documents decide which.
const maxCached = 1024

// Options are what a Guard keeps.
type Options struct {
	// Allow are the entries that documents may name, in the vault's own words:
	// PATH, PATH#KEY, PATH?version=VERSION or PATH?version=VERSION#KEY. In each part "*"
	// is any text without a slash, "**" any text at all, the rest stands for
	// itself. An entry that names no key allows every one, and so with versions;
	// see Strict. Default none.
	Allow []string
	// Strict has an entry of Allow that names no key allow none, and one that names
	// no version the current one alone: for a vault in which key and version may
	// lead anywhere, such as a program.
	Strict bool
	// TTL is how long a secret that was read is used again. Default 30 s;
	// negative reads at every call. What failed is never remembered.
	TTL time.Duration
	// Timeout of one read. Default 10 s.
	Timeout time.Duration
	// MaxBytes bounds the size of a secret. Default 64 KiB.
	MaxBytes int
	// Now is the clock of the cache. Default [time.Now].
	Now func() time.Time
}

// Guard puts around a vault what all have in common: references that make no
// sense or that nothing allows are refused before the vault sees them; a read
// ends in time; a secret that was read is used again for a short while, and read
// once where many want it at the same time; a panic becomes an error.
func Guard(v Vault, o Options) Vault {
	g := &guarded{vault: v, Options: o, entries: map[aaif.VaultRef]*entry{}}
	if g.TTL == 0 {
		g.TTL = DefaultTTL
	}
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

// Fresh makes the reads of a context ask the vault, whatever is in a cache: for
// who was refused with a secret that may have changed since it was read.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

type guarded struct {
	Options
	vault Vault
	allow []allowed

	mu      sync.Mutex
	entries map[aaif.VaultRef]*entry
}

// An entry is a read that is under way, until done is closed, or one that
// succeeded.
type entry struct {
	done   chan struct{}
	secret Secret
	err    error
	until  time.Time
}

// Format prints nothing of what is inside: secrets do not print, but who looks
// must not race with who reads either.
func (g *guarded) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[vault]") }

// Read reads through the cache. Who waits for a read of another stops waiting
// when its own context is done; the read ends with its own time limit.
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

// Check refuses what the vault is never asked for.
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

// enter finds the entry for a reference, or makes one that the caller fills.
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
			return e, false // under way, and so it is fresh
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

// fill reads for an entry, and forgets it where there is nothing to remember.
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
		if recover() != nil { // whose words may hold anything
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

// CheckRef refuses references that no vault should see: without a path, longer
// than any, or with parts that lead elsewhere than they say.
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
