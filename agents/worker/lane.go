package worker

import (
	"cmp"
	"context"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// laneInterval is how often a worker that started without the durable lane, the replay window or
// the journal checks whether it exists. It also checks after each reconnect.
const laneInterval = 30 * time.Second

// useLane adds the durable lane to the configuration of the worker's node. With
// Auto the worker waits for a missing lane, and serves live tasks meanwhile.
func (w *Worker) useLane(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	template := cfg.Durable
	cfg.Durable = nil
	if w.cfg.Durable == Off {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, w.cfg.Durable.patience(w.cfg.Wait))
	defer cancel()
	lacking := jetstream.LaneLacks(looking, js, m, w.cfg.Fenced)
	if lacking != nil && w.cfg.Durable == On {
		return &ConfigError{"Durable", lacking}
	}
	d := &mesh.Durable{Create: true}
	if template != nil {
		*d = *template
	}
	d.Lease = cmp.Or(d.Lease, mesh.DefaultLease)
	d.SetStores(jetstream.Open(jetstream.Gather(js), m))
	d.Slots = slot.NewStore(js, m, max(slot.DefaultLease, d.Lease))
	if w.cfg.Fenced {
		d.OwnEntitiesOnly()
	}
	counters := counter.New(js, m)
	cfg.Durable, cfg.Counters = d, counters
	if conn := w.conn.Load(); d.Codec.Seal == nil && w.cfg.Options.StateKeys == nil && natsconn.InClear(conn) {
		w.log.Warn("checkpoints go over the network unencrypted: give the NATS server TLS, or the worker a state key", "server", conn.ConnectedUrlRedacted())
	}
	if lacking == nil {
		w.counters.use(counters)
		return nil
	}
	w.cfg.Hooks.NoLane(cfg.Entity, lacking)
	ids, _ := cfg.Seen.(*lateSeen)
	journal, _ := cfg.Journal.(*lateJournal)
	await := jetstream.AwaitLane(ctx, js, m, w.cfg.Fenced, laneInterval, lacking, func() {
		w.counters.use(counters)
		if ids != nil {
			ids.look(ctx, true)
		}
		if journal != nil {
			journal.look(ctx)
		}
		w.log.Warn("the durable lane is available: durable tasks are taken from now on")
	})
	d.Ready, d.NotReady = await.Ready(), await.Lacks
	return nil
}
