package outbound

import (
	"errors"
	"fmt"
)

// ErrRefused is wrapped by the errors of requests that the policy does not
// permit. Their texts say why, for operators.
var ErrRefused = errors.New("refused by the operator's policy")

// ErrTooLarge is the error of an answer that exceeds its limit.
var ErrTooLarge = errors.New("the answer is too large")

// ErrCredential is the error of a credential that could not be read, or that
// does not fit its mechanism. Its text never contains the credential.
var ErrCredential = errors.New("credential")

// refusal is an ErrRefused with a reason, and a hint how an operator can permit
// the request.
type refusal struct {
	reason string
	hint   string
	flag   string // the worker flag, with its value
}

// Permit returns the worker flag, with its value, that would permit what err
// refuses; "" if there is none.
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

// allowHint adds the line of configuration that would permit it.
func (r *refusal) allowHint(section, entry string) *refusal {
	r.flag = map[string]string{"allow": "--allow", "private": "--allow-private", "files": "--allow-file"}[section] + " " + entry
	r.hint = fmt.Sprintf("to allow it, add %q to outbound.%s (worker %s)", entry, section, r.flag)
	return r
}
