package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Workers of one agent that get a burst at the same moment do not see at once what the others
// let in. Each assumes that others let in as much as it does, so they exceed the share by little:
// by what is not stored yet when they look. The log says by how much; before, it was a fifth of
// the store. How much can be on the way at one moment depends on the machine, so only the
// rest of a burst without any bound is an error.
func TestABurstAtManyWorkersExceedsTheShareByLittle(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const limit, size, workers, tasks = 8 << 20, 50 << 10, 8, 144
	r := newDurableRig(t)
	store, err := r.js(r.nc).Stream(ctxFor(t), "KV_"+jetstream.BucketState)
	if err != nil {
		t.Fatal(err)
	}
	cfg := store.CachedInfo().Config
	cfg.MaxBytes = limit
	if _, err := r.js(r.nc).UpdateStream(ctxFor(t), cfg); err != nil {
		t.Fatal(err)
	}
	events := r.listen("bus.mesh.task")
	client := r.client()
	g := newGate(t)
	var served []*worker
	for range workers {
		served = append(served, r.serve(r.lane(mesh.Config{Drain: time.Millisecond}), mesh.Agent{Concurrency: tasks / workers, Handler: g}))
	}
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", size))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range tasks / workers {
				r.submit(client, newTask(reviewer, "code.review", payload))
			}
		})
	}
	all.Wait()
	begun, waits := map[string]bool{}, map[string]bool{}
	eventually(t, "each task has begun or waits", func() bool {
		for id, words := range taskEvents(t, events) {
			if slices.Contains(words, "started") {
				begun[id] = true
				delete(waits, id)
			} else if slices.Contains(words, "retrying E_BUSY true true") && !begun[id] {
				waits[id] = true
			}
		}
		return len(begun)+len(waits) >= tasks
	})
	info, err := store.Info(ctxFor(t))
	if err != nil {
		t.Fatal(err)
	}
	used := float64(info.State.Bytes) / limit
	t.Logf("%d of %d tasks have begun, %.1f %% of the store is used", len(begun), tasks, 100*used)
	if used < 0.35 || used > 0.75 {
		t.Errorf("%.1f %% of the store is used", 100*used)
	}
	g.open()
	for _, w := range served { // at once: there is no room for the ends of so many runs, so each waits
		w.stop()
	}
}
