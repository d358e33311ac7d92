package calls

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/state"
)

// slowStates is a store whose answers take a second.
type slowStates struct{ state.Mem }

func (s *slowStates) Get(ctx context.Context, id state.ID) (state.Record, error) {
	select {
	case <-time.After(time.Second):
		return s.Mem.Get(ctx, id)
	case <-ctx.Done():
		return state.Record{}, ctx.Err()
	}
}

// The warning about a deadlock has time: it comes although the store is slow.
func TestASlowStoreHidesNoDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, r := newFakeRun()
		r.Lease = 3 * time.Second
		log := &bytes.Buffer{}
		agent := &Agent{Node: &Node{Stores: &client.Stores{States: &slowStates{}}}, Log: slog.New(slog.NewTextHandler(log, nil))}
		task := envelope.New(envelope.TypeTask, "agent.lead", "agent.helper", "helper.work", nil)
		tree := &bounds.Position{}
		if err := tree.Join(nil, "agent.helper", task, nil); err != nil {
			t.Fatal(err)
		}
		o := &outgoing{Task: &Task{Agent: agent, Run: r, Envelope: task, Tree: tree}}
		end := o.watchDeadlock(envelope.New(envelope.TypeTask, "agent.helper", "agent.helper", "helper.work", nil))
		time.Sleep(circleLook*r.Lease + 2*time.Second)
		end()
		synctest.Wait()
		if !strings.Contains(log.String(), "possible deadlock") {
			t.Errorf("the log says %q", log)
		}
	})
}
