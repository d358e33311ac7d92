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

// Reference is how an operator's configuration names a credential: env:NAME or
// file:PATH. It is never the credential itself.
type Reference string

// Check reports what is wrong with a reference. It does not repeat the text,
// which may be a credential that was put in its place.
func (r Reference) Check() error {
	kind, name, _ := strings.Cut(string(r), ":")
	if (kind != "env" && kind != "file") || name == "" {
		return errors.New("it is env:NAME or file:PATH, never the credential itself")
	}
	return nil
}

// UnmarshalText refuses what is no reference.
func (r *Reference) UnmarshalText(text []byte) error {
	*r = Reference(text)
	if len(text) == 0 {
		return nil
	}
	return r.Check()
}

// Lookup reads what an operator's reference names, now.
type Lookup func(ctx context.Context, r Reference) (Secret, error)

// maxFile is the size of the largest file that holds a credential.
const maxFile = 64 << 10

// Operator is the Lookup of a process: variables by env, and files of up to
// 64 KiB, without the line end that editors put at their end. These are the
// operator's own references: no list of what is allowed holds them.
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
