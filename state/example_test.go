package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
)

// A worker claims a run by writing its first checkpoint, or one over the last. The worker
// that wrote the last revision owns the run.
func Example() {
	ctx := context.Background()
	var (
		store state.Mem
		codec state.Codec
	)
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	c.Mesh.Epoch, c.Mesh.Owner = 1, "host-1"
	data, err := codec.Encode(c)
	if err != nil {
		panic(err)
	}
	first, err := store.Put(ctx, c.ID(), 0, data)
	fmt.Println("host-1 claims:", err)

	// Another worker takes the run over.
	r, err := store.Get(ctx, c.ID())
	if err != nil {
		panic(err)
	}
	d, err := codec.Decode(r.Data)
	if err != nil {
		panic(err)
	}
	d.Mesh.Epoch, d.Mesh.Owner = d.Mesh.Epoch+1, "host-2"
	if data, err = codec.Encode(d); err != nil {
		panic(err)
	}
	_, err = store.Put(ctx, d.ID(), r.Revision, data)
	fmt.Println("host-2 claims:", err)

	// The first worker learns it from its next write.
	c.Append(model.Assistant("Too late."), time.Now(), 0)
	if data, err = codec.Encode(c); err != nil {
		panic(err)
	}
	_, err = store.Put(ctx, c.ID(), first, data)
	fmt.Println("host-1 has lost it:", errors.Is(err, state.ErrChanged))
	// Output:
	// host-1 claims: <nil>
	// host-2 claims: <nil>
	// host-1 has lost it: true
}

// The conversation keeps what the messages of the specification have no member for.
func ExampleCheckpoint_Append() {
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	call := model.ToolCall{ID: "call_1", Name: "look", Arguments: json.RawMessage(`{"at":"x"}`)}
	c.Append(model.User("What is there?"), time.Now(), 4)
	c.Append(model.Assistant("", call), time.Now(), 12)
	c.Append(model.ToolResult(call, json.RawMessage(`{"seen":true}`)), time.Now(), 6)
	for _, m := range c.Messages() {
		fmt.Println(m.Role, m.Content, len(m.ToolCalls))
	}
	// Output:
	// user What is there? 0
	// assistant  1
	// tool {"seen":true} 0
}

// The caller gives the keys; the newest one seals, and every one opens.
func ExampleKeyring() {
	old := state.Key{ID: "2025", Secret: []byte("an example of a key, of 32 bytes")}
	current := state.Key{ID: "2026", Secret: []byte("and another, which is 32 bytes..")}
	ring, err := state.NewKeyring(current, old)
	if err != nil {
		panic(err)
	}
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	c.Append(model.User("My address is …"), time.Now(), 0)
	data, err := state.Codec{Seal: ring}.Encode(c)
	if err != nil {
		panic(err)
	}
	h, err := state.ReadHeader(data) // needs no key
	fmt.Println(h.Entity, h.Status, h.Sealed, err)
	_, err = state.Codec{}.Decode(data)
	fmt.Println(errors.Is(err, state.ErrSealed))
	// Output:
	// agent.reviewer running 2026 <nil>
	// true
}

// A person states the outcome of a call that a lost worker had begun.
func ExampleCheckpoint_Settle() {
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	c.Doc.Status = aaif.RunAwaitingApproval
	c.Mesh.Effects = []state.Effect{{ID: "call_1", Tool: "send_mail", Key: state.EffectKey(c.Doc.RunID, 1, 1), Status: state.EffectUnknown}}
	left, err := c.Settle("call_1", state.SettleFailed, nil, "the outbox is empty", "human.ann", time.Now())
	fmt.Println(left, err)
	fmt.Println(c.Mesh.Effects[0].Status, c.Mesh.Effects[0].Error)
	// Output:
	// 0 <nil>
	// failed settled as not done by human.ann: the outbox is empty
}

// Diff lists the differences, for people and for programs.
func ExampleDiff() {
	a := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	b := a.Clone()
	b.Doc.Status, b.Mesh.Epoch = aaif.RunPaused, 2
	changes, err := state.Diff(a, b)
	if err != nil {
		panic(err)
	}
	for _, c := range changes {
		fmt.Println(c)
	}
	// Output:
	// ~ /status: "running" -> "paused"
	// ~ /x-aeemesh/epoch: 0 -> 2
}

// A handler in Go keeps what it knows in the run's variables, in the change of a step
// (mesh.Run.Commit). The worker that continues the run finds it there.
func ExampleCheckpoint_SetVariable() {
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	c.SetVariable("files", []byte(`["a.go","b.go"]`))
	c.SetVariable("done", []byte(`1`))
	data, err := (&state.Codec{}).Encode(c)
	if err != nil {
		panic(err)
	}
	d, err := (&state.Codec{}).Decode(data)
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Variables()["files"], d.Variables()["done"])
	d.SetVariable("done", nil)
	fmt.Println(len(d.Variables()))
	// Output:
	// ["a.go","b.go"] 1
	// 1
}
