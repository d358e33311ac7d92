package outcome

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/aeemesh/aeemesh/envelope"
)

// Failure is the member "error" that a failing command prints with --json. It
// is a contract, documented in docs/cli.md.
type Failure struct {
	Code      envelope.Code `json:"code"`
	Message   string        `json:"message"`
	Hint      string        `json:"hint,omitempty"`
	Retryable bool          `json:"retryable,omitempty"`
	BackoffMS int64         `json:"backoff_ms,omitempty"`
}

// Detailed is an error with further members beside "error" in JSON output.
type Detailed struct {
	error
	Members map[string]any
}

func (d *Detailed) Unwrap() error { return d.error }

// WithMember adds a member to the JSON that is printed when err ends the
// command, beside those that err has.
func WithMember(err error, name string, value any) error {
	members := map[string]any{}
	var has *Detailed
	if errors.As(err, &has) {
		maps.Copy(members, has.Members)
	}
	members[name] = value
	return &Detailed{err, members}
}

// WithReply adds the error envelope that a peer has sent.
func WithReply(err error, reply *envelope.Envelope) error {
	if reply == nil {
		return err
	}
	raw, encodeErr := reply.AppendJSON(nil)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	return WithMember(err, "envelope", json.RawMessage(raw))
}

// SaidError replaces the text of an error.
type SaidError struct {
	Text  string
	Cause error
}

func (e *SaidError) Error() string { return e.Text }
func (e *SaidError) Unwrap() error { return e.Cause }

// Remote describes an error of a peer or of the mesh without its hidden cause.
func Remote(e *envelope.Error) error {
	return Hinted(&SaidError{string(e.Code) + ": " + e.Message, e}, "%s", HintForCode(e))
}

// AskFailed describes why an agent did not answer a question about itself.
func AskFailed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ErrInterrupted
	}
	return SendFailed(ctx, err)
}

// SendFailed describes why a task failed.
func SendFailed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		if NotBegun(err) {
			return ErrInterrupted
		}
		return Hinted(Stopped(ctx.Err(), "interrupted; the agent has been asked to stop"), "")
	}
	var e *envelope.Error
	if errors.As(err, &e) {
		return Remote(e)
	}
	return err
}

// NotBegun reports whether the error of a live task says that no agent has begun it, as between
// two tries.
func NotBegun(err error) bool {
	var e *envelope.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case envelope.CodeBusy, envelope.CodeRateLimited, envelope.CodeDraining:
		return true
	case envelope.CodeNoResponders:
		return !e.FromPeer()
	}
	return e.SaysNotBegun()
}
