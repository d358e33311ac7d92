package agents

import (
	"context"
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// A task may set conditions for its result (requires): format, evidence,
// decision_evidence and min_confidence. Package mesh checks results against the
// first three. This file makes an agent's results meet them, and checks
// min_confidence.

// formats are the formats that tasks may require in requires.format: the one
// that the document fixes, where markdown also counts as text; if it fixes
// none, text and JSON, and also markdown if a model does the work.
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

// formatFor is the form of the answer to a task: the document's, or, if the
// document fixes none, the one that the task requires.
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

// withRefs adds evidence_refs to a payload, for requires.evidence, unless the
// payload has them already. Whether the schema permits the member was checked
// before the work began.
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

// envelopeRef names an envelope in evidence: its reference type (AEE, "The
// payload.references Array") and its id, with which aee.context.fetch finds it.
func envelopeRef(id string) string { return envelope.ReferenceType + ":" + id }

// evidenceRefs lists what the runtime knows that a model's answer rests on: the
// task, the envelopes that it refers to, the tasks of the team's members, the
// tools that were called, and the run's record.
func evidenceRefs(ctx context.Context, task *mesh.Task, r *run) []string {
	members := orchestrate.Answered(ctx)
	var refs []string
	for _, id := range append(contextRefs(task), members[:min(len(members), maxInputs)]...) {
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

// memberRefs lists what a team's answer rests on: the tasks of its members.
// aee.context.fetch finds their envelopes and results.
func memberRefs(task *mesh.Task, res orchestrate.Result) []string {
	refs := []string{envelopeRef(task.Envelope.ID)}
	for _, id := range res.Tasks {
		refs = append(refs, envelopeRef(id))
	}
	return refs[:min(len(refs), maxInputs)]
}

// sure wraps a program or a handler. If a task requires a confidence, the
// result must state one, in its member confidence or in its decision evidence.
type sure struct {
	mesh.Handler
	secrets *secret.Redactor
}

// Sure returns a handler that does what h does, and what [New] adds to a Handler or a Program: if a
// task requires a confidence, the result must state one, and no error has a secret that the Redactor
// knows. For a nil function it returns nil, which no node serves.
func Sure(h mesh.Handler, secrets *secret.Redactor) mesh.Handler {
	if f, isFunc := h.(mesh.HandlerFunc); isFunc && f == nil {
		return nil
	}
	return sure{h, secrets}
}

// Handle refuses a result whose confidence is too low or missing, and redacts errors.
func (h sure) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	payload, err := h.Handler.Handle(ctx, task)
	if err == nil {
		err = intents.CheckConfidence(&task.Requires, payload)
	}
	return payload, h.secrets.Error(err)
}

// unanswered refuses a task that requires a confidence if no member of the
// swarm would be asked for one: the result is assembled from several answers,
// or chosen among them.
func unanswered(p *orchestrate.Plan, task *mesh.Task) error {
	if task.Requires.HasMinConfidence && p.Pattern == orchestrate.Swarm && p.Synthesizer < 0 && (p.Consensus != nil || !p.NeedsMind()) {
		return envelope.Errorf(envelope.CodeRequires, "requires.min_confidence: the result of this swarm is not one member's, so nothing says how sure it is; a synthesizer would")
	}
	return nil
}
