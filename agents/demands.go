package agents

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// What a task may ask of its result (requires): format, evidence, decision_evidence
// and min_confidence. Package mesh holds results to the first three; here is what
// makes an agent's result so, and min_confidence.

// formats are what tasks may ask for in requires.format: what the document says that
// the agent gives; where it says nothing, all that what does its work can be asked for.
// Markdown is text, too.
func formats(a *aaif.Agent, byModel bool) []string {
	switch answerFormat(a) {
	case aaif.ResponseText:
		return []string{mesh.FormatText}
	case aaif.ResponseMarkdown:
		return []string{mesh.FormatMarkdown, mesh.FormatText}
	case aaif.ResponseJSON, aaif.ResponseJSONSchema:
		return []string{mesh.FormatJSON}
	}
	if byModel {
		return []string{mesh.FormatText, mesh.FormatMarkdown, mesh.FormatJSON}
	}
	return []string{mesh.FormatText, mesh.FormatJSON}
}

// formatFor is the form of the answer to a task: the document's, and where that leaves
// it open, the one that the sender requires.
func (l *loop) formatFor(task *mesh.Task) aaif.ResponseFormat {
	if l.format != "" {
		return l.format
	}
	switch task.Requires.Format {
	case mesh.FormatJSON:
		return aaif.ResponseJSON
	case mesh.FormatMarkdown:
		return aaif.ResponseMarkdown
	}
	return ""
}

// withRefs puts the evidence that requires.evidence asks for into a payload: evidence_refs,
// unless what did the work gave its own. Whether it may stand there was looked at before
// the work began.
func withRefs(task *mesh.Task, payload json.RawMessage, refs []string) json.RawMessage {
	if !task.Requires.Evidence {
		return payload
	}
	with, ok := addMember(payload, intents.EvidenceRefsMember, refs)
	if !ok {
		return payload
	}
	return with
}

// envelopeRef is how evidence names an envelope: its reference type (AEE, "The
// payload.references Array") and its id, by which aee.context.fetch finds it.
func envelopeRef(id string) string { return envelope.ReferenceType + ":" + id }

// evidenceRefs are what the answer of a model rests on, as far as the runtime knows:
// the task, what it refers to, the tools that were called, and the run's record.
func evidenceRefs(task *mesh.Task, r *run) []string {
	var refs []string
	for _, id := range contextRefs(task) {
		refs = append(refs, envelopeRef(id))
	}
	for _, name := range r.toolsUsed {
		refs = append(refs, "tool:"+name)
	}
	if run := task.Run(); run != nil {
		refs = append(refs, "run:"+run.ID())
	}
	return refs
}

// memberRefs are what the answer of a team rests on: the tasks of its members, whose
// envelopes and results aee.context.fetch finds.
func memberRefs(task *mesh.Task, res orchestrate.Result) []string {
	refs := []string{envelopeRef(task.Envelope.ID)}
	for _, id := range res.Tasks {
		refs = append(refs, envelopeRef(id))
	}
	return refs[:min(len(refs), maxInputs)]
}

// sure is a program or a handler, whose result says how sure it is where the task
// requires a confidence: in the member confidence, or in its decision evidence.
type sure struct{ mesh.Handler }

// Handle refuses a result that is not sure enough, or does not say so.
func (h sure) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	payload, err := h.Handler.Handle(ctx, task)
	if err != nil || !task.Requires.HasMinConfidence {
		return payload, err
	}
	var result struct {
		Confidence *float64 `json:"confidence"`
		Evidence   struct {
			Confidence *float64 `json:"confidence"`
		} `json:"decision_evidence"`
	}
	_ = json.Unmarshal(payload, &result) // what cannot be read says nothing
	switch c := slices.DeleteFunc([]*float64{result.Confidence, result.Evidence.Confidence}, func(c *float64) bool { return c == nil }); {
	case len(c) == 0:
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the result does not say how sure it is")
	case *c[0] < task.Requires.MinConfidence:
		return nil, tooUnsure(*c[0], task.Requires.MinConfidence)
	}
	return payload, nil
}

func tooUnsure(is, least float64) *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the agent's confidence in its answer is %v, below %v", is, least)
}

// unanswered refuses a confidence that no member of a swarm would be asked for: the
// result is put together of several, or chosen among them.
func unanswered(p *orchestrate.Plan, task *mesh.Task) error {
	if task.Requires.HasMinConfidence && p.Pattern == orchestrate.Swarm && p.Synthesizer < 0 && (p.Consensus != nil || !p.NeedsMind()) {
		return envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the result of this swarm is not one member's, so nothing says how sure it is; a synthesizer would")
	}
	return nil
}
