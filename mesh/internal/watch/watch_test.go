package watch

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A worker is probed every so often, and again after the pause.
const every, again = 200 * time.Millisecond, 300 * time.Millisecond

// workers are those of a test: whether each has a responder, and when.
type workers struct {
	mu     sync.Mutex
	gone   map[string]bool
	probes map[string]int
	dead   []string
	steady bool
	slow   time.Duration // how long the server takes to find no responder
	busy   time.Duration // how long this process stands still with each probe
	watch  *Watch
}

func (s *workers) config() Config {
	return Config{
		Probe: func(id string, again bool) {
			s.mu.Lock()
			busy := s.busy
			s.mu.Unlock()
			time.Sleep(busy) // without the lock: a goroutine that waits for it stops the test's clock
			s.mu.Lock()
			defer s.mu.Unlock()
			s.probes[id]++
			if s.gone[id] {
				time.AfterFunc(s.slow, func() { s.watch.Missing(id, again) })
			}
		},
		Dead: func(_ context.Context, id string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dead = append(s.dead, id)
		},
		Steady: func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.steady },
		Wait:   300 * time.Millisecond, Rate: 1000, Most: 2,
	}
}

func (s *workers) set(id string, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[id] = gone
}

// buried returns the workers that were found dead, when all that goes on has been done.
func (s *workers) buried() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dead)
}

// count is how often a worker was probed.
func (s *workers) count(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes[id]
}

func watching(t *testing.T, f func(w *Watch, s *workers)) {
	synctest.Test(t, func(t *testing.T) {
		s := &workers{gone: map[string]bool{}, probes: map[string]int{}, steady: true}
		w := New(s.config())
		s.watch = w
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { w.Run(ctx) })
		f(w, s)
		stop()
		done.Wait()
	})
}

func TestADeadWorkerIsFoundOnce(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", every, again)
		w.Add("b", every, again)
		time.Sleep(time.Second)
		s.set("a", true)
		time.Sleep(200*time.Millisecond + 300*time.Millisecond + time.Millisecond)
		synctest.Wait()
		if len(s.buried()) != 1 || s.buried()[0] != "a" || w.Len() != 1 {
			t.Errorf("dead %v, still watched %d", s.buried(), w.Len())
		}
		time.Sleep(time.Minute)
		if len(s.buried()) != 1 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

func TestAWorkerThatConnectsAgainIsNotDead(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", every, again)
		for range 50 {
			s.set("a", true)
			time.Sleep(250 * time.Millisecond) // found missing, and back before the second probe
			s.set("a", false)
			time.Sleep(time.Second)
		}
		if len(s.buried()) > 0 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

// Of those who ask that a worker is watched, one may know that it takes longer to connect again.
func TestAWorkerHasTheLongestTimeToConnectAgain(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", every, again)
		w.Add("a", every, 10*again)
		w.Add("a", every, again)
		s.set("a", true)
		time.Sleep(9 * again)
		if len(s.buried()) > 0 {
			t.Fatalf("dead %v", s.buried())
		}
		time.Sleep(2 * again)
		if len(s.buried()) != 1 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

func TestNobodyIsDeadWhileThisProcessIsNotSteady(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", every, again)
		s.set("a", true)
		s.mu.Lock()
		s.steady = false
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.buried()) > 0 {
			t.Fatalf("dead %v", s.buried())
		}
		s.mu.Lock()
		s.steady = true
		s.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.buried()) != 1 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

func TestWatchIsBoundedAndCanBeEnded(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		if !w.Add("a", every, again) || !w.Add("b", every, again) || w.Add("c", every, again) || !w.Add("a", every, again) {
			t.Error("two may be watched, each once")
		}
		w.Remove("a")
		s.set("a", true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.buried()) > 0 || s.count("a") > 0 {
			t.Errorf("dead %v, %d probes", s.buried(), s.count("a"))
		}
		if n := s.count("b"); n < 290 || n > 310 {
			t.Errorf("%d probes in a minute", n)
		}
	})
}

func TestManyWorkersAreProbedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &workers{gone: map[string]bool{}, probes: map[string]int{}, steady: true}
		cfg := s.config()
		cfg.Rate, cfg.Most = 50, 100
		w := New(cfg)
		s.watch = w
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { w.Run(ctx) })
		for i := range 100 {
			w.Add(strconv.Itoa(i), every, again)
		}
		time.Sleep(time.Minute)
		stop()
		done.Wait()
		total := 0
		for _, n := range s.probes {
			total += n
		}
		if total < 45*60 || total > 55*60 {
			t.Errorf("%d probes of 100 workers in a minute, want some 50 a second", total)
		}
	})
}

// A server that is slow answers several probes late and together: that is not two probes
// with a pause in between.
func TestLateAnswersToOneOutageAreNotTwo(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		s.slow = 2 * time.Second
		w.Add("a", every, again)
		s.set("a", true)
		time.Sleep(time.Second)
		s.set("a", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.buried()) > 0 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

// The answer to a second probe may come when the worker counts as there again. It then
// begins the next doubt, so that a dead worker is found with a slow server, too.
func TestADeadWorkerIsFoundThroughASlowServer(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		s.slow = 250 * time.Millisecond
		w.Add("a", every, again)
		s.set("a", true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(s.buried()) != 1 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

func TestAWorkerIsProbedAsOftenAsOneAsks(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", time.Second, again)
		w.Add("b", time.Second, again)
		w.Add("b", every, again)
		w.Add("b", time.Second, again)
		time.Sleep(time.Minute)
		if a, b := s.count("a"), s.count("b"); a < 59 || a > 61 || b < 299 || b > 301 {
			t.Errorf("%d and %d probes in a minute", a, b)
		}
	})
}

// Probes of one period go out together.
func TestProbesOfOnePeriodShareAWrite(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", every, again)
		time.Sleep(70 * time.Millisecond)
		w.Add("b", every, again)
		time.Sleep(every)
		for range 100 {
			synctest.Wait()
			if a, b := s.count("a"), s.count("b"); a-b > 1 || b-a > 1 {
				t.Fatalf("%d and %d probes", a, b)
			}
			time.Sleep(every)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.watching["a"].next.Equal(w.watching["b"].next) {
			t.Error("the next probes are at different times")
		}
	})
}

// On a busy machine a worker takes longer to reconnect. That the machine is busy shows in
// the answer to the first probe, or in how late this process wakes.
func TestAWorkerOfABusyMachineMayTakeLongerToConnectAgain(t *testing.T) {
	for name, make := range map[string]func(s *workers){
		"the server answers late": func(s *workers) { s.slow = 40 * time.Millisecond },
		"this process wakes late": func(s *workers) { s.busy = 210 * time.Millisecond },
	} {
		watching(t, func(w *Watch, s *workers) {
			make(s)
			w.Add("a", every, again)
			time.Sleep(5 * time.Second)
			s.mu.Lock()
			s.busy = 0 // this process only: the machine still is
			s.mu.Unlock()
			time.Sleep(2 * every)
			s.set("a", true)
			time.Sleep(every + again + 400*time.Millisecond)
			s.set("a", false)
			time.Sleep(5 * time.Second)
			if len(s.buried()) > 0 {
				t.Errorf("%s: dead %v", name, s.buried())
			}
			s.set("a", true)
			time.Sleep(3 * time.Second)
			if len(s.buried()) != 1 {
				t.Errorf("%s: dead %v, though it does not come back", name, s.buried())
			}
		})
	}
}

// A process that woke late once, long ago, finds a dead worker as soon as any.
func TestThatAMachineWasBusyIsForgotten(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		w.Add("a", every, again)
		s.mu.Lock()
		s.busy = 300 * time.Millisecond
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		s.busy = 0
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		s.set("a", true)
		time.Sleep(every + again + 20*time.Millisecond)
		if len(s.buried()) != 1 {
			t.Errorf("dead %v", s.buried())
		}
	})
}

// A worker that was away and came back may be away for longer the next time. Later it is
// found as soon as any.
func TestAWorkerThatCameBackMayBeAwayForLonger(t *testing.T) {
	watching(t, func(w *Watch, s *workers) {
		away := func(d time.Duration) {
			s.set("a", true)
			time.Sleep(d)
			s.set("a", false)
			time.Sleep(2 * time.Second)
		}
		w.Add("a", every, again)
		away(250 * time.Millisecond)
		for range 10 {
			away(every + again + 400*time.Millisecond)
		}
		if len(s.buried()) > 0 {
			t.Fatalf("dead %v", s.buried())
		}
		time.Sleep(11 * time.Minute)
		away(every + again + 20*time.Millisecond)
		if len(s.buried()) != 1 {
			t.Errorf("dead %v", s.buried())
		}
	})
}
