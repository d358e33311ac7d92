package state

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// HandoffType is the media type of a streaming handoff (AAIF, Streaming Handoff Wire
// Format). It may only be sent over TLS.
const HandoffType = "application/x-aaif-handoff+ndjson"

// The types of a handoff's messages, each a line of JSON. The draft names the types and
// leaves their members open; docs/migration.md lists the members that we use.
const (
	msgInit     = "handoff_init"     // the token, and the document without the parts that follow
	msgContext  = "context_chunk"    // an item of conversation
	msgMemory   = "memory_item"      // an item of memory_snapshot
	msgPipeline = "pipeline_state"   // members of the document: pipeline_position, variables, approval_request, error, x-…
	msgTool     = "pending_tool"     // an item of pending_tool_calls
	msgSubagent = "subagent_ref"     // an item of subagent_states
	msgComplete = "handoff_complete" // the checksum
	msgError    = "handoff_error"    // code and message: the receiver must discard everything
)

// handoffLists are the lists of a document, by the type of the messages that carry their
// items, in the order in which they are written.
var handoffLists = []struct{ typ, member string }{
	{msgContext, "conversation"},
	{msgMemory, "memory_snapshot"},
	{msgTool, "pending_tool_calls"},
	{msgSubagent, "subagent_states"},
}

// handoffList returns the list that a message type carries, "" for other types.
func handoffList(typ string) string {
	for _, l := range handoffLists {
		if l.typ == typ {
			return l.member
		}
	}
	return ""
}

// inPipelineState reports whether pipeline_state carries the member of a document.
func inPipelineState(name string) bool {
	switch name {
	case "pipeline_position", "variables", "approval_request", "error":
		return true
	}
	return len(name) > 2 && name[:2] == "x-"
}

// HandoffLimits limit what a reader accepts. The zero value means the defaults.
type HandoffLimits struct {
	Line     int   // bytes of one line; default and minimum 256 KiB
	Total    int64 // bytes of all lines; default 64 MiB
	Messages int   // default 100,000
}

const (
	minHandoffLine  = 256 << 10
	maxHandoffTotal = 64 << 20
	maxHandoffLines = 100_000
	// handoffPart is how many bytes of one value's JSON go into a line. As a string they
	// are at most about twice as long: JSON text contains no control characters, which
	// would need six bytes each.
	handoffPart = 32 << 10
)

func (l HandoffLimits) withDefaults() HandoffLimits {
	l.Line = max(l.Line, minHandoffLine)
	if l.Total <= 0 {
		l.Total = maxHandoffTotal
	}
	if l.Messages <= 0 {
		l.Messages = maxHandoffLines
	}
	return l
}

// HandoffCode is the reason of a failed handoff, for programs.
type HandoffCode string

// The codes, a closed set. A code of a later release is read as [HandoffInternal].
const (
	HandoffInvalid       HandoffCode = "invalid"        // a line is not a message of the format, or out of order
	HandoffTooLarge      HandoffCode = "too_large"      // over a limit of the receiver
	HandoffNoState       HandoffCode = "no_state"       // not a valid Agent State document
	HandoffChecksum      HandoffCode = "checksum"       // the received document differs from the sent one
	HandoffTokenInvalid  HandoffCode = "token_invalid"  // see ErrTokenInvalid, and so on
	HandoffTokenKey      HandoffCode = "token_key"      //
	HandoffTokenExpired  HandoffCode = "token_expired"  //
	HandoffTokenAudience HandoffCode = "token_audience" //
	HandoffTokenState    HandoffCode = "token_state"    //
	HandoffTokenUsed     HandoffCode = "token_used"     //
	HandoffUnknownAgent  HandoffCode = "unknown_agent"  // the receiver does not host this agent
	HandoffRunExists     HandoffCode = "run_exists"     // the receiver has this run already
	HandoffAborted       HandoffCode = "aborted"        // the sender, or an operator, aborted it
	HandoffTimeout       HandoffCode = "timeout"        // the other side took too long
	HandoffInternal      HandoffCode = "internal"       // the receiver failed; its log has the reason
)

// The errors of a handoff, in addition to those of tokens.
var (
	ErrHandoffInvalid = errors.New("not a handoff stream")
	ErrUnknownAgent   = errors.New("unknown agent")
	ErrRunExists      = errors.New("the run is here already")
	ErrHandoffAborted = errors.New("the handoff was aborted")
	ErrHandoffTimeout = errors.New("the handoff took too long")
)

// handoffCodes maps errors to codes. The first match counts.
var handoffCodes = []struct {
	err  error
	code HandoffCode
}{
	{ErrTokenInvalid, HandoffTokenInvalid},
	{ErrTokenKey, HandoffTokenKey},
	{ErrTokenExpired, HandoffTokenExpired},
	{ErrTokenAudience, HandoffTokenAudience},
	{ErrTokenState, HandoffTokenState},
	{ErrTokenUsed, HandoffTokenUsed},
	{ErrUnknownAgent, HandoffUnknownAgent},
	{ErrRunExists, HandoffRunExists},
	{ErrChecksum, HandoffChecksum},
	{ErrTooLarge, HandoffTooLarge},
	{ErrInvalid, HandoffNoState},
	{ErrNewer, HandoffNoState},
	{ErrHandoffInvalid, HandoffInvalid},
	{ErrHandoffTimeout, HandoffTimeout},
	{ErrHandoffAborted, HandoffAborted},
}

// A HandoffError is the reason of a failed handoff, as one side reports it to the other:
// the content of a handoff_error message. errors.Is finds the class, such as
// [ErrTokenExpired], on both sides.
type HandoffError struct {
	Code    HandoffCode `json:"code"`
	Message string      `json:"message"` // for people; the other side can read it
	Remote  bool        `json:"-"`       // the other side reported it
}

// NewHandoffError returns what the other side may read about err: its code and its text,
// or only [HandoffInternal] if err is of no known class.
func NewHandoffError(err error) *HandoffError {
	var e *HandoffError
	if errors.As(err, &e) {
		return e
	}
	for _, c := range handoffCodes {
		if errors.Is(err, c.err) {
			return &HandoffError{Code: c.code, Message: clip.Text(err.Error(), 500)}
		}
	}
	return &HandoffError{Code: HandoffInternal, Message: "the handoff failed; the log of the side that failed says more"}
}

// RemoteHandoffError returns the error that the other side reported.
func RemoteHandoffError(code, message string) *HandoffError {
	e := &HandoffError{Code: HandoffInternal, Message: clip.Text(message, 500), Remote: true}
	for _, c := range handoffCodes {
		if string(c.code) == code {
			e.Code = c.code
		}
	}
	return e
}

// Error returns the code and the message, and says whether the other side reported them.
func (e *HandoffError) Error() string {
	if e.Remote {
		return fmt.Sprintf("the other side says %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the class of the error.
func (e *HandoffError) Unwrap() error {
	for _, c := range handoffCodes {
		if c.code == e.Code {
			return c.err
		}
	}
	return nil
}
