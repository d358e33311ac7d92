package requires

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// SchemaOf is the JSON Schema that the answer to a task for a person must fit
// (requires.result_schema; docs/nats-binding.md, "People"), nil if it names none.
func SchemaOf(task *envelope.Envelope) json.RawMessage {
	_, members, _ := task.ReadRequires()
	return members.Get(ResultSchema)
}

// CheckSchema refuses a task whose requires.result_schema is not a valid schema.
func CheckSchema(task *envelope.Envelope) error {
	raw := SchemaOf(task)
	if raw == nil {
		return nil
	}
	if _, err := schema.Compile(raw); err != nil {
		return envelope.Errorf(envelope.CodeRequires, "requires.result_schema: %w", err)
	}
	return nil
}

// Fits returns why a result does not fit a schema. Error envelopes always fit, and so
// does every result if the schema is invalid: that is the fault of the task's sender.
func Fits(due json.RawMessage, reply *envelope.Envelope) error {
	if len(due) == 0 || reply.Type != envelope.TypeResult {
		return nil
	}
	s, err := schema.Compile(due)
	if err != nil {
		return nil
	}
	return s.Validate(reply.Payload)
}
