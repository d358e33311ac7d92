package payloads

import (
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Agent describes the payloads that an agent takes and gives.
type Agent struct {
	Intents       *intents.Registry
	Default       string   // the intent whose schemas hold for unknown ones; "": none
	RefuseUnknown bool     // refuse tasks of unknown intents
	Formats       []string // of requires.format; nil: text and json
}

// Validate checks a payload against the schema of its intent, or of the agent's default
// intent if the intent is unknown.
func (a *Agent) Validate(intent string, variant intents.Variant, payload json.RawMessage) error {
	if !a.Intents.Has(intent) {
		switch {
		case intents.Reserved(intent):
			return envelope.Errorf(envelope.CodeIntentReserved, "there is no intent %s, and its namespace is reserved", clip.Text(intent, 128))
		case a.RefuseUnknown:
			return envelope.Errorf(envelope.CodeIntentUnknown, "this agent does not know intent %s; aee.capability.list lists those that it knows", clip.Text(intent, 128))
		case a.Default == "":
			return nil
		}
		intent = a.Default
	}
	err := a.Intents.Validate(intent, variant, payload)
	if err != nil && variant == intents.Task {
		if bare := withoutReferences(payload); bare != nil && a.Intents.Validate(intent, variant, bare) == nil {
			return nil
		}
	}
	var bad *intents.ValidationError
	if errors.As(err, &bad) && variant != intents.Task {
		return envelope.Errorf(envelope.CodeOutputSchema, "%s", bad.Error())
	}
	return err
}

// CheckResult checks a result against the schema of its intent, and against the format and the
// evidence that the task requires.
func (a *Agent) CheckResult(intent string, r *envelope.Requirements, payload json.RawMessage) error {
	if err := a.Validate(intent, intents.Result, payload); err != nil {
		return err
	}
	return satisfies(r, payload)
}

// CheckError checks the agent's error against the intent's error schema. The mesh's
// own codes may end any task, whatever the schema says; E_AGENT is the code of an
// agent error that has none. An error that does not fit becomes E_OUTPUT_SCHEMA, with
// the original code and message in its text and the original retry advice.
func (a *Agent) CheckError(intent string, err error) error {
	said := fault.ForPeer(err)
	if said.Code.Known() && said.Code != envelope.CodeAgent {
		return err
	}
	bad := a.Validate(intent, intents.Error, said.Payload())
	if !fault.IsCode(bad, envelope.CodeOutputSchema) {
		return err
	}
	out := envelope.Errorf(envelope.CodeOutputSchema, "%s; the agent said %s: %s", fault.ForPeer(bad).Message, clip.Text(string(said.Code), 128), said.Message).WithCause(err)
	out.Retryable, out.BackoffMS = said.Retryable, said.BackoffMS
	return out
}

// withoutReferences returns a task's payload without the member references, for schemas
// that do not allow it; nil if the payload has none.
func withoutReferences(payload json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members["references"] == nil {
		return nil
	}
	delete(members, "references")
	return wire.MustJSON(members)
}
