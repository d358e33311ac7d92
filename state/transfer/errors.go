package transfer

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
)

// Code is the reason of a failed handoff, for programs.
type Code string

// The codes, a closed set. A code of a later release is read as [CodeInternal].
const (
	CodeInvalid       Code = "invalid"        // a line is not a message of the format, or out of order
	CodeTooLarge      Code = "too_large"      // over a limit of the receiver
	CodeNoState       Code = "no_state"       // not a valid Agent State document
	CodeChecksum      Code = "checksum"       // the received document differs from the sent one
	CodeTokenInvalid  Code = "token_invalid"  // see ErrTokenInvalid, and so on
	CodeTokenKey      Code = "token_key"      //
	CodeTokenExpired  Code = "token_expired"  //
	CodeTokenAudience Code = "token_audience" //
	CodeTokenState    Code = "token_state"    //
	CodeTokenUsed     Code = "token_used"     //
	CodeUnknownAgent  Code = "unknown_agent"  // the receiver does not host this agent
	CodeRunExists     Code = "run_exists"     // the receiver has this run already
	CodeAborted       Code = "aborted"        // the sender, or an operator, aborted it
	CodeTimeout       Code = "timeout"        // the other side took too long
	CodeInternal      Code = "internal"       // the receiver failed; its log has the reason
)

// The errors of a handoff, in addition to those of tokens and of package state.
var (
	ErrStream       = errors.New("not a handoff stream")
	ErrUnknownAgent = errors.New("unknown agent")
	ErrRunExists    = errors.New("the run is here already")
	ErrAborted      = errors.New("the handoff was aborted")
	ErrTimeout      = errors.New("the handoff took too long")
)

// codes maps errors to codes. The first match counts.
var codes = []struct {
	err  error
	code Code
}{
	{ErrTokenInvalid, CodeTokenInvalid},
	{ErrTokenKey, CodeTokenKey},
	{ErrTokenExpired, CodeTokenExpired},
	{ErrTokenAudience, CodeTokenAudience},
	{ErrTokenState, CodeTokenState},
	{ErrTokenUsed, CodeTokenUsed},
	{ErrUnknownAgent, CodeUnknownAgent},
	{ErrRunExists, CodeRunExists},
	{state.ErrChecksum, CodeChecksum},
	{state.ErrTooLarge, CodeTooLarge},
	{state.ErrInvalid, CodeNoState},
	{state.ErrNewer, CodeNoState},
	{ErrStream, CodeInvalid},
	{ErrTimeout, CodeTimeout},
	{ErrAborted, CodeAborted},
}

// An Error is the reason of a failed handoff, as one side reports it to the other: the
// content of a handoff_error message. errors.Is finds the class, such as
// [ErrTokenExpired], on both sides.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // for people; the other side can read it
	Remote  bool   `json:"-"`       // the other side reported it
}

// maxMessage bounds the message of an [Error], in bytes.
const maxMessage = 512

// NewError returns what the other side may read about err: its code and its text,
// or only [CodeInternal] if err is of no known class.
func NewError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return &Error{Code: c.code, Message: clip.Text(err.Error(), maxMessage)}
		}
	}
	return &Error{Code: CodeInternal, Message: "the handoff failed; the log of the side that failed says more"}
}

// RemoteError returns the error that the other side reported.
func RemoteError(code, message string) *Error {
	e := &Error{Code: CodeInternal, Message: clip.Text(message, maxMessage), Remote: true}
	for _, c := range codes {
		if string(c.code) == code {
			e.Code = c.code
		}
	}
	return e
}

// Error returns the code and the message, and says whether the other side reported them.
func (e *Error) Error() string {
	if e.Remote {
		return fmt.Sprintf("the other side says %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the class of the error.
func (e *Error) Unwrap() error {
	for _, c := range codes {
		if c.code == e.Code {
			return c.err
		}
	}
	return nil
}
