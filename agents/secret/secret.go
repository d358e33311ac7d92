package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is printed instead of a Secret's value.
const Redacted = "[redacted]"

// Secret is a credential in memory. It prints, logs and encodes as [Redacted];
// only Reveal returns its value. The zero Secret has no value.
//
// The value is behind a function, so that reflection on structs does not find
// it either: fmt prints a Secret in a private field without calling its
// methods.
type Secret struct{ reveal func() string }

// New makes a Secret from a value.
func New(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{reveal: func() string { return value }}
}

// Reveal returns the value.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.reveal == nil }

// Equal compares the values in a time that depends on their lengths only.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

func (s Secret) String() string { return Redacted }

// GoString is the output of %#v.
func (s Secret) GoString() string { return Redacted }

// Format writes [Redacted], whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Redacted) }

// MarshalText encodes [Redacted].
func (s Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalJSON encodes [Redacted].
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + Redacted + `"`), nil }

// LogValue logs [Redacted].
func (s Secret) LogValue() slog.Value { return slog.StringValue(Redacted) }
