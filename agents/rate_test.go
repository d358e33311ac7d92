package agents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
)

func rateOf(c Counters, limit *aaif.RateLimit) *toolRate {
	return newRate(c, "agent.x", &aaif.Tool{Name: "look", RateLimit: limit}, slog.New(slog.DiscardHandler))
}

func permitted(ctx context.Context, r *toolRate, tokens int) error {
	_, err := r.Take(ctx, tokens)
	return err
}

// Two workers that share counters make no more calls in any minute than the
// document allows to the agent.
func TestARateLimitHoldsForAllWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 6
		shared := new(localCounters)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		made := make(chan time.Time, 1000)
		for range 2 {
			r := rateOf(shared, &aaif.RateLimit{RequestsPerMinute: aaif.Int(limit)})
			go func() {
				for permitted(ctx, r, 1) == nil {
					made <- time.Now()
				}
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		close(made)
		var at []time.Time
		for when := range made {
			at = append(at, when)
		}
		// Minutes that lie across two are bounded as if the calls of the first
		// had come evenly: by twice the limit at the very worst.
		for i := range at {
			n := 0
			for _, other := range at[i:] {
				if other.Sub(at[i]) < time.Minute {
					n++
				}
			}
			if n > 2*limit {
				t.Errorf("%d calls within a minute, the limit is %d", n, limit)
			}
		}
		if most, least := 10*limit+2, 8*limit; len(at) > most || len(at) < least {
			t.Errorf("%d calls in ten minutes, want %d to %d", len(at), least, most)
		}
	})
}

func TestACallThatCannotWaitIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rateOf(new(localCounters), &aaif.RateLimit{RequestsPerMinute: aaif.Int(1)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := permitted(ctx, r, 1); err != nil {
			t.Fatal(err)
		}
		err := permitted(ctx, r, 1)
		if !errors.Is(err, tool.ErrBusy) || !strings.Contains(err.Error(), "1 calls a minute") {
			t.Errorf("%v", err)
		}
		if err := permitted(t.Context(), r, 1); err != nil { // without a deadline it waits
			t.Error(err)
		}
	})
}

// Calls that fail in the next minute without having been made give that minute no room.
func TestCallsThatWereNotMadeGiveNoFurtherMinuteRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 6
		made := 0
		down := true
		look := tool.Limited(tool.Raw(tool.Definition{Name: "look"}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
			if down {
				time.Sleep(10 * time.Second) // until the server is given up
				return nil, &tool.Error{Kind: tool.ErrUnavailable, NotMade: true}
			}
			made++
			return nil, nil
		}), rateOf(new(localCounters), &aaif.RateLimit{RequestsPerMinute: aaif.Int(limit)}))
		time.Sleep(55*time.Second - time.Duration(time.Now().Second())*time.Second)
		var calls sync.WaitGroup
		for range limit {
			calls.Go(func() { _, _ = look.Call(t.Context(), nil) })
		}
		calls.Wait()
		down = false
		minute, cancel := context.WithDeadline(t.Context(), time.Now().Truncate(time.Minute).Add(time.Minute-time.Millisecond))
		defer cancel()
		for minute.Err() == nil {
			if _, err := look.Call(minute, nil); err != nil {
				break
			}
		}
		if made > limit || made < limit-1 {
			t.Errorf("%d calls in a minute, the limit is %d", made, limit)
		}
	})
}

func TestTokensCountWithTheResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rateOf(new(localCounters), &aaif.RateLimit{TokensPerMinute: aaif.Int(100)})
		begun := time.Now()
		if err := permitted(t.Context(), r, 40); err != nil {
			t.Fatal(err)
		}
		r.Spent(t.Context(), 80)
		if err := permitted(t.Context(), r, 5); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < 30*time.Second {
			t.Errorf("waited %v only, though the result was larger than what is left", waited)
		}
		if err := permitted(t.Context(), r, 1000); err != nil {
			t.Errorf("a call that is larger than the limit: %v", err)
		}
	})
}

type brokenCounters struct{}

func (brokenCounters) Add(context.Context, int64, string, string, ...string) (int64, error) {
	return 0, errors.New("no stream")
}

func TestARateThatCannotBeSharedIsKeptByEachWorker(t *testing.T) {
	t.Parallel()
	r := rateOf(brokenCounters{}, &aaif.RateLimit{RequestsPerMinute: aaif.Int(2)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i := range 3 {
		if err := permitted(ctx, r, 1); (err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if rateOf(brokenCounters{}, nil) != nil {
		t.Error("a limiter without a limit")
	}
}
