package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

func wantsEvidence(task *mesh.Task) bool {
	level := task.Requires.DecisionEvidence
	return level != "" && level != envelope.EvidenceNone
}

const accountPrompt = `Account for your last answer. Reply with one JSON object and nothing else:
{"decision": "the decision that you reached, concisely", "reason_summary": "why, in one to three sentences", "action_taken": "what you did", "confidence": a number from 0 to 1}`

// account adds to the payload the members beside the answer: decision evidence,
// if the task requires it, and usage.
//
// The runtime itself fills in the tools that were called, the inputs and the
// context. Decision, reason, action and confidence come from the model: from
// its answer, or from one more turn. For a model that cannot state them (the
// offline one) describe fills them in, with confidence 0.
func (l *loop) account(ctx context.Context, task *mesh.Task, r *run) error {
	if wantsEvidence(task) || task.Requires.HasMinConfidence {
		e, err := l.evidence(ctx, task, r)
		if err != nil {
			return err
		}
		if least := task.Requires.MinConfidence; *e.Confidence < least {
			return intents.TooUnsure(*e.Confidence, least)
		}
		if err := l.addEvidence(task, r, e); err != nil {
			return err
		}
	}
	r.payload = withRefs(task, r.payload, evidenceRefs(ctx, task, r))
	l.addUsage(task, r)
	r.phase = phaseDone
	return r.stage(state.Step{Kind: state.StepAnswer}, (*progress).save)
}

// evidence returns the complete decision evidence, whatever the required level.
func (l *loop) evidence(ctx context.Context, task *mesh.Task, r *run) (*intents.DecisionEvidence, error) {
	own := ownEvidence(r.payload)
	if own == nil && r.turns < l.maxTurns {
		var err error
		if own, err = l.askForEvidence(ctx, task, r); err != nil {
			return nil, err
		}
	}
	if own == nil {
		own = describe(r)
	}
	if own.ActionTaken == "" {
		own.ActionTaken = describe(r).ActionTaken
	}
	if own.Confidence == nil {
		own.Confidence = new(float64)
	}
	own.InputsUsed, own.ToolsUsed, own.ContextRefs = inputsUsed(task), slices.Clone(r.toolsUsed), contextRefs(task)
	if own.ToolsUsed == nil {
		own.ToolsUsed = []string{}
	}
	return own, nil
}

// ownEvidence returns the decision evidence in a model's answer, nil if there
// is none.
func ownEvidence(payload json.RawMessage) *intents.DecisionEvidence {
	var answer struct {
		Evidence *intents.DecisionEvidence `json:"decision_evidence"`
	}
	if json.Unmarshal(payload, &answer) != nil {
		return nil
	}
	return usable(answer.Evidence)
}

// usable returns e if it has the members that every level demands and no
// impossible value, else nil.
func usable(e *intents.DecisionEvidence) *intents.DecisionEvidence {
	if e == nil || e.Decision == "" || e.ReasonSummary == "" {
		return nil
	}
	if c := e.Confidence; c != nil && (*c < 0 || *c > 1) {
		e.Confidence = nil
	}
	return e
}

// askForEvidence takes one more turn of the model for evidence, after the
// answer was committed. Transient failures are retried as those of any turn are.
// If the model fails here for good, the run still has its answer; it fails only
// if the task requires a confidence and another attempt may learn it.
func (l *loop) askForEvidence(ctx context.Context, task *mesh.Task, r *run) (*intents.DecisionEvidence, error) {
	for tries := 0; ; {
		if err := r.write(ctx, state.Step{Kind: state.StepAnswer}, r.save); err != nil {
			return nil, err
		}
		req := l.base // offers no tools
		req.Format = model.Format{Type: model.FormatJSON}
		req.Messages = l.window(task, r, &req)
		conversation := req // what can be shortened
		req.Messages = append(slices.Clip(req.Messages), model.User(accountPrompt))
		req.Fit = l.fitter(r, &req, model.User(accountPrompt))
		begun := time.Now()
		res, err := l.quietly(ctx, task, r, &req)
		switch {
		case err == nil:
			return readEvidence(r, res, time.Since(begun))
		case errors.Is(err, errStopped) && ctx.Err() == nil:
			if err := r.pause(ctx); err != nil {
				return nil, err
			}
		case errors.Is(err, model.ErrContextTooLong) && l.shorten(task, r, &conversation):
		case l.again(ctx, task, r, &tries, err):
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case task.Requires.MinConfidence > 0 && transient(err):
			return nil, l.modelFailure(ctx, task, r, err)
		default:
			r.turns++
			l.log.Debug("model gave no account of its answer", "id", task.Envelope.ID, "corr", task.Envelope.Corr, "err", err)
			return nil, nil
		}
	}
}

// readEvidence returns the evidence in the model's account of its answer,
// nil if there is none.
func readEvidence(r *run, res *model.Response, took time.Duration) (*intents.DecisionEvidence, error) {
	r.turns++
	step := state.Step{Kind: state.StepModel, Name: res.Model, Detail: "its account of the answer", MS: took.Milliseconds()}
	if err := r.stage(step, (*progress).save); err != nil {
		return nil, err
	}
	var e intents.DecisionEvidence
	if json.Unmarshal([]byte(model.Unfenced(res.Message.Content)), &e) != nil {
		return nil, nil
	}
	return usable(&e), nil
}

// describe derives decision evidence from the run's record, without the model.
func describe(r *run) *intents.DecisionEvidence {
	decision := cmp.Or(strings.TrimSpace(r.messages[len(r.messages)-1].Content), "an empty answer")
	how := "without calling a tool"
	action := "Answered; no tool was called."
	if len(r.toolsUsed) > 0 {
		names := strings.Join(r.toolsUsed, ", ")
		how = "after calling " + names
		action = "Called " + names + ", then answered."
	}
	return &intents.DecisionEvidence{
		Decision:      clip.Text(decision, 500),
		ReasonSummary: fmt.Sprintf("The model answered %s. It gave no reasons of its own.", how),
		ActionTaken:   action,
	}
}

// maxInputs bounds the lists in decision evidence.
const maxInputs = 64

// inputsUsed names the members of the task's payload.
func inputsUsed(task *mesh.Task) []string {
	names := []string{}
	var members map[string]json.RawMessage
	if json.Unmarshal(task.Envelope.Payload, &members) == nil {
		for name := range members {
			if !reservedNames[name] {
				names = append(names, "payload."+clip.Text(name, 100))
			}
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxInputs)]
}

// contextRefs are the task itself and what it refers to.
func contextRefs(task *mesh.Task) []string {
	ids := []string{task.Envelope.ID}
	refs, err := task.Envelope.References()
	if err != nil {
		return ids
	}
	for _, ref := range refs[:min(len(refs), maxInputs)] {
		ids = append(ids, ref.ID)
	}
	return ids
}

// addEvidence adds to the payload the members of the evidence that the task's
// level demands.
func (l *loop) addEvidence(task *mesh.Task, r *run, e *intents.DecisionEvidence) error {
	shown := *e
	switch task.Requires.DecisionEvidence {
	case "", envelope.EvidenceNone:
		return nil
	case envelope.EvidenceMinimal:
		shown = intents.DecisionEvidence{Decision: e.Decision, ReasonSummary: e.ReasonSummary}
	case envelope.EvidenceStandard:
		shown.ContextRefs = nil
	}
	with, ok := addMember(without(r.payload, intents.EvidenceMember), intents.EvidenceMember, shown)
	if !ok || l.contract.fits(task.Intent(), with) != nil {
		return envelope.Errorf(envelope.CodeRequires, "requires.decision_evidence: the schema of this agent's results leaves no room for it")
	}
	r.payload = with
	return nil
}

// without removes one member from a compact JSON object; the others keep their
// order and their bytes.
func without(object json.RawMessage, name string) json.RawMessage {
	dec := jsontext.NewDecoder(strings.NewReader(string(object)))
	if _, err := dec.ReadToken(); err != nil {
		return object
	}
	out := []byte{'{'}
	for dec.PeekKind() == '"' {
		key, err := dec.ReadValue()
		if err != nil {
			return object
		}
		key = key.Clone()
		value, err := dec.ReadValue()
		if err != nil {
			return object
		}
		if member, err := jsontext.AppendUnquote(nil, key); err == nil && string(member) == name {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}')
}
