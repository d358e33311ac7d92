package mesh

import "github.com/aeemesh/aeemesh/mesh/internal/payloads"

// The values of requires.format that this mesh knows. A payload is always a JSON object,
// so a format describes its members.
const (
	FormatText     = payloads.FormatText     // the member text, a string
	FormatMarkdown = payloads.FormatMarkdown // the same; the text is Markdown
	FormatJSON     = payloads.FormatJSON     // members of the agent's own, not a text alone
)
