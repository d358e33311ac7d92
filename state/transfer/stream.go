package transfer

// MediaType is the media type of a streaming handoff (AAIF, Streaming Handoff Wire
// Format). It may only be sent over TLS.
const MediaType = "application/x-aaif-handoff+ndjson"

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

// lists are the lists of a document, by the type of the messages that carry their
// items, in the order in which they are written.
var lists = []struct{ typ, member string }{
	{msgContext, "conversation"},
	{msgMemory, "memory_snapshot"},
	{msgTool, "pending_tool_calls"},
	{msgSubagent, "subagent_states"},
}

// listOf returns the list that a message type carries, "" for other types.
func listOf(typ string) string {
	for _, l := range lists {
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

// Limits limit what a reader accepts. The zero value means the defaults.
type Limits struct {
	Line     int   // bytes of one line; default and minimum 256 KiB
	Total    int64 // bytes of all lines; default 64 MiB
	Messages int   // default 100,000
}

const (
	minLine     = 256 << 10
	maxTotal    = 64 << 20
	maxMessages = 100_000
	// maxPart is how many bytes of one value's JSON go into a line. As a string they
	// are at most about twice as long: JSON text contains no control characters, which
	// would need six bytes each.
	maxPart = 32 << 10
)

func (l Limits) withDefaults() Limits {
	l.Line = max(l.Line, minLine)
	if l.Total <= 0 {
		l.Total = maxTotal
	}
	if l.Messages <= 0 {
		l.Messages = maxMessages
	}
	return l
}
