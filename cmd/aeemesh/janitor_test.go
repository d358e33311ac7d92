package main

import (
	"context"
	"errors"
	"fmt"
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
	unswept   error // of the first pass
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
	if u.swept == 1 && u.unswept != nil {
		return jetstream.Swept{}, u.unswept
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

// A request that was not answered, and may have been denied, ends no pass after this one. A denial
// does.
func TestTheJanitorGoesOnAfterADenialThatIsNotSure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		passes int
	}{"sure": {jetstream.ErrDenied, 1}, "not sure": {fmt.Errorf("%w: %w", jetstream.ErrDenied, jetstream.ErrUncertain), 60}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				store := &untidy{unswept: c.err}
				if err := keepTidy(ctx, store, slog.New(slog.DiscardHandler), time.Minute); (err != nil) != (c.passes == 1) {
					t.Error(err)
				}
				if store.swept < c.passes || store.swept > c.passes+1 {
					t.Errorf("%d passes in an hour", store.swept)
				}
			})
		})
	}
}
