package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Kind is a class of failure. Each Kind is a sentinel for errors.Is.
type Kind string

const (
	// ErrNotFound: there is no such variable, entry, key or version. Who wrote
	// the document, or who keeps the vault, mends it.
	ErrNotFound Kind = "not_found"

	// ErrDenied: the vault does not give it to this worker. Who keeps the vault
	// mends it.
	ErrDenied Kind = "denied"

	// ErrUnavailable: the vault could not be asked, or did not answer in time.
	// Later it may do.
	ErrUnavailable Kind = "unavailable"

	// ErrNotAllowed: the operator of this worker allows no document to read it,
	// or has no such vault.
	ErrNotAllowed Kind = "not_allowed"

	// ErrInvalid: the reference makes no sense, or what is there is no secret
	// that could be used: too large, or no JSON object where a key is asked for.
	ErrInvalid Kind = "invalid"
)

// Kinds are all the kinds there are.
func Kinds() []Kind { return []Kind{ErrNotFound, ErrDenied, ErrUnavailable, ErrNotAllowed, ErrInvalid} }

var kindTexts = map[Kind]string{
	ErrNotFound:    "there is no such secret",
	ErrDenied:      "the vault denies it",
	ErrUnavailable: "the vault is not available",
	ErrNotAllowed:  "it is not allowed here",
	ErrInvalid:     "this is no usable secret",
}

// Error returns the kind in words.
func (k Kind) Error() string { return kindTexts[k] }

// Error says why a secret could not be had. It holds no value of any secret.
type Error struct {
	Kind Kind
	// Ref names what was asked for: "env_var NAME", or "vault_ref" and the
	// provider, path, key and version.
	Ref string
	// Message says more, in words that are safe to show: a vault's own are
	// scrubbed before.
	Message string
	// Err is the cause, if a caller may branch on it: the context's own error.
	// The errors of libraries are not kept, since nobody knows what they quote.
	Err error
}

// Error returns the reference, the kind in words and the message.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Ref != "" {
		b.WriteString(e.Ref + ": ")
	}
	b.WriteString(e.Kind.Error())
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	return b.String()
}

// Is reports whether target is e's Kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error about a vault entry. The words must hold no secret.
func Errorf(kind Kind, ref aaif.VaultRef, format string, args ...any) *Error {
	return &Error{Kind: kind, Ref: Describe(ref), Message: fmt.Sprintf(format, args...)}
}

// Failed makes an Error of what kept a vault from being asked. Only an error of
// a context is kept as the cause; its text is written by this package, so that
// nothing that a library quotes becomes part of it.
func Failed(ref aaif.VaultRef, err error) *Error {
	e := Errorf(ErrUnavailable, ref, "it could not be reached")
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, cause) {
			e.Message, e.Err = cause.Error(), cause
		}
	}
	return e
}

// Describe names a vault entry in words, without its value.
func Describe(ref aaif.VaultRef) string {
	text := fmt.Sprintf("vault_ref %s %s", ref.Provider, Clip(ref.Path))
	if ref.Key != "" {
		text += " key " + Clip(ref.Key)
	}
	if ref.Version != "" {
		text += " version " + Clip(ref.Version)
	}
	return text
}

// Clip shortens a stranger's text to 200 bytes, and takes control characters out
// of it, so that it fits a line of a log.
func Clip(s string) string {
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
