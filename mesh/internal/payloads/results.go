package payloads

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// The values of requires.format that this mesh knows, see package mesh.
const (
	FormatText     = "text"     // the member text, a string
	FormatMarkdown = "markdown" // the same; the text is Markdown
	FormatJSON     = "json"     // members of the agent's own, not a text alone
)

// defaultFormats are the formats of agents that name none. The mesh can tell a text from
// other JSON, but not Markdown from other text.
var defaultFormats = []string{FormatText, FormatJSON}

// CanGive refuses a task that requires a format or evidence that this agent's results cannot have.
// intent is the task's intent; the agent handles the task under the intent as.
func (a *Agent) CanGive(r *envelope.Requirements, intent, as string) error {
	evidence := wantsEvidence(r)
	if r.Format == "" && !r.Evidence && !evidence {
		return nil
	}
	if intents.Reserved(intent) {
		if r.Evidence || evidence || r.Format != "" && r.Format != FormatJSON {
			return envelope.Errorf(envelope.CodeRequires, "requires: the results of %s are fixed by the specification: format json, no evidence", clip.Text(intent, 128))
		}
		return nil
	}
	schema := a.gives(as)
	for member, wanted := range map[string]bool{intents.EvidenceRefsMember: r.Evidence, intents.EvidenceMember: evidence} {
		if wanted && intents.ClosedTo(schema, member) {
			return envelope.Errorf(envelope.CodeRequires, "requires asks for %s, which the schema of this agent's results does not allow", member)
		}
	}
	if r.Format == "" {
		return nil
	}
	formats := a.Formats
	if formats == nil {
		formats = defaultFormats
	}
	switch {
	case !slices.Contains(formats, r.Format):
		return envelope.Errorf(envelope.CodeRequires, "requires.format: this agent gives %s, not %s", strings.Join(formats, " or "), clip.Text(r.Format, 128))
	case r.Format != FormatJSON && schema != nil && schema.Validate(json.RawMessage(`{"text":"an answer"}`)) != nil:
		return envelope.Errorf(envelope.CodeRequires, "requires.format: the schema of this agent's results does not allow a text alone, so a result cannot be %s", r.Format)
	}
	return nil
}

// gives returns the schema of the results of an intent, nil if there is none.
func (a *Agent) gives(intent string) *intents.Schema {
	if !a.Intents.Has(intent) {
		intent = a.Default
	}
	return a.Intents.Schema(intent, intents.Result)
}

func wantsEvidence(r *envelope.Requirements) bool {
	return r.DecisionEvidence != "" && r.DecisionEvidence != envelope.EvidenceNone
}

// satisfies checks a result against the format and the evidence that the task requires.
func satisfies(r *envelope.Requirements, payload json.RawMessage) error {
	if wantsEvidence(r) {
		if err := intents.CheckEvidence(intents.EvidenceLevel(r.DecisionEvidence), payload); err != nil {
			return envelope.Errorf(envelope.CodeOutputSchema, "the result lacks the decision evidence that the task requires (%s): %v", r.DecisionEvidence, err)
		}
	}
	if !r.Evidence && r.Format == "" {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		return envelope.Errorf(envelope.CodeOutputSchema, "the result is not a JSON object")
	}
	if r.Evidence {
		var refs []string
		if json.Unmarshal(members[intents.EvidenceRefsMember], &refs) != nil || len(refs) == 0 || slices.Contains(refs, "") {
			return envelope.Errorf(envelope.CodeOutputSchema, "the result lacks the evidence that the task requires: %s, a list of strings that name the sources of the result", intents.EvidenceRefsMember)
		}
	}
	if r.Format == "" {
		return nil
	}
	var text *string
	alone := json.Unmarshal(members["text"], &text) == nil && text != nil
	if r.Format != FormatJSON && !alone {
		return envelope.Errorf(envelope.CodeOutputSchema, "the result has no text, and the task requires the format %s", clip.Text(r.Format, 128))
	}
	for name := range members {
		alone = alone && (name == "text" || name == intents.EvidenceRefsMember || wire.ReservedMember(name))
	}
	if r.Format == FormatJSON && alone {
		return envelope.Errorf(envelope.CodeOutputSchema, "the result is a text, and the task requires the format json")
	}
	return nil
}
