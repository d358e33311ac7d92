package intents_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/intents"
)

func Example() {
	r := intents.NewRegistry()
	err := r.Register(intents.Definition{
		Intent: "ops.network.port.probe",
		Task: json.RawMessage(`{
			"type": "object",
			"required": ["target", "port"],
			"properties": {"target": {"type": "string"}, "port": {"type": "integer", "maximum": 65535}}
		}`),
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Validate("ops.network.port.probe", intents.Task, json.RawMessage(`{"target": "10.0.0.7", "port": 8007}`)))

	var invalid *intents.ValidationError
	err = r.Validate("ops.network.port.probe", intents.Task, json.RawMessage(`{"port": 80070}`))
	if errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			fmt.Printf("%q %s: %s\n", p.Pointer, p.Keyword, p.Message)
		}
	}

	err = r.Validate("ops.network.ping", intents.Task, json.RawMessage(`{}`))
	fmt.Println(errors.Is(err, intents.ErrUnknownIntent))
	// Output:
	// <nil>
	// "" required: lacks the property "target"
	// "/port" maximum: must be at most 65535
	// true
}

func ExampleRegistry_Register_reserved() {
	err := intents.NewRegistry().Register(intents.Definition{Intent: "aee.schedule.run"})
	fmt.Println(err)
	// Output: intent "aee.schedule.run": names under aee. are the protocol's own (AEE, Reserved Namespace)
}

func ExampleRegistry_AnswerValidatePayload() {
	answer, err := intents.NewRegistry().AnswerValidatePayload(json.RawMessage(
		`{"intent": "aee.status.ping", "payload_to_validate": {"pong": false}, "type_hint": "result"}`))
	fmt.Println(answer.Valid, answer.Errors, err)
	// Output: false [/pong: must be true (const)] <nil>
}

func ExampleCheckEvidence() {
	fmt.Println(intents.CheckEvidence(intents.EvidenceMinimal, json.RawMessage(`{"decision_evidence": {"decision": "merge"}}`)))
	// Output: document does not fit its schema: /decision_evidence: lacks the property "reason_summary" (required)
}
