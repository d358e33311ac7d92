package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// lastWord answers with the last message of its run.
type lastWord struct{}

func (lastWord) Handle(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	said := task.Run().View().Doc.Conversation
	return mustJSON(map[string]any{"last": said[len(said)-1].Content, "from": task.Envelope.From}), nil
}

// A copy of another platform's run becomes a run of the agent with its agent_id,
// if that is served here; one that waits for an approval does not.
func TestACopyOfAnotherPlatformsRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	foreign := func() *state.Checkpoint {
		return &state.Checkpoint{Doc: aaif.State{
			Standard: "SC-006", StateID: uuid.NewString(), AgentID: state.AgentID(reviewer), RunID: uuid.NewString(), CheckpointAt: state.Time(time.Now()),
			Status: aaif.RunPaused, Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
		}}
	}
	if _, err := client.Fork(ctxFor(t), foreign(), state.ForkOf{}); !errors.Is(err, state.ErrUnknownAgent) {
		t.Errorf("of an agent that nobody serves: %v", err)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: lastWord{}})
	waits := foreign()
	waits.Doc.Status = aaif.RunAwaitingApproval
	if _, err := client.Fork(ctxFor(t), waits, state.ForkOf{}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("of one that waits for an approval: %v", err)
	}
	c := foreign()
	receipt, err := client.Fork(ctxFor(t), c, state.ForkOf{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the copy", c.Mesh.Entity, "")
	reply, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"from":"human.ada","last":"and now?"}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// Where an agent's runs are encrypted, one that comes from elsewhere is not stored
// in the clear: neither a copy nor one that is handed over.
func TestARunIsNotTakenInInTheClear(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	p := newParcel(t)
	p.write(2)
	p.paris.serve(p.paris.lane(mesh.Config{}), mesh.Agent{Handler: lastWord{}, Seal: ring})
	office := p.paris.client()
	eventually(t, "it is found", func() bool {
		found, err := office.Discover(ctxFor(t), reviewer, time.Second)
		return err == nil && slices.ContainsFunc(found, func(i mesh.Instance) bool { return i.Info.Metadata[mesh.MetaSealed] == "1" })
	})
	if _, err := p.receiver.Import(ctxFor(t), p.mustExport()); !errors.Is(err, state.ErrSealed) || !errors.Is(err, state.ErrUnknownAgent) {
		t.Errorf("handed over: %v", err)
	}
	copied := &state.Checkpoint{Doc: aaif.State{
		Standard: "SC-006", StateID: uuid.NewString(), AgentID: state.AgentID(reviewer), RunID: uuid.NewString(), CheckpointAt: state.Time(time.Now()),
		Status: aaif.RunPaused, Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
	}}
	if _, err := office.Fork(ctxFor(t), copied, state.ForkOf{}); !errors.Is(err, state.ErrSealed) {
		t.Errorf("a copy: %v", err)
	}
	for rec, err := range durableOver(p.paris.js(p.paris.nc), p.paris.m).States.List(ctxFor(t), reviewer) {
		t.Errorf("stored: %v, %v", rec.ID, err)
	}
}
