package wire

// Names of NATS headers. Those that begin with Aee are the mesh's own
// (docs/nats-binding.md).
const (
	HeaderContentType = "Content-Type"
	HeaderTraceParent = "traceparent"
	HeaderFrom        = "Aee-From"         // the sender of plain text on aee.ask.*
	HeaderStreamCount = "Aee-Stream-Count" // on a terminal envelope: the number of stream envelopes before it
	HeaderHandoff     = "Aee-Handoff"      // on a reply: the chain of links, which proves that its author may answer ("Delegated tasks")
	HeaderHolder      = "Aee-Holder"       // on a message without a body to the reply subject of a live task: the worker that has the task
	HeaderTask        = "Aee-Task"         // the id of the task that a message without an envelope is about
	HeaderRun         = "Aee-Run"          // on a message of the work queue: it is no new task, and resumes the run with this id
	HeaderEpoch       = "Aee-Epoch"        // on a reply: the epoch of the run's owner that made it
	HeaderTaskDigest  = "Aee-Task-Digest"  // on the terminal reply to a durable task: the task's digest, because several tasks may have the same id
)

// HeaderText converts a message to printable ASCII of at most 256 bytes, for one header
// line.
func HeaderText(s string) string {
	const limit = 256
	out := make([]byte, 0, min(len(s), limit))
	for i := 0; i < len(s) && len(out) < limit; i++ {
		if c := s[i]; c >= 0x20 && c < 0x7f {
			out = append(out, c)
		} else {
			out = append(out, ' ')
		}
	}
	return string(out)
}

// OlderEpoch compares two decimal numbers without leading zeros.
func OlderEpoch(a, b string) bool {
	return len(a) < len(b) || len(a) == len(b) && a < b
}

// Keys of the metadata of a worker's NATS micro service. Package mesh describes them.
const (
	MetaEntity   = "entity"
	MetaPrefix   = "prefix"
	MetaAgentID  = "agent_id"
	MetaSealed   = "sealed"
	MetaSealKeys = "seal_keys"
)

// NoVersion is the version of a worker whose agent states none.
const NoVersion = "0.0.0"
