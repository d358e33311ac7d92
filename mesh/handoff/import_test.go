package handoff_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// A file brings its token with it; there is nobody to wait for.
func TestImportOfAFile(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	file, err := state.PutToken(x.doc, x.token)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := p.receiver.Import(ctx, bytes.Replace(file, []byte("hi hi"), []byte("hi ho"), 1)); !errors.Is(err, state.ErrChecksum) {
		t.Errorf("a changed file: %v", err)
	}
	if _, err := p.receiver.Import(ctx, x.doc); !errors.Is(err, state.ErrTokenInvalid) {
		t.Errorf("without a token: %v", err)
	}
	equal(t, "records", p.records(), "")
	status, err := p.receiver.Import(ctx, file)
	if err != nil || status.Phase != state.PhaseRunning {
		t.Fatalf("%+v, %v", status, err)
	}
	equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
	if _, err := p.receiver.Import(ctx, file); !errors.Is(err, state.ErrRunExists) {
		t.Errorf("again: %v", err)
	}
	// The document of another may not travel with this token.
	other, err := state.PutToken(p.pack().doc, x.token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(ctx, other); !errors.Is(err, state.ErrTokenState) {
		t.Errorf("another document: %v", err)
	}
}

// A document of another platform becomes a task here.
func TestImportFromAnotherPlatform(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	doc := &aaif.State{
		Standard: "SC-006", StateID: newID(t), AgentID: agentID, RunID: newID(t), CheckpointAt: state.Time(p.now), Status: aaif.RunPaused,
		Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
		Provenance:   &aaif.StateProvenance{SourcePlatform: there},
	}
	plain, err := aaif.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	text, err := plain.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	g := state.Grant{
		ID: newID(t), Issuer: entity, Source: there, Target: here, AgentID: agentID, RunID: doc.RunID, StateID: doc.StateID, Issued: p.now,
	}
	if g.Checksum, err = state.ContentChecksum(text); err != nil {
		t.Fatal(err)
	}
	token, err := g.Sign(p.signer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := state.PutToken(text, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	c := p.run(doc.RunID)
	task, err := envelope.Parse(c.Mesh.Task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "task", string(task.Payload), `{"text":"and now?"}`)
	equal(t, "task id", task.ID, c.Mesh.TaskID)
	equal(t, "status", c.Doc.Status, aaif.RunRunning)
	equal(t, "conversation", c.Doc.Conversation[0].Content, "and now?")
}
