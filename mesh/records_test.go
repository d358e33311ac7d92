package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// away is a store whose first reading fails as if the server were away.
type away struct {
	jetstream.RunStore
	read bool
}

func (a *away) Get(ctx context.Context, id state.ID) (state.Record, error) {
	if !a.read {
		a.read = true
		return state.Record{}, nats.ErrTimeout
	}
	return a.RunStore.Get(ctx, id)
}

// A record has changed and cannot be read: health and log name the failure to read it.
func TestAFailureToReadAChangedRecordIsNamed(t *testing.T) {
	t.Parallel()
	n, ctx := serveDurable(t, 0, Agent{Entity: "agent.reviewer", Handler: HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) { return nil, nil })})
	s := newRecords(n.cfg.Durable, "agent.reviewer", n.cfg.Durable.Codec, n.log, n.conn, n.tel.Lane)
	s.states = &away{RunStore: s.states}
	_, rec, err := s.swap(ctx, state.ID{Entity: "agent.reviewer", Run: "run-1"}, func() (uint64, error) { return 0, state.ErrChanged },
		func(state.Record) (uint64, error) { return 0, nil })
	if !errors.Is(err, state.ErrChanged) || rec != nil {
		t.Error(rec, err)
	}
	if f := s.failing.Load(); f == nil || !errors.Is(f.err, nats.ErrTimeout) {
		t.Errorf("the store's failure is said to be %v", f)
	}
}
