package intents

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// maxTold bounds the bytes of schemas in one answer. A message may have a megabyte.
const maxTold = 512 << 10

// AnswerCapabilityList answers an aee.capability.list task from the registry. If the task
// asks for schemas, the answer has those of the listed intents, up to 512 KiB; it has the
// schemas of reserved intents only if the task names their namespace. The error is a
// [*ValidationError] about the task's payload.
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

// AnswerValidatePayload answers an aee.validate.payload task. Without a type_hint the
// payload is validated against the intent's task schema; if the intent has no schema of
// that variant, every payload is valid. The error is a [*ValidationError] about the
// task's own payload, or [ErrUnknownIntent] if the registry does not know the intent of
// the payload to validate, or if no task may have that intent ([Inner]).
func (r *Registry) AnswerValidatePayload(task stdjson.RawMessage) (ValidateResult, error) {
	var t ValidateTask
	if err := r.decode(ValidatePayload, task, &t); err != nil {
		return ValidateResult{}, err
	}
	if Inner(t.Intent) {
		return ValidateResult{}, fmt.Errorf("%w: %s", ErrUnknownIntent, quoted(t.Intent))
	}
	t.TypeHint = cmp.Or(t.TypeHint, Task)
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

// decode validates a task's payload and decodes it. Names are case-sensitive, as in the
// schema.
func (r *Registry) decode(intent string, task stdjson.RawMessage, into any) error {
	if err := r.Validate(intent, Task, task); err != nil {
		return err
	}
	if err := json.Unmarshal(task, into); err != nil {
		return fmt.Errorf("decode task payload of %s: %w", intent, err)
	}
	return nil
}
