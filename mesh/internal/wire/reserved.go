package wire

import (
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// CheckIntent refuses to send an event, or a task to a person or a channel, whose intent is in
// the namespace of the draft (AEE, "Reserved Namespace"): its intents are tasks for agents, and an
// agent itself refuses those that the draft does not define.
func CheckIntent(e *envelope.Envelope) error {
	if domain, _, _ := strings.Cut(e.Intent, "."); !strings.EqualFold(domain, "aee") {
		return nil
	}
	switch e.Type {
	case envelope.TypeEvent:
	case envelope.TypeTask:
		if to := subject.EntityType(e.To); to != subject.TypeHuman && to != subject.TypeBus {
			return nil
		}
	default:
		return nil
	}
	return envelope.Errorf(envelope.CodeIntentReserved, "intent %s: names under aee. are the protocol's own, for tasks to agents", clip.Text(e.Intent, 128))
}
