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

// flaky are counters that fail while down is set, and call then before they count.
type flaky struct {
	localCounters
	down bool
	then func()
}

func (f *flaky) Add(ctx context.Context, n int64, owner, kind string, ids ...string) (int64, error) {
	if f.then != nil && n > 0 {
		then := f.then
		f.then = nil
		then()
	}
	if f.down {
		return 0, errors.New("no answer")
	}
	return f.localCounters.Add(ctx, n, owner, kind, ids...)
}

// A call that was counted by this worker alone is not taken back from the shared counters, where
// it would give another call room, and the other way round.
func TestACallIsTakenBackWhereItWasCounted(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			shared := &flaky{down: down}
			r := rateOf(shared, &aaif.RateLimit{RequestsPerMinute: aaif.Int(2)})
			back, err := r.Take(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			shared.down = !down
			back(t.Context())
			shared.down = false
			minute, _ := r.at()
			for name, c := range map[string]Counters{"shared": shared, "own": &r.local} {
				if n, err := c.Add(t.Context(), 0, "agent.x", countCalls, "look", minute); n < 0 || err != nil {
					t.Errorf("shared counters down %v: the %s count is %d, %v", down, name, n, err)
				}
			}
		})
	}
}

// What a late call of the last minute reads does not replace the last minute's count for a call
// of this one.
func TestALateCallDoesNotEmptyTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := new(flaky)
		r := rateOf(shared, &aaif.RateLimit{RequestsPerMinute: aaif.Int(6)})
		start := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
		r.now = func() time.Time { return start.Add(-5 * time.Second) }
		for range 5 {
			if err := permitted(t.Context(), r, 1); err != nil {
				t.Fatal(err)
			}
		}
		r.now = func() time.Time { return start.Add(time.Second) }
		if _, _, _, err := r.try(t.Context(), map[string]int64{countCalls: 1}); err != nil {
			t.Fatal(err)
		}
		shared.then = func() {
			r.now = func() time.Time { return start.Add(-time.Second) }
			if _, _, _, err := r.try(t.Context(), map[string]int64{countCalls: 1}); err != nil {
				t.Error(err)
			}
			r.now = func() time.Time { return start.Add(time.Second) }
		}
		if _, wait, _, err := r.try(t.Context(), map[string]int64{countCalls: 1}); err != nil || wait == 0 {
			t.Errorf("wait %v, %v: a seventh call within a few seconds", wait, err)
		}
	})
}

// Once the shared counters answer again, the last minute's count is theirs.
func TestTheLastMinuteIsReadAgainOnceTheCountersAreBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := new(flaky)
		limit := &aaif.RateLimit{RequestsPerMinute: aaif.Int(6)}
		start := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
		other, r := rateOf(shared, limit), rateOf(shared, limit)
		other.now = func() time.Time { return start.Add(-5 * time.Second) }
		r.now = func() time.Time { return start.Add(time.Second) }
		for range 6 {
			if err := permitted(t.Context(), other, 1); err != nil {
				t.Fatal(err)
			}
		}
		shared.down = true
		if err := permitted(t.Context(), r, 1); err != nil {
			t.Fatal(err)
		}
		shared.down = false
		if _, wait, _, err := r.try(t.Context(), map[string]int64{countCalls: 1}); err != nil || wait == 0 {
			t.Errorf("wait %v, %v: as if there had been no call in the last minute", wait, err)
		}
	})
}
