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
	// ErrNotFound: there is no such variable, entry, key or version. For the
	// author of the document or the vault's administrator to correct.
	ErrNotFound Kind = "not_found"

	// ErrDenied: the vault does not permit this worker to read it. For the
	// vault's administrator to correct.
	ErrDenied Kind = "denied"

	// ErrUnavailable: the vault could not be reached, or did not answer in
	// time. A retry may help.
	ErrUnavailable Kind = "unavailable"

	// ErrNotAllowed: the operator of this worker permits no document to read
	// it, or has not configured the vault.
	ErrNotAllowed Kind = "not_allowed"

	// ErrInvalid: the reference is malformed, or the entry cannot be used as a
	// secret: it is too large, or not a JSON object although a key was given.
	ErrInvalid Kind = "invalid"
)

var kindTexts = map[Kind]string{
	ErrNotFound:    "there is no such secret",
	ErrDenied:      "the vault denies it",
	ErrUnavailable: "the vault is not available",
	ErrNotAllowed:  "it is not allowed here",
	ErrInvalid:     "this is no usable secret",
}

// Error returns the kind in words.
func (k Kind) Error() string { return kindTexts[k] }

// Error is why a secret could not be read. It never contains a secret.
type Error struct {
	Kind Kind
	// Ref names the reference: "env_var NAME", or "vault_ref" and the provider,
	// path, key and version.
	Ref string
	// Message describes the error, in a text that is safe to show: a vault's
	// own text is scrubbed first.
	Message string
	// Err is the cause, if a caller may need it: the context's own error.
	// Errors of libraries are not kept, because they may quote secrets.
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

// Errorf makes an Error about a vault entry. The text must contain no secret.
func Errorf(kind Kind, ref aaif.VaultRef, format string, args ...any) *Error {
	return &Error{Kind: kind, Ref: Describe(ref), Message: fmt.Sprintf(format, args...)}
}

// Failed makes the Error of a vault that could not be reached. Only a context's
// error is kept as the cause; this package writes the text, so that nothing
// that a library quotes becomes part of it.
func Failed(ref aaif.VaultRef, err error) *Error {
	e := Errorf(ErrUnavailable, ref, "it could not be reached")
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, cause) {
			e.Message, e.Err = cause.Error(), cause
		}
	}
	return e
}

// Describe names a vault entry in a text, without its value.
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

// Clip truncates a stranger's text to 200 bytes, and removes control
// characters, so that it fits on a line of a log.
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
