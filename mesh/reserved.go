package mesh

import (
	"context"
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// lookers is how many reserved intents may wait for stores at once.
const lookers = 4

// lane returns the goroutines on which a reserved intent is answered. Intents that read a
// store have their own, so that they do not delay a ping.
func (h *host) lane(intent string) *sched.Crew {
	if intent == intents.ContextFetch || intent == intents.ContextRefute {
		return h.lookups
	}
	return h.control
}

// reservedIntents answers the tasks of the aee.* namespace.
type reservedIntents struct{ host *host }

// answerReserved answers a task of the aee.* namespace (AEE, "Reserved
// Namespace"), whose payload has been validated.
func (ri *reservedIntents) answerReserved(t *Task) {
	t.begins()
	ctx, cancel := context.WithTimeout(ri.host.taskScope, min(t.Requires.Timeout, sched.LookTimeout))
	defer cancel()
	result, err := ri.reserved(ctx, t)
	if err == nil {
		var payload json.RawMessage
		if payload, err = json.Marshal(result); err == nil {
			err = ri.host.payloads.Validate(t.Envelope.Intent, intents.Result, payload)
		}
		if err == nil {
			ri.host.succeed(t, payload)
			return
		}
	}
	ri.host.fail(t, err)
}

func (ri *reservedIntents) reserved(ctx context.Context, t *Task) (any, error) {
	switch task := t.Envelope; task.Intent {
	case intents.StatusPing:
		return intents.PingResult{Pong: true, TS: envelope.Now()}, nil
	case intents.StatusHealth:
		health := ri.host.health()
		return intents.HealthResult{Status: intents.Health(health.Status), Details: health.Details}, nil
	case intents.SpecQuery:
		return intents.SpecQueryResult{AEEVersion: envelope.Version, Extensions: ri.extensions()}, nil
	case intents.CapabilityList:
		answer, err := ri.host.Intents.AnswerCapabilityList(task.Payload)
		answer.Scenarios = ri.host.Scenarios
		return answer, err
	case intents.ValidatePayload:
		return ri.host.Intents.AnswerValidatePayload(task.Payload)
	case intents.ContextFetch:
		return ri.host.contexts.AnswerFetch(ctx, t.inContext())
	case intents.ContextRefute:
		return ri.host.contexts.AnswerRefute(ctx, t.inContext())
	case intents.TaskCancel, intents.TaskPause, intents.TaskResume, intents.TaskSteer, intents.TaskSettle, intents.TaskMigrate:
		return nil, envelope.Errorf(envelope.CodeUnexpectedType, "%s must be sent to subject %s, to which all workers subscribe", task.Intent, ri.host.ctl)
	}
	return nil, envelope.Errorf(envelope.CodeIntentReserved, "there is no intent %s, and its namespace is reserved", t.Envelope.Intent)
}

func (ri *reservedIntents) extensions() []string {
	speaks := []string{intents.ExtDecisionEvidence, intents.ExtHandoff}
	if ri.host.joined() != nil {
		speaks = append(speaks, intents.ExtDurable)
	}
	if len(ri.host.Scenarios) > 0 {
		speaks = append(speaks, intents.ExtSDSI)
	}
	return speaks
}
