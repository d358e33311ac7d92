package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// silent is a store that stores the first checkpoint of a handler's step, lets
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
