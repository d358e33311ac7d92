package state

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// HandoffType is the media type of a streaming handoff (AAIF, Streaming Handoff Wire Format). It may be sent over TLS
// only.
const HandoffType = "application/x-aaif-handoff+ndjson"

// The types of a handoff's messages, each a line of JSON. The draft names them and leaves their members open;
// docs/migration.md has those that we give them.
const (
	msgInit     = "handoff_init"     // the token, and the document without what follows
	msgContext  = "context_chunk"    // an item of conversation
	msgMemory   = "memory_item"      // an item of memory_snapshot
	msgPipeline = "pipeline_state"   // members of the document: pipeline_position, variables, approval_request, error, x-…
	msgTool     = "pending_tool"     // an item of pending_tool_calls
	msgSubagent = "subagent_ref"     // an item of subagent_states
	msgComplete = "handoff_complete" // the checksum
	msgError    = "handoff_error"    // code and message: all that was sent is void
)

// handoffLists are the lists of a document, by the type of the messages that carry their items, in the order in
// which they are written.
var handoffLists = []struct{ typ, member string }{
	{msgContext, "conversation"},
	{msgMemory, "memory_snapshot"},
	{msgTool, "pending_tool_calls"},
	{msgSubagent, "subagent_states"},
}

// handoffList is the list that a message type carries, "" for other types.
func handoffList(typ string) string {
	for _, l := range handoffLists {
		if l.typ == typ {
			return l.member
		}
	}
	return ""
}

// inPipelineState says whether pipeline_state carries the member of a document.
func inPipelineState(name string) bool {
	switch name {
	case "pipeline_position", "variables", "approval_request", "error":
		return true
	}
	return len(name) > 2 && name[:2] == "x-"
}

// HandoffLimits bound what a reader takes in. The zero value stands for the defaults.
type HandoffLimits struct {
	Line     int   // bytes of one line; default and least 256 KiB
	Total    int64 // bytes of all lines; default 64 MiB
	Messages int   // default 100,000
}

const (
	minHandoffLine  = 256 << 10
	maxHandoffTotal = 64 << 20
	maxHandoffLines = 100_000
	// handoffPart is how much of one value's JSON goes into a line. As a string it is at most twice as long, give or
	// take: JSON has no control characters left that would take six.
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

// HandoffCode says why a handoff failed, to programs.
type HandoffCode string

// The codes, a closed set. A code that a later release adds is read as [HandoffInternal].
const (
	HandoffInvalid       HandoffCode = "invalid"        // a line is no message of the format, or out of its order
	HandoffTooLarge      HandoffCode = "too_large"      // a limit of the receiver's
	HandoffNoState       HandoffCode = "no_state"       // what was sent is no valid Agent State document
	HandoffChecksum      HandoffCode = "checksum"       // the document is not the one that was sent
	HandoffTokenInvalid  HandoffCode = "token_invalid"  // see ErrTokenInvalid, and so on
	HandoffTokenKey      HandoffCode = "token_key"      //
	HandoffTokenExpired  HandoffCode = "token_expired"  //
	HandoffTokenAudience HandoffCode = "token_audience" //
	HandoffTokenState    HandoffCode = "token_state"    //
	HandoffTokenUsed     HandoffCode = "token_used"     //
	HandoffUnknownAgent  HandoffCode = "unknown_agent"  // the receiver does not host this agent
	HandoffRunExists     HandoffCode = "run_exists"     // the receiver has this run already
	HandoffAborted       HandoffCode = "aborted"        // the sender, or an operator, changed his mind
	HandoffTimeout       HandoffCode = "timeout"        // the other side took too long
	HandoffInternal      HandoffCode = "internal"       // the receiver failed; its log says how
)

// What a handoff may fail with, besides the errors of tokens.
var (
	ErrHandoffInvalid = errors.New("not a handoff stream")
	ErrUnknownAgent   = errors.New("unknown agent")
	ErrRunExists      = errors.New("the run is here already")
	ErrHandoffAborted = errors.New("the handoff was aborted")
	ErrHandoffTimeout = errors.New("the handoff took too long")
)

// handoffCodes are the classes of errors that have a code, in the order in which they are looked for.
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

// A HandoffError is why a handoff failed, as one side tells the other: the content of a handoff_error message.
// errors.Is finds the class, such as [ErrTokenExpired], on both sides.
type HandoffError struct {
	Code    HandoffCode `json:"code"`
	Message string      `json:"message"` // for people, and for the other side to read
	Remote  bool        `json:"-"`       // the other side said it
}

// NewHandoffError is what the other side may be told about err: its class and its text, if it is of a class at all.
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

// RemoteHandoffError is what the other side has said.
func RemoteHandoffError(code, message string) *HandoffError {
	e := &HandoffError{Code: HandoffInternal, Message: clip.Text(message, 500), Remote: true}
	for _, c := range handoffCodes {
		if string(c.code) == code {
			e.Code = c.code
		}
	}
	return e
}

// Error tells the message, and who said it.
func (e *HandoffError) Error() string {
	if e.Remote {
		return fmt.Sprintf("the other side says %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap is the class.
func (e *HandoffError) Unwrap() error {
	for _, c := range handoffCodes {
		if c.code == e.Code {
			return c.err
		}
	}
	return nil
}
