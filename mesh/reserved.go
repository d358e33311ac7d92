package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// lookTimeout bounds what a reserved intent may spend on stores of the mesh.
const lookTimeout = 5 * time.Second

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
	ctx, cancel := context.WithTimeout(ri.host.taskScope, min(t.Requires.Timeout, lookTimeout))
	defer cancel()
	result, err := ri.reserved(ctx, t)
	if err == nil {
		var payload json.RawMessage
		if payload, err = json.Marshal(result); err == nil {
			err = ri.host.validate(t.Envelope.Intent, intents.Result, payload)
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
		return ri.fetch(ctx, t)
	case intents.ContextRefute:
		return ri.refute(ctx, t)
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

// fetch looks for an envelope that this agent sent or received. Ids are public on the
// bus, so an id is not enough: the sender of the fetch must be the envelope's from or to,
// or must name its hash, which it can only know from a reference by one of these two.
func (ri *reservedIntents) fetch(ctx context.Context, t *Task) (any, error) {
	task := t.Envelope
	var want intents.FetchTask
	if err := json.Unmarshal(task.Payload, &want); err != nil {
		return nil, err
	}
	found, err := ri.host.node.journal.Find(ctx, ri.host.Entity, want.ID)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the journal cannot be read for now: %w", err)
	}
	if found == nil || found.ID == task.ID || want.Corr != "" && want.Corr != found.Corr {
		return intents.FetchResult{Found: false}, nil
	}
	// A number beyond I-JSON has no canonical form, and so its envelope no hash.
	hash, err := found.Hash()
	named := want.Hash != "" && err == nil && want.Hash == hash
	if !named && !t.isPartyTo(found) {
		return intents.FetchResult{Found: false}, nil
	}
	if want.Hash != "" && !named {
		return nil, envelope.Errorf(envelope.CodeHashMismatch, "envelope %s has another hash", clip.Text(want.ID, 128)).WithCause(err)
	}
	raw, err := found.AppendJSON(nil)
	if err != nil {
		return nil, err
	}
	return intents.FetchResult{Found: true, Envelope: raw, Hash: hash, Refutations: ri.refutationsOf(ctx, want.ID)}, nil
}

// isPartyTo reports whether the task's sender sent or received an envelope. For a signed
// envelope the task's own signature must be verified, because an unsigned from proves
// nothing.
func (t *Task) isPartyTo(e *envelope.Envelope) bool {
	from := t.Envelope.From
	return (from == e.From || from == e.To) && (e.Sig == nil || t.KeyID != "")
}

// refute records that the task's sender rejects a context. Later fetches of the context
// return that refutation.
func (ri *reservedIntents) refute(ctx context.Context, t *Task) (any, error) {
	task := t.Envelope
	var what intents.RefuteTask
	if err := json.Unmarshal(task.Payload, &what); err != nil {
		return nil, err
	}
	if len(what.ID) > wire.MaxName {
		return nil, envelope.Errorf(envelope.CodeNotFound, "no envelope here has an id of more than %d bytes", wire.MaxName)
	}
	record := wire.MustJSON(intents.Refutation{By: clip.Text(task.From, 128), Reason: clip.Text(what.Reason, journal.MaxReason), TS: envelope.Now()})
	ri.host.node.refuted.Add(what.ID, record)
	if store := ri.host.node.cfg.Refutations; store != nil {
		if err := store.Add(ctx, ri.host.Entity, what.ID, record); err != nil {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the refutation cannot be stored for now: %w", err)
		}
	}
	return intents.RefuteResult{Acknowledged: true}, nil
}

func (ri *reservedIntents) refutationsOf(ctx context.Context, id string) []intents.Refutation {
	records := ri.host.node.refuted.List(id)
	if store := ri.host.node.cfg.Refutations; store != nil {
		if shared, err := store.List(ctx, ri.host.Entity, id); err == nil {
			records = shared
		} else if !errors.Is(err, context.Canceled) {
			ri.host.log.Warn("stored refutations not read", "id", id, "err", err)
		}
	}
	var out []intents.Refutation
	for _, raw := range records {
		var r intents.Refutation
		if json.Unmarshal(raw, &r) == nil {
			out = append(out, r)
		}
	}
	return out
}
