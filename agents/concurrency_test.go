package agents_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Gap 24 of the traceability review: runtime.concurrency has the default 1, and a
// Consumer MUST NOT exceed it (AAIF, Runtime Configuration). All workers of an agent
// keep to it together, unless their operators say how many tasks each may do.
func TestUndeclaredConcurrencyIsOneInTheWholeMesh(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, c := range map[string]struct {
		runtime string
		each    int // the operator's word
		want    int32
	}{
		"undeclared":                      {"", 0, 1},
		"a runtime block without it":      {`"runtime": {"max_retries": 0}`, 0, 1},
		"the document says one":           {`"runtime": {"concurrency": 1}`, 0, 1},
		"the operators say one each":      {"", 1, 2},
		"the operators say two each":      {"", 2, 4},
		"the document says three":         {`"runtime": {"concurrency": 3}`, 0, 3},
		"the document goes before theirs": {`"runtime": {"concurrency": 1}`, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			var running, most atomic.Int32
			entered, release := make(chan struct{}, 64), make(chan struct{})
			handler := mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
				n := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				entered <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return json.RawMessage(`{}`), nil
			})
			var entity string
			for range 2 {
				a := newAgent(t, doc(t, c.runtime), agents.Options{Handler: handler, Concurrency: c.each})
				entity = a.Entity
				ready := make(chan struct{})
				a.Ready = func() { close(ready) }
				l.host(a, func(d *mesh.Durable) { d.Slots = slot.NewStore(l.js(l.conn), subject.Map{}, time.Minute) })
				<-ready
			}
			var tasks []*envelope.Envelope
			var live sync.WaitGroup
			defer live.Wait()
			for i := range 12 {
				task := l.task(entity, `{"text":"go"}`, "")
				if i%3 > 0 {
					ctx := l.ctx()
					live.Go(func() {
						if _, err := l.client.Send(ctx, task, mesh.SendOptions{}); err != nil {
							t.Errorf("live: %v", err)
						}
					})
					continue
				}
				l.submit(task)
				tasks = append(tasks, task)
			}
			for range c.want {
				<-entered
			}
			// No task ends before all live ones are with a worker, mostly some with each.
			until(t, "all live tasks have come", func() bool {
				found, err := l.client.Discover(l.ctx(), entity, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				var here int64
				for _, in := range found {
					for _, e := range in.Stats.Endpoints {
						var data struct{ Running, Queued int64 }
						if e.Name == "task" && json.Unmarshal(e.Data, &data) == nil {
							here += data.Running + data.Queued
						}
					}
				}
				return here >= 8
			})
			close(release)
			for _, task := range tasks {
				if got := l.result(task); got != `{}` {
					t.Errorf("result %s", got)
				}
			}
			if got := most.Load(); got != c.want {
				t.Errorf("%d tasks at once, want %d", got, c.want)
			}
		})
	}
}

// Where workers cannot count together, an undeclared concurrency is that of each worker.
func TestUndeclaredConcurrencyNeedsNoJetStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, level := range []string{"minimal", "standard", "strict", "regulated"} {
		a := newAgent(t, doc(t, `"compliance": {"safety_level": "`+level+`", "pii_handling": "none"}`), agents.Options{Handler: answering(`{}`)})
		if err := a.Accept(w.node); err != nil || a.MeshConcurrency != 0 || a.Concurrency != 1 || len(a.Notices) != 0 {
			t.Errorf("%s: %v, %d in the mesh, %d here, notices %v", level, err, a.MeshConcurrency, a.Concurrency, a.Notices)
		}
	}
}
