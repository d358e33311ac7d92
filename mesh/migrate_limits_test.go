package mesh_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// small is the largest message that the server in paris accepts, and large the one in berlin. Tasks
// are small, because what takes megabytes takes minutes under the race detector.
const small, large = 64 << 10, 512 << 10

// tooLarge is a payload that berlin accepts and paris does not.
var tooLarge = `{"text":"` + strings.Repeat("x", 2*small) + `"}`

// unacceptable are tasks that berlin accepts and paris does not.
var unacceptable = map[string]func(*voyage){
	"more bytes": func(v *voyage) { v.payload = tooLarge },
	"more bytes as CBOR": func(v *voyage) {
		v.payload, v.cbor = tooLarge, true
	},
	"no room for the headers": func(v *voyage) { // the envelope alone fits
		v.payload = `{"text":"` + strings.Repeat("x", small-400) + `"}`
	},
	"deeper": func(v *voyage) {
		v.payload, v.limits.MaxDepth = `{"deep":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`, 30
	},
	"more values as CBOR": func(v *voyage) {
		v.payload, v.cbor, v.limits.MaxValues = manyValues(2000), true, 1000
	},
}

// manyValues is a payload that has n values in an array: as CBOR they have one byte each.
func manyValues(n int) string { return `{"list":[true` + strings.Repeat(",true", n-1) + `]}` }

// inALargeBerlin lets the server in berlin accept larger messages than the one in paris.
func inALargeBerlin(change func(*voyage)) func(*voyage) {
	return func(v *voyage) {
		v.berlin = (&durableRig{rig: rigWith(v.t, natsd.Config{JetStream: true, MaxPayload: large})}).under("")
		v.paris = (&durableRig{rig: rigWith(v.t, natsd.Config{JetStream: true, MaxPayload: small})}).under("")
		change(v)
	}
}

func TestARunWhoseTaskTheTargetCannotQueueStaysWhereItIs(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, change := range unacceptable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t, inALargeBerlin(change))
			v.write(2)
			v.move()
			if run := within(t, "the source to go on", v.source.begun); !run.Restored() {
				t.Error("it begins anew")
			}
			m := v.berlin.record(v.task).Mesh.Migration
			equal(t, "phase", m.Phase, state.PhaseAborted)
			if !strings.Contains(m.Detail, "the run's task") {
				t.Errorf("why: %s", m.Detail)
			}
			equal(t, "handoffs", v.handoffs(), string(state.PhaseRefused))
			if v.inParis() != nil {
				t.Error("there is a run in paris")
			}
			v.source.speak(100)
			close(within(t, "the tool call", v.source.tools))
			within(t, "the reply", v.heard.done)
			if v.heard.err != nil || string(v.heard.reply.Payload) != `{"by":"source"}` {
				t.Errorf("the reply: %v, %v", v.heard.reply, v.heard.err)
			}
		})
	}
}

func TestAFileWhoseTaskCannotBeQueuedIsRefused(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, change := range unacceptable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParcel(t, inALargeBerlin(change))
			p.write(2)
			_, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
			if !errors.Is(err, state.ErrInvalid) && !errors.Is(err, state.ErrTooLarge) || !strings.Contains(err.Error(), "the run's task") {
				t.Errorf("import: %v", err)
			}
			equal(t, "handoffs", p.handoffs(), string(state.PhaseRefused))
			if p.inParis() != nil {
				t.Error("there is a run in paris")
			}
		})
	}
}

// The JSON of a task that came as CBOR may be larger than a message: it is queued as CBOR.
func TestALargeTaskThatFitsAsCBORMoves(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	v := newVoyage(t, func(v *voyage) {
		for _, r := range []**durableRig{&v.berlin, &v.paris} {
			*r = (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true, MaxPayload: small})}).under("")
		}
		v.payload, v.cbor = manyValues(14_000), true
	})
	v.write(2)
	v.move()
	within(t, "the target", v.target.begun)
}

// The fork of a document that another platform made is refused before it is stored.
func TestAForkWhoseTaskCannotBeQueuedIsNotStored(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	_, err := r.client().Fork(ctxFor(t), &state.Checkpoint{Doc: aaif.State{
		Standard: "SC-006", StateID: uuid.NewString(), AgentID: state.AgentID(reviewer), RunID: uuid.NewString(), CheckpointAt: "2026-01-01T00:00:00Z",
		Status: aaif.RunPaused, Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: strings.Repeat("x", 1<<20)}},
	}}, state.ForkOf{})
	if !errors.Is(err, state.ErrTooLarge) {
		t.Errorf("fork: %v", err)
	}
	for rec, err := range r.durableOver(r.js(r.nc)).States.List(ctxFor(t), reviewer) {
		t.Errorf("stored: %v, %v", rec.ID, err)
	}
}
