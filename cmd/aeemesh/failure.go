package main

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
)

// failure is the member "error" that a failing command prints with --json. It
// is a contract, documented in docs/cli.md.
type failure struct {
	Code      envelope.Code `json:"code"`
	Message   string        `json:"message"`
	Hint      string        `json:"hint,omitempty"`
	Retryable bool          `json:"retryable,omitempty"`
	BackoffMS int64         `json:"backoff_ms,omitempty"`
}

// detailed is an error with further members beside "error" in JSON output.
type detailed struct {
	error
	members map[string]any
}

func (d *detailed) Unwrap() error { return d.error }

// withMember adds a member to the JSON that is printed when err ends the
// command.
func withMember(err error, name string, value any) error {
	return &detailed{err, map[string]any{name: value}}
}

// withReply adds the error envelope that a peer has sent.
func withReply(err error, reply *envelope.Envelope) error {
	if reply == nil {
		return err
	}
	raw, encodeErr := reply.AppendJSON(nil)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	return withMember(err, "envelope", json.RawMessage(raw))
}

// saidError replaces the text of an error.
type saidError struct {
	text  string
	cause error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.cause }

// remote describes an error of a peer or of the mesh without its hidden cause.
func remote(e *envelope.Error) error {
	return hinted(&saidError{string(e.Code) + ": " + e.Message, e}, "%s", hintForCode(e))
}

// failed prints an error, with --json also as JSON, and returns the exit
// status.
func (a *app) failed(err error, args []string) int {
	o := outcome.Of(err)
	var usage *usageError
	if !a.began && !errors.As(err, &usage) {
		err = &usageError{err: err}
	}
	if errors.As(err, &usage) {
		o = outcome.Outcome{Code: outcome.CodeUsage, Exit: outcome.Usage}
		// A wrong command line may have kept --json from being parsed.
		if end := slices.Index(args, "--"); end >= 0 {
			args = args[:end]
		}
		a.term.json = a.term.json || slices.Contains(args, "--json")
		if f := "--log-format"; slices.Contains(args, f+"=json") || strings.Contains(strings.Join(args, "\n")+"\n", f+"\njson\n") || strings.EqualFold(a.env("AEEMESH_LOG_FORMAT"), formatJSON) {
			a.levels.format = formatJSON
		}
		a.recordWords()
	}
	a.term.fail(err)
	if !a.term.json {
		return o.Exit
	}
	f := failure{Code: o.Code, Message: strings.TrimPrefix(errorText(err), string(o.Code)+": "), Hint: hintFor(err)}
	if errors.Is(err, errQuiet) {
		f.Message = "a check failed, or something was not done; what was printed before says which"
	}
	var peer *envelope.Error
	if errors.As(err, &peer) && peer.Code == o.Code {
		f.Retryable, f.BackoffMS = peer.Retryable, peer.BackoffMS
	}
	out := map[string]any{}
	var more *detailed
	if errors.As(err, &more) {
		maps.Copy(out, more.members)
	}
	out["error"] = f
	if a.term.object(out) != nil {
		return outcome.Failed
	}
	return o.Exit
}
