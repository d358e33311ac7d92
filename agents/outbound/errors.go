package outbound

import (
	"errors"
	"fmt"
)

// ErrRefused is what the policy does not allow. An error that is ErrRefused says
// why, for operators.
var ErrRefused = errors.New("refused by the operator's policy")

// ErrTooLarge is an answer beyond its bound.
var ErrTooLarge = errors.New("the answer is too large")

// ErrCredential is a credential that could not be had, or that does not fit its
// mechanism. Its text never holds the credential.
var ErrCredential = errors.New("credential")

// refusal is an ErrRefused with a reason and what an operator may do about it.
type refusal struct {
	reason string
	hint   string
	flag   string // of a worker, with its value
}

// Permit is the flag of a worker, with its value, that allows what an error says is
// refused; "" where no flag does.
func Permit(err error) string {
	var r *refusal
	if !errors.As(err, &r) {
		return ""
	}
	return r.flag
}

func (r *refusal) Error() string {
	if r.hint == "" {
		return ErrRefused.Error() + ": " + r.reason
	}
	return ErrRefused.Error() + ": " + r.reason + ": " + r.hint
}

func (r *refusal) Unwrap() error { return ErrRefused }

func refusef(format string, args ...any) *refusal {
	return &refusal{reason: fmt.Sprintf(format, args...)}
}

// allowHint names the line of configuration that allows a thing.
func (r *refusal) allowHint(section, entry string) *refusal {
	r.flag = map[string]string{"allow": "--allow", "private": "--allow-private", "files": "--allow-file"}[section] + " " + entry
	r.hint = fmt.Sprintf("to allow it, add %q to outbound.%s (worker %s)", entry, section, r.flag)
	return r
}
