package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Reference is the name of a credential in an operator's configuration:
// env:NAME or file:PATH. It is never the credential itself.
type Reference string

// Check reports what is wrong with a reference. It does not quote the text,
// which may be a credential by mistake.
func (r Reference) Check() error {
	kind, name, _ := strings.Cut(string(r), ":")
	if (kind != "env" && kind != "file") || name == "" {
		return errors.New("it is env:NAME or file:PATH, never the credential itself")
	}
	return nil
}

// UnmarshalText refuses invalid references.
func (r *Reference) UnmarshalText(text []byte) error {
	*r = Reference(text)
	if len(text) == 0 {
		return nil
	}
	return r.Check()
}

// Lookup reads the credential of an operator's reference.
type Lookup func(ctx context.Context, r Reference) (Secret, error)

// maxFile is the maximum size of a file with a credential.
const maxFile = 64 << 10

// Operator returns the Lookup of a process: it reads variables by env, and
// files of up to 64 KiB, without the newline at their end. It applies to the
// operator's own references, so nothing has to be permitted.
func Operator(env func(name string) (string, bool)) Lookup {
	return func(_ context.Context, r Reference) (Secret, error) {
		fail := func(format string, args ...any) (Secret, error) {
			return Secret{}, &Error{Kind: ErrNotFound, Ref: Clip(string(r)), Message: fmt.Sprintf(format, args...)}
		}
		if err := r.Check(); err != nil {
			return Secret{}, &Error{Kind: ErrInvalid, Ref: "a reference", Message: err.Error()}
		}
		kind, name, _ := strings.Cut(string(r), ":")
		if kind == "env" {
			value, ok := "", false
			if env != nil {
				value, ok = env(name)
			}
			if !ok || value == "" {
				return fail("the variable is not set")
			}
			return New(value), nil
		}
		f, err := os.Open(name)
		if err != nil {
			return fail("%v", err)
		}
		defer func() { _ = f.Close() }()
		data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		switch data = bytes.TrimRight(data, "\r\n"); {
		case err != nil:
			return fail("%v", err)
		case len(data) > maxFile:
			return fail("the file has more than %d bytes", maxFile)
		case len(data) == 0:
			return fail("the file is empty")
		}
		return New(string(data)), nil
	}
}
