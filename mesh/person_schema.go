package mesh

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// resultSchema is the JSON Schema that the answer to a task for a person must fit
// (requires.result_schema; docs/nats-binding.md, "People"), nil if it names none.
func resultSchema(task *envelope.Envelope) json.RawMessage {
	_, members, _ := task.ReadRequires()
	return members.Get(requireResultSchema)
}

// checkResultSchema refuses a task whose requires.result_schema is not a valid schema.
func checkResultSchema(task *envelope.Envelope) error {
	raw := resultSchema(task)
	if raw == nil {
		return nil
	}
	if _, err := schema.Compile(raw); err != nil {
		return envelope.Errorf(envelope.CodeRequires, "requires.result_schema: %w", err)
	}
	return nil
}

// fits returns why a result does not fit a schema. Error envelopes always fit, and so
// does every result if the schema is invalid: that is the fault of the task's sender.
func fits(due json.RawMessage, reply *envelope.Envelope) error {
	if len(due) == 0 || reply.Type != envelope.TypeResult {
		return nil
	}
	s, err := schema.Compile(due)
	if err != nil {
		return nil
	}
	return s.Validate(reply.Payload)
}

// acceptsAnswer reports whether an answer fits the schema, and logs one that does not.
func (n *Node) acceptsAnswer(schema string, reply *envelope.Envelope) bool {
	err := fits(json.RawMessage(schema), reply)
	if err != nil {
		n.log.Info("answer does not fit requires.result_schema and does not count", "id", reply.ID, "task", reply.ReplyTo, "corr", reply.Corr, "from", reply.From, "err", err)
	}
	return err == nil
}
