package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// runLook is how often [WatchRun] reads the run.
const runLook = 250 * time.Millisecond

// errSame: the run's newest message is the one that was reported last.
var errSame = errors.New("the run has not changed")

// WatchRun calls fn with the newest checkpoint of a run, if there is one, and then with each later
// one that it finds, until ctx ends; then it returns nil. It polls every 250 ms: it may skip
// checkpoints, which [state.Store.History] has, but never the newest. A run that is deleted is
// reported once, with nil Data and a higher revision. Calls come one at a time, from the goroutine
// that called WatchRun.
//
// WatchRun survives a lost connection, and the loss and return of the store. It fails if the run
// cannot be read at first, and later only when the connection is closed for good.
func WatchRun(ctx context.Context, s state.Store, id state.ID, fn func(state.Record)) error {
	var known state.Record // the last report, without its data; zero: the run does not exist
	look := func() (state.Record, error) { return s.Get(ctx, id) }
	if s, ok := s.(*States); ok { // it reads a document that is an object only if the record is new
		look = func() (state.Record, error) {
			return s.get(ctx, id, func(ctx context.Context) (stateMessage, error) {
				m, err := s.current(ctx, stateKey(id))
				if err == nil && m.last == known.Revision && m.Time.Equal(known.Time) {
					err = errSame
				}
				return m, err
			})
		}
	}
	for first, doubts := true, 0; ; first = false {
		r, err := look()
		gone := errors.Is(err, state.ErrNotFound)
		if gone {
			r, err = state.Record{ID: id}, nil
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errSame), err == nil && r.Revision == known.Revision && r.Time.Equal(known.Time):
			doubts = 0
		case errors.Is(err, nats.ErrConnectionClosed), first && err != nil && !damaged(err):
			return fmt.Errorf("watch run: %w", err)
		case err != nil: // it may go by; of an object that is gone, a newer message or a marker follows
		case r.Revision < known.Revision && !r.Time.After(known.Time) && doubts < mostDoubts:
			doubts++ // a replica that lags behind may have answered
		default:
			if gone {
				fn(state.Record{ID: id, Revision: known.Revision + 1, Time: time.Now()})
			} else {
				fn(r)
			}
			known, doubts = state.Record{Revision: r.Revision, Time: r.Time}, 0
		}
		if !pause.For(ctx, runLook) {
			return nil
		}
	}
}
