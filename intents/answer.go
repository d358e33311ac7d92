package intents

import (
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// maxTold bounds the schemas in one answer, in bytes. A message has a megabyte.
const maxTold = 512 << 10

// AnswerCapabilityList answers an aee.capability.list task from what the
// registry knows. Where schemas are asked for, it gives those of the listed
// intents, of reserved ones only where the namespace names them, as far as 512 KiB
// go. The error is a [*ValidationError] about the task's payload.
func (r *Registry) AnswerCapabilityList(task stdjson.RawMessage) (CapabilityListResult, error) {
	var t CapabilityListTask
	if err := r.decode(CapabilityList, task, &t); err != nil {
		return CapabilityListResult{}, err
	}
	answer := CapabilityListResult{Intents: r.List(t.NamespaceFilter)}
	if t.Schemas != true {
		return answer, nil
	}
	answer.Schemas = make(map[string]IntentSchemas)
	left := maxTold
	for _, name := range answer.Intents {
		if Reserved(name) && t.NamespaceFilter == "" {
			continue
		}
		var told IntentSchemas
		size := len(name)
		for v, to := range map[Variant]*stdjson.RawMessage{Task: &told.Task, Result: &told.Result, Error: &told.Error} {
			if s := r.Schema(name, v); s != nil {
				*to = s.JSON()
				size += len(*to)
			}
		}
		if left -= size; left < 0 {
			break
		}
		answer.Schemas[name] = told
	}
	return answer, nil
}

// AnswerValidatePayload answers an aee.validate.payload task. Without a
// type_hint the payload is held against the intent's task schema; where the
// intent has no schema of that variant, every payload is valid. The error is a
// [*ValidationError] about the task's own payload, or [ErrUnknownIntent]:
// about a payload of an intent that nobody here knows there is no verdict.
func (r *Registry) AnswerValidatePayload(task stdjson.RawMessage) (ValidateResult, error) {
	var t ValidateTask
	if err := r.decode(ValidatePayload, task, &t); err != nil {
		return ValidateResult{}, err
	}
	if t.TypeHint == "" {
		t.TypeHint = Task
	}
	err := r.Validate(t.Intent, t.TypeHint, t.PayloadToValidate)
	var invalid *ValidationError
	switch {
	case errors.As(err, &invalid):
		return ValidateResult{Errors: invalid.Strings()}, nil
	case err != nil:
		return ValidateResult{}, err
	}
	return ValidateResult{Valid: true}, nil
}

// decode validates a task's payload and reads it; names are matched with
// their case, as the schema matches them.
func (r *Registry) decode(intent string, task stdjson.RawMessage, into any) error {
	if err := r.Validate(intent, Task, task); err != nil {
		return err
	}
	if err := json.Unmarshal(task, into); err != nil {
		return fmt.Errorf("decode task payload of %s: %w", intent, err)
	}
	return nil
}
