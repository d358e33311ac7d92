package mesh

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// slowList is a store that lists its open runs when it is told to, for a context that has slowly.
type slowList struct {
	jetstream.RunStore
	begun chan struct{}
	goOn  chan struct{}
}

type slowly struct{}

func (s *slowList) Open(ctx context.Context, entity string) iter.Seq2[state.Record, error] {
	if ctx.Value(slowly{}) != nil {
		s.begun <- struct{}{}
		<-s.goOn
	}
	return s.RunStore.Open(ctx, entity)
}

// Many workers that die at once, or that a sender has made up, do not have the runs of the agent
// listed for each of them.
func TestManyDeadWorkersShareAList(t *testing.T) {
	t.Parallel()
	lists := &slowList{begun: make(chan struct{}, 100), goOn: make(chan struct{})}
	_, ctx, _, r := begunRun(t, func(cfg *Config) { // the only place is taken: no run is claimed
		lists.RunStore = cfg.Durable.States
		cfg.Durable.States = lists
	})
	l := r.lane
	owned := map[string]state.ID{}
	for _, owner := range []string{"gone0", "gone17", "gone39"} {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)
		raw, err := task.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		now := l.clock.now()
		c := state.New("agent.x", task.ID, l.host.AgentID)
		run.Describe(c, run.Task{Envelope: raw, Priority: envelope.PriorityNormal, Stored: now, Deadline: now.Add(time.Hour)}, now)
		c.Doc.Status, c.Mesh.Epoch, c.Mesh.Owner = aaif.RunRunning, 1, owner
		if _, _, err := l.records.put(ctx, c.ID(), 0, c); err != nil {
			t.Fatal(err)
		}
		owned[owner] = c.ID()
	}
	goOn := sync.OnceFunc(func() { close(lists.goOn) })
	defer goOn()
	const dead = 40
	returned := make(chan struct{}, dead)
	for i := range dead {
		go func() {
			l.takeOver(context.WithValue(ctx, slowly{}, true), fmt.Sprintf("gone%d", i))
			returned <- struct{}{}
		}()
	}
	for range takeOversAtOnce {
		natstest.Within(t, "a list", lists.begun)
	}
	for range dead - takeOversAtOnce {
		natstest.Within(t, "a death is noted", returned)
	}
	goOn()
	for range takeOversAtOnce {
		natstest.Within(t, "the runs are taken over", returned)
	}
	if n := len(lists.begun); n != 1 {
		t.Errorf("%d lists more, want one for all that died meanwhile", n)
	}
	for owner, id := range owned {
		rec, err := l.cfg.States.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.records.read(rec)
		if err != nil {
			t.Fatal(err)
		}
		if c.Mesh.Owner != "" || c.Mesh.Epoch != 2 || c.Mesh.Work == 0 {
			t.Errorf("the run of %s: owner %q, epoch %d, message %d", owner, c.Mesh.Owner, c.Mesh.Epoch, c.Mesh.Work)
		}
	}
}
