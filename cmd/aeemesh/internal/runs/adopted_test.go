package runs

import (
	"context"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The id of a run that another platform began is not computed from its task's id, but the other way
// round.
func TestAnAdoptedRunIsFoundByItsTask(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{Only: []string{jetstream.BucketState, jetstream.BucketLanes}}); err != nil {
		t.Fatal(err)
	}
	m, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	run := state.New("agent.x", "task-0001", "")
	run.Doc.RunID = "run-of-another-platform"
	run.Mesh.TaskID = state.AdoptedTask("agent.x", run.Doc.RunID)
	data, err := state.Codec{}.Encode(run)
	if err == nil {
		_, err = jetstream.NewStates(js, m).Put(ctx, run.ID(), 0, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, entity := range []string{"agent.x", ""} {
		if _, h, err := NewStore(js, m, nil).Find(ctx, run.Mesh.TaskID, entity); err != nil || h.Run != run.Doc.RunID {
			t.Errorf("of %q: %s, %v", entity, h.Run, err)
		}
	}
}
