package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// silent is a store that stores the first checkpoint of a handler's step, may let
// another worker write on top of it, and does not say that it was stored.
type silent struct {
	jetstream.RunStore
	used bool
	next func(*state.Checkpoint)
}

func (s *silent) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	rev, err := s.RunStore.PutNoted(ctx, id, prev, data, note)
	h, bad := state.ReadHeader(data)
	if err = errors.Join(err, bad); err != nil || h.Step != state.StepHandler || s.used {
		return rev, err
	}
	s.used = true
	if s.next == nil {
		return 0, state.ErrUncertain
	}
	c, err := state.Codec{}.Decode(data)
	if err != nil {
		return 0, err
	}
	s.next(c)
	if data, err = (state.Codec{}).Encode(c); err == nil {
		_, err = s.RunStore.Put(ctx, id, rev, data)
	}
	return 0, errors.Join(state.ErrUncertain, err)
}

// A checkpoint is stored, its worker does not hear of it, and a command is
// written on top of it: the step is not made twice.
func TestAnUncertainCommitUnderACommandIsOne(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	count := mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		run := task.Run()
		for range 2 {
			if err := run.Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
				var n int
				if c.Mesh.Loop != nil {
					if err := json.Unmarshal(c.Mesh.Loop, &n); err != nil {
						return err
					}
				}
				c.Mesh.Loop = fmt.Append(nil, n+1)
				return nil
			}); err != nil {
				return nil, err
			}
		}
		if s := run.View().Mesh.Steering; len(s) != 1 || s[0].Text != "hurry" {
			t.Errorf("steering %v: what was written on top is lost", s)
		}
		return fmt.Appendf(nil, `{"steps":%s}`, run.View().Mesh.Loop), nil
	})
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) {
		d.States = &silent{RunStore: d.States, next: func(c *state.Checkpoint) {
			c.Mesh.Steering = append(c.Mesh.Steering, state.Steer{ID: "steer-it", Text: "hurry"})
			c.Mesh.Step = state.Step{Kind: state.StepSteer}
		}}
	}), mesh.Agent{Handler: count})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	reply, err := r.result(client, task)
	if err != nil || reply.Type != envelope.TypeResult || string(reply.Payload) != `{"steps":2}` {
		t.Errorf("%v, %v; want two steps", reply, err)
	}
}

// unheard is a [silent] store that does not answer at all after that checkpoint: it waits until its caller gives up.
type unheard struct {
	silent
	stored func()
}

func (s *unheard) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	was := s.used
	rev, err := s.silent.PutNoted(ctx, id, prev, data, note)
	if was == s.used {
		return rev, err
	}
	s.stored()
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// A Commit that did not hear whether it is stored in its time has stored its staged steps, too: they
// are not stored again by what comes next.
func TestStagedStepsOfAnUncertainCommitAreStoredOnce(t *testing.T) {
	t.Parallel()
	say := func(text string) func(*state.Checkpoint) error {
		return func(c *state.Checkpoint) error {
			c.Doc.Conversation = append(c.Doc.Conversation, aaif.Message{Role: aaif.MessageAssistant, Content: text})
			return nil
		}
	}
	step := state.Step{Kind: state.StepHandler}
	for name, c := range map[string]struct {
		claimed, steered bool
		then             func(context.Context, *mesh.Run) error
		want             []string
	}{
		"and the end":                {true, false, nil, []string{"one", "two"}},
		"the first write":            {false, false, nil, []string{"one", "two"}},
		"under a command":            {true, true, nil, []string{"one", "two"}},
		"the first, under a command": {false, true, nil, []string{"one", "two"}},
		"and another step":           {true, false, func(ctx context.Context, r *mesh.Run) error { return r.Commit(ctx, step, say("three")) }, []string{"one", "two", "three"}},
		"and another, staged later":  {true, false, func(_ context.Context, r *mesh.Run) error { return r.Stage(step, say("three")) }, []string{"one", "two", "three"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			hurry, stop := context.WithCancel(t.Context())
			defer stop()
			r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) {
				d.KeepTasks = true
				store := &unheard{silent{RunStore: d.States}, stop}
				if c.steered {
					store.next = func(cp *state.Checkpoint) {
						cp.Mesh.Steering = append(cp.Mesh.Steering, state.Steer{ID: "steer-it", Text: "hurry"})
					}
				}
				d.States = store
			}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				run := task.Run()
				if c.claimed {
					if err := run.Claim(ctx); err != nil {
						return nil, err
					}
				}
				if err := run.Stage(step, say("one")); err != nil {
					return nil, err
				}
				if err := run.Commit(hurry, step, say("two")); !errors.Is(err, context.Canceled) {
					return nil, fmt.Errorf("the commit ends with %w", err)
				}
				if c.then != nil {
					if err := c.then(ctx, run); err != nil {
						return nil, err
					}
				}
				return json.RawMessage(`{}`), nil
			})})
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			if reply, err := r.result(client, task); err != nil {
				t.Fatalf("%v, %v", reply, err)
			}
			var got []string
			for _, m := range r.record(task).Doc.Conversation {
				got = append(got, m.Content)
			}
			equal(t, "conversation", got, c.want)
		})
	}
}

// A step that no document can hold was not written, so what others write afterwards does not contain
// what was staged before it.
func TestStagedStepsOfACommitThatCannotBeEncodedAreKept(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	var states jetstream.RunStore
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { states = d.States }), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		run, step := task.Run(), state.Step{Kind: state.StepHandler}
		if err := run.Claim(ctx); err != nil {
			return nil, err
		}
		if err := run.Stage(step, func(c *state.Checkpoint) error { c.Mesh.Loop = json.RawMessage(`1`); return nil }); err != nil {
			return nil, err
		}
		if err := run.Commit(ctx, step, func(c *state.Checkpoint) error { c.Mesh.Loop = json.RawMessage(`{"a":1,"a":2}`); return nil }); err == nil {
			return nil, errors.New("the step was stored")
		}
		rec, err := states.Get(ctx, state.ID{Entity: reviewer, Run: run.ID()})
		if err != nil {
			return nil, err
		}
		c, err := state.Codec{}.Decode(rec.Data)
		if err != nil {
			return nil, err
		}
		data, err := state.Codec{}.Encode(c)
		if err == nil {
			_, err = states.Put(ctx, rec.ID, rec.Revision, data)
		}
		return json.RawMessage(`{}`), err
	})})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	if reply, err := r.result(client, task); err != nil {
		t.Fatalf("%s, %v", reply.Payload, err)
	}
	equal(t, "staged", string(r.record(task).Mesh.Loop), "1")
}
