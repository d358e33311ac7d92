package wire

// Names of NATS headers. Package mesh describes those that begin with Aee.
const (
	HeaderContentType = "Content-Type"
	HeaderTraceParent = "traceparent"
	HeaderFrom        = "Aee-From"
	HeaderStreamCount = "Aee-Stream-Count"
	HeaderHandoff     = "Aee-Handoff"
	HeaderHolder      = "Aee-Holder"
	HeaderTask        = "Aee-Task"
	HeaderRun         = "Aee-Run"
	HeaderEpoch       = "Aee-Epoch"
	HeaderTaskDigest  = "Aee-Task-Digest"
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
