package share

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// A worker reads the figures again once it has written a step since the last reading: workers of
// other agents may have written as much, and the store may be nearly full by now.
func TestOldFiguresOfAStoreAreReadAgain(t *testing.T) {
	t.Parallel()
	var s Share
	s.known.Store(&[]jetstream.Share{{MaxBytes: 32000, Used: 0.6, Own: 0.1}})
	s.step.Store(100)
	if s.mightExceed(99) {
		t.Error("the figures are doubted after less than a step")
	}
	if !s.mightExceed(100) {
		t.Error("the figures are trusted after a step")
	}
}

// A worker assumes that others have written as much as it has, and looks before they can have
// exceeded the share together.
func TestAWorkerLooksBeforeManyCanHaveExceededTheShare(t *testing.T) {
	t.Parallel()
	var s Share
	s.known.Store(&[]jetstream.Share{{MaxBytes: 32000, Used: 0.6, Own: 0.2}})
	s.step.Store(1000)
	const left = 32000 / 20 // a twentieth of the store, to the quarter
	if s.mightExceed(left/unseen - 1) {
		t.Error("the worker looks although so many workers have not exceeded the share")
	}
	if !s.mightExceed(left/unseen + 1) {
		t.Error("the worker does not look although so many workers have exceeded the share")
	}
	s.soon.Store(left/unseen - 1)
	if s.Near() {
		t.Error("a claim is written at once although the share is not near")
	}
	if s.soon.Store(left/unseen + 1); !s.Near() {
		t.Error("a claim is delayed although the share is near")
	}
}

// figures is a store that is as full as its test says.
type figures struct {
	mu    sync.Mutex
	now   jetstream.Share
	soon  []int64 // of each reading
	fails bool
	takes time.Duration
}

// read returns how often the figures were read.
func (f *figures) read() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.soon)
}

// uses sets how much the agent uses.
func (f *figures) uses(own float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Own = own
}

// will sets how long a reading takes, and whether it fails.
func (f *figures) will(take time.Duration, fail bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes, f.fails = take, fail
}

func (f *figures) Shares(_ context.Context, _ string, soon int64) ([]jetstream.Share, error) {
	f.mu.Lock()
	takes := f.takes
	f.mu.Unlock()
	time.Sleep(takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.soon = append(f.soon, soon)
	if f.fails {
		return nil, errors.New("no answer")
	}
	return []jetstream.Share{f.now}, nil
}

func newShare(states *figures, draining bool) *Share {
	return New(Config{Entity: "agent.a", States: states, Draining: func() bool { return draining }, Log: slog.New(slog.DiscardHandler)})
}

// Runs that begin at the same time reserve what they will take, until they are stored. A run
// reserves once, however often it is claimed.
func TestRunsThatBeginAreCountedOnce(t *testing.T) {
	t.Parallel()
	store := &figures{now: jetstream.Share{MaxBytes: 16000, Used: 0.6, Own: 0.1}}
	s := newShare(store, false)
	var a, b, c Reservation
	if !s.Admit(t.Context(), &a, 10) || !s.Admit(t.Context(), &a, 10) || !s.Admit(t.Context(), &b, 10) {
		t.Fatal("runs within the share do not begin")
	}
	if got := s.soon.Load(); got != 20 {
		t.Errorf("%d bytes reserved by two runs of 10", got)
	}
	if len(store.soon) != 1 || store.soon[0] != 10 {
		t.Errorf("read for %v, want once, for the first run", store.soon)
	}
	s.Stored(&a)
	s.Stored(&a)
	if got := s.soon.Load(); got != 10 {
		t.Errorf("%d bytes reserved by the run that is not stored", got)
	}
	store.uses(0.9)
	if s.Admit(t.Context(), &c, 500) || c.bytes.Load() != 0 || s.soon.Load() != 10 {
		t.Error("a run beyond the share began, or has reserved its bytes")
	}
	if p := s.Trouble(); p == nil || p.Backoff() != crowdedPause {
		t.Errorf("trouble: %v", p)
	}
}

// A store that does not answer admits every run.
func TestRunsBeginWithoutFigures(t *testing.T) {
	t.Parallel()
	var r Reservation
	if s := newShare(&figures{fails: true}, false); !s.Admit(t.Context(), &r, 1) || s.Trouble() != nil {
		t.Error("a store that does not answer")
	}
}

// An agent whose tasks wait is looked at soon after a store that did not answer for a while, or was
// slow, has room again.
func TestTasksDoNotWaitLongAfterASlowStore(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &figures{now: jetstream.Share{MaxBytes: 3200, Used: 0.9, Own: 0.9}}
			s := newShare(store, false)
			go s.Tend(t.Context())
			synctest.Wait()
			store.will(10*time.Second, fails)
			time.Sleep(crowdedLook + 5*time.Second) // in the middle of a look
			store.will(0, fails)
			time.Sleep(5*time.Second + time.Millisecond) // it ends
			store.will(0, false)
			store.uses(0.05)
			most := mostPause
			if fails {
				most = crowdedLook
			}
			time.Sleep(most + time.Millisecond)
			synctest.Wait()
			if s.Trouble() != nil {
				t.Errorf("failed: %t: %v", fails, s.Trouble())
			}
		})
	}
}

// While new tasks wait, the figures are read more often, and at once after many written bytes. A
// worker that draws again knows no figures; one that drains keeps them.
func TestFiguresAreReadWhileTheWorkerIsAwake(t *testing.T) {
	for _, draining := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &figures{now: jetstream.Share{MaxBytes: 3200, Used: 0.9, Own: 0.9}}
			s := newShare(store, draining)
			awake, end := context.WithCancel(t.Context())
			go s.Tend(awake)
			synctest.Wait()
			if store.read() != 1 || s.Trouble() == nil {
				t.Fatalf("read %d times, trouble %v", store.read(), s.Trouble())
			}
			time.Sleep(crowdedLook + time.Millisecond)
			synctest.Wait()
			if store.read() != 2 {
				t.Errorf("read %d times after crowdedLook", store.read())
			}
			store.uses(0.05)
			s.Wrote(100)
			synctest.Wait()
			if store.read() != 3 || s.Trouble() != nil {
				t.Errorf("read %d times after a step, trouble %v", store.read(), s.Trouble())
			}
			time.Sleep(shareLook / 2)
			synctest.Wait()
			if store.read() != 3 {
				t.Errorf("read %d times within shareLook", store.read())
			}
			end()
			synctest.Wait()
			if known := s.known.Load() != nil; known != draining {
				t.Errorf("figures known after the end: %v, draining: %v", known, draining)
			}
		})
	}
}
