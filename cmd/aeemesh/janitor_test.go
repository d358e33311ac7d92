package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// untidy is a store whose records take restoring to restore, or cannot be restored.
type untidy struct {
	restoring time.Duration
	err       error
	swept     int
}

func (u *untidy) Restore(ctx context.Context) (int, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(u.restoring):
		return 2, u.err
	}
}

func (u *untidy) Sweep(ctx context.Context, _ jetstream.SweepOptions) (jetstream.Swept, error) {
	if ctx.Err() == nil {
		u.swept++
	}
	return jetstream.Swept{Runs: 3, Used: 0.8}, ctx.Err()
}

// A record that cannot be restored does not keep the janitor from making room.
func TestTheJanitorMakesRoomBesideARecordThatCannotBeRestored(t *testing.T) {
	t.Parallel()
	broken := errors.New("a record cannot be restored")
	done, err := tidyStates(t.Context(), &untidy{err: broken})
	if want := (tidied{Runs: 3, Restored: 2, Used: 0.8}); done != want || !errors.Is(err, broken) {
		t.Errorf("%+v, %v", done, err)
	}
}

// A pass over a large store takes longer than the pause between passes.
func TestAPassOfTheJanitorMayTakeLongerThanItsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		store := &untidy{restoring: 10 * time.Minute}
		if err := keepTidy(ctx, store, slog.New(slog.DiscardHandler), time.Second); err != nil {
			t.Error(err)
		}
		if store.swept != 5 {
			t.Errorf("%d passes in an hour", store.swept)
		}
	})
}
