package tender

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
)

// deleteEnded removes the oldest ended runs before the store of runs is full: a full store would stop
// every lane.
func (t *Tender) deleteEnded(ctx context.Context) {
	const every, most = 5 * time.Second, 2 * time.Minute
	for wait := every; pause.For(ctx, wait/2+rand.N(wait)); {
		began := time.Now()
		wait = every
		swept, err := t.cfg.States.Sweep(ctx, jetstream.SweepOptions{})
		if err != nil {
			t.cfg.Log.Debug("store of runs not swept", "err", err)
			continue
		}
		t.cfg.Filled(swept.Used)
		// A nearly full store without a run that may be deleted is read completely. Runs will end, or get
		// old enough, so the pause is bounded.
		if swept.Runs == 0 && swept.Objects == 0 {
			wait = max(every, min(20*time.Since(began), most))
		}
		if swept.Runs > 0 {
			t.cfg.Log.Info("ended runs deleted", "runs", swept.Runs, "objects", swept.Objects)
		}
	}
}
