package mesh_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// delegatingInParis has the agent in paris delegate the run to another agent there.
func delegatingInParis(v *voyage) {
	v.targetHandler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Delegate(ctx, mesh.Delegation{To: "agent.billing"})
	})
	v.paris.serve(v.paris.lane(mesh.Config{Verifier: sign.Verifier{Ring: v.parisKeys}}), mesh.Agent{Entity: "agent.billing", Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.EmitText("billing"); err != nil {
			return nil, err
		}
		return json.Marshal(map[string]any{"by": task.Envelope.To, "chain": task.Chain()})
	})})
}

const byBilling = `{"by":"agent.billing","chain":["` + reviewer + `"]}`

// A sender on another platform believes only the agent that it has asked. So a run from there that
// delegates its task passes on the receiver's answer as its own.
func TestADelegatedRunOfAnotherPlatformAnswersItsSender(t *testing.T) {
	t.Parallel()
	v := newVoyage(t, delegatingInParis)
	v.move()
	within(t, "the reply", v.heard.done)
	if v.heard.err != nil {
		t.Fatal(v.heard.err)
	}
	equal(t, "the reply", string(v.heard.reply.Payload), byBilling)
	equal(t, "from", v.heard.reply.From, reviewer)
	equal(t, "text", v.heard.text, "billing")
	v.berlin.stored(v.task, v.heard.reply)
	v.berlin.drainedQueue()
	v.paris.drainedQueue()
}

// The same run has a receipt of its end if it came as a file.
func TestADelegatedRunThatCameAsAFileHasAReceiptOfItsEnd(t *testing.T) {
	t.Parallel()
	p := newParcel(t, delegatingInParis)
	status, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ends in paris", func() bool { return state.Terminal(p.inParis().Doc.Status) })
	ended := p.receipt(status.Handoff)
	equal(t, "outcome", ended.Outcome, transfer.OutcomeEnded)
	if _, err := p.office.Confirm(ctxFor(t), ended, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
		t.Fatal(err)
	}
	within(t, "the reply", p.heard.done)
	if p.heard.err != nil {
		t.Fatal(p.heard.err)
	}
	equal(t, "the reply", string(p.heard.reply.Payload), byBilling)
	equal(t, "status", p.berlin.record(p.task).Doc.Status, aaif.RunCompleted)
}
