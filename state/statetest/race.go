package statetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

const rivals = 8

// race makes all rivals write at once, and returns the revisions of those that succeeded,
// by rival.
func race(t *testing.T, s state.Store, id state.ID, prev uint64, data func(rival int) string) map[int]uint64 {
	t.Helper()
	ctx := background(t)
	var (
		mu   sync.Mutex
		won  = map[int]uint64{}
		wg   sync.WaitGroup
		gate = make(chan struct{})
	)
	for rival := range rivals {
		wg.Go(func() {
			<-gate
			rev, err := s.Put(ctx, id, prev, []byte(data(rival)))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won[rival] = rev
			} else if !errors.Is(err, state.ErrChanged) {
				t.Errorf("a rival's Put: %v, want success or %v", err, state.ErrChanged)
			}
		})
	}
	close(gate)
	wg.Wait()
	return won
}

func testCreateRace(t *testing.T, s state.Store) {
	for round := range 10 {
		run := id("r" + strconv.Itoa(round))
		won := race(t, s, run, 0, strconv.Itoa)
		if len(won) != 1 {
			t.Fatalf("%d rivals created the run, want 1", len(won))
		}
		for rival, rev := range won {
			if got := get(t, s, run); string(got.Data) != strconv.Itoa(rival) || got.Revision != rev {
				t.Errorf("rival %d won with revision %d, but there is %s at %d", rival, rev, got.Data, got.Revision)
			}
		}
	}
}

func testUpdateRace(t *testing.T, s state.Store) {
	const rounds = 20
	prev := put(t, s, id("r"), 0, "begin")
	var want []string
	for round := range rounds {
		won := race(t, s, id("r"), prev, func(rival int) string { return fmt.Sprint(round, "/", rival) })
		if len(won) != 1 {
			t.Fatalf("round %d: %d rivals wrote, want 1", round, len(won))
		}
		for rival, rev := range won {
			if rev <= prev {
				t.Fatalf("round %d: revision %d after %d", round, rev, prev)
			}
			prev = rev
			want = append(want, fmt.Sprint(round, "/", rival))
		}
	}
	history, err := s.History(background(t), id("r"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= min(len(history), len(want)); i++ {
		if got := string(history[len(history)-i].Data); got != want[len(want)-i] {
			t.Errorf("history has %s where %s was written", got, want[len(want)-i])
		}
	}
}
