package tender

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// rig is a tender whose lanes write down what it asks of them.
type rig struct {
	*Tender
	t    *testing.T
	mu   sync.Mutex
	did  []string
	runs map[string][]state.Record // by entity
	err  error                     // of listing

	reconnects atomic.Uint64
}

func newRig(t *testing.T, cfg Config) *rig {
	r := &rig{t: t, runs: map[string][]state.Record{}}
	cfg.Log, cfg.Reconnects = slog.New(slog.DiscardHandler), r.reconnects.Load
	if cfg.Beside == nil {
		cfg.Beside = func(context.Context) {}
	}
	if cfg.States == nil {
		cfg.States = &compacting{}
	}
	if cfg.Filled == nil {
		cfg.Filled = func(float64) {}
	}
	r.Tender = New(cfg)
	return r
}

func (r *rig) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, what)
}

// took returns what was done since the last call, sorted: lanes are asked at once.
func (r *rig) took() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.did
	r.did = nil
	slices.Sort(out)
	return out
}

func (r *rig) want(when string, want ...string) {
	r.t.Helper()
	if got := r.took(); !slices.Equal(got, want) {
		r.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// fails returns the error of listing, and with set calls it to change the error.
func (r *rig) fails(set func(*error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if set != nil {
		set(&r.err)
	}
	return r.err
}

// run stores a run of an entity.
func (r *rig) run(entity, task string, status aaif.RunStatus, owner string) string {
	r.t.Helper()
	c := state.New(entity, task, "agent-a")
	c.Doc.Status, c.Mesh.Owner = status, owner
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.runs[entity] = append(r.runs[entity], state.Record{ID: c.ID(), Data: data, Revision: 1})
	return c.Doc.RunID
}

func (r *rig) open(entity string) iter.Seq2[state.Record, error] {
	r.note("open " + entity)
	return func(yield func(state.Record, error) bool) {
		for of, runs := range r.runs {
			for _, rec := range runs {
				if (entity == "" || of == entity) && !yield(rec, nil) {
					return
				}
			}
		}
		if err := r.fails(nil); err != nil {
			yield(state.Record{}, err)
		}
	}
}

func (r *rig) lane(entity string) *Lane {
	return &Lane{
		Entity: entity, Instance: "me", Open: func(context.Context) iter.Seq2[state.Record, error] { return r.open(entity) },
		Owns: func(string) bool { return false },
		Wake: func(id string) { r.note("wake " + id) }, LookAfter: func(owner string) { r.note("look after " + owner) },
		Sweep: func() (func(context.Context, state.Record) error, func(bool)) {
			return func(_ context.Context, rec state.Record) error { r.note("sweep " + rec.ID.Run); return nil }, func(complete bool) {
				if complete {
					r.note("swept " + entity)
				} else {
					r.note("not swept " + entity)
				}
			}
		},
	}
}

// A lane that begins, that asks for it, or whose connection was lost has its waiting runs woken and
// the owners of others looked after, each once.
func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Sweep: time.Hour})
		l := r.lane("agent.a")
		waits := r.run("agent.a", "task-0001", aaif.RunAwaitingApproval, "")
		own := r.run("agent.a", "task-0002", aaif.RunAwaitingApproval, "")
		l.Owns = func(id string) bool { return id == own }
		r.run("agent.a", "task-0003", aaif.RunRunning, "me")
		r.run("agent.a", "task-0004", aaif.RunRunning, "dead")
		r.run("agent.a", "task-0005", aaif.RunRunning, "dead")
		r.run("agent.a", "task-0006", aaif.RunRunning, "")
		r.run("agent.b", "task-0007", aaif.RunAwaitingApproval, "")
		r.run("agent.a", "task-0008", aaif.RunPaused, "gone")
		r.CheckAll(l) // not added yet
		r.Add(l)
		time.Sleep(surveySoon)
		all := []string{"look after dead", "open agent.a", "wake " + waits}
		r.want("begin", all...)
		time.Sleep(time.Minute)
		r.want("later")
		r.CheckAll(l)
		time.Sleep(surveySoon)
		r.want("asked", all...)
		r.reconnects.Add(1)
		time.Sleep(time.Second)
		r.want("reconnected", all...)

		r.fails(func(err *error) { *err = errors.New("no answer") })
		r.CheckAll(l)
		time.Sleep(surveySoon)
		r.want("not listed", all...)
		r.fails(func(err *error) { *err = nil })
		time.Sleep(99 * time.Millisecond)
		r.want("before it is tried again")
		time.Sleep(surveySoon + time.Millisecond)
		r.want("tried again", all...)
		r.Remove(l)
		r.CheckAll(l)
		r.Remove(l)
	})
}

// A run that cannot be checked for now, because what it waits for cannot be read, has its lane asked
// for again. The runs are then listed with growing pauses, as after a listing that failed.
func TestRunsThatCannotBeCheckedAreNotListedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Sweep: -1})
		r.run("agent.a", "task-0001", aaif.RunAwaitingApproval, "")
		l := r.lane("agent.a")
		var wakes atomic.Int32
		var readable atomic.Bool
		l.Wake = func(string) {
			if wakes.Add(1); !readable.Load() {
				r.CheckAll(l)
			}
		}
		r.Add(l)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := wakes.Load(); n < 6 || n > 15 {
			t.Errorf("the run was checked %d times in a minute, want about a dozen", n)
		}
		readable.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		was := wakes.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := wakes.Load() - was; n != 0 {
			t.Errorf("checked %d times more after it could be", n)
		}
		r.CheckAll(l)
		time.Sleep(surveySoon)
		synctest.Wait()
		if n := wakes.Load() - was; n != 1 {
			t.Errorf("a new request had it checked %d times", n)
		}
		r.Remove(l)
	})
}

// A tender whose sweeps are switched off surveys the runs once, and does not check their owners.
func TestSurveyWithoutSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Sweep: -1})
		r.run("agent.a", "task-0001", aaif.RunRunning, "dead")
		l := r.lane("agent.a")
		r.Add(l)
		time.Sleep(time.Hour)
		r.want("an hour", "open agent.a")
		r.Remove(l)
	})
}

// Few entities are read one by one, more of them all together. Lanes of one entity read it once.
func TestHowRunsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, Config{OpenAll: func(context.Context) iter.Seq2[state.Record, error] { return r.open("") }})
		lanes := []*Lane{r.lane("agent.a"), r.lane("agent.a"), r.lane("agent.b"), r.lane("agent.c"), r.lane("agent.d")}
		for _, l := range lanes {
			r.Add(l)
		}
		time.Sleep(surveySoon)
		r.want("four entities", "open agent.a", "open agent.b", "open agent.c", "open agent.d")
		id := r.run("agent.e", "task-0001", aaif.RunAwaitingApproval, "")
		lanes = append(lanes, r.lane("agent.e"))
		r.Add(lanes[5])
		for _, l := range lanes {
			r.CheckAll(l)
		}
		time.Sleep(surveySoon)
		r.want("five entities", "open ", "wake "+id)
		for _, l := range lanes {
			r.Remove(l)
		}
	})
}

func TestSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		r := newRig(t, Config{Sweep: every})
		id := r.run("agent.a", "task-0001", aaif.RunPaused, "")
		l := r.lane("agent.a")
		r.Add(l)
		time.Sleep(surveySoon)
		r.want("begin", "open agent.a")
		time.Sleep(every/2 - surveySoon - time.Millisecond)
		r.want("before the first sweep")
		time.Sleep(every + time.Millisecond)
		got := r.took() // one or two sweeps: their pause is every/2 to 3*every/2
		if n := len(got); n != 3 && n != 6 || !slices.Contains(got, "sweep "+id) || !slices.Contains(got, "swept agent.a") {
			t.Errorf("%q", got)
		}
		r.fails(func(err *error) { *err = errors.New("no answer") })
		time.Sleep(2 * every)
		if got := r.took(); !slices.Contains(got, "not swept agent.a") || slices.Contains(got, "swept agent.a") {
			t.Errorf("not all runs were read: %q", got)
		}
		r.Remove(l)
		r.took()
		time.Sleep(time.Hour)
		r.want("after the last lane")
	})
}

// A sweep that waited long for the store, or for a processor, does not put the next one off for long.
// Many runs do.
func TestASlowSweepDoesNotPutOffTheNextForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		r := newRig(t, Config{Sweep: every})
		id := r.run("agent.a", "task-0001", aaif.RunRunning, "")
		l := r.lane("agent.a")
		var swept []time.Time
		sweep := l.Sweep
		l.Sweep = func() (func(context.Context, state.Record) error, func(bool)) {
			swept = append(swept, time.Now())
			run, done := sweep()
			return func(ctx context.Context, rec state.Record) error {
				if rec.ID.Run == id {
					time.Sleep(10 * every)
				}
				return run(ctx, rec)
			}, done
		}
		r.Add(l)
		time.Sleep(36 * every) // three sweeps of 10, before each a pause of 6 at most
		synctest.Wait()
		if len(swept) < 3 {
			t.Errorf("sweeps that take %v began at %v", 10*every, swept)
		}
		r.Remove(l)

		many := newRig(t, Config{Sweep: every})
		for range int(4 * every / sweepPause) {
			many.runs["agent.a"] = append(many.runs["agent.a"], state.Record{ID: state.ID{Entity: "agent.a", Run: "x"}})
		}
		l = many.lane("agent.a")
		n := 0
		l.Sweep = func() (func(context.Context, state.Record) error, func(bool)) {
			n++
			return func(context.Context, state.Record) error { return nil }, func(bool) {}
		}
		many.Add(l)
		time.Sleep(2 * every) // the first sweep begins before, the next one later
		synctest.Wait()
		if n != 1 {
			t.Errorf("%d sweeps of many runs, want 1", n)
		}
		many.Remove(l)
	})
}

// compacting is a store that says how full it is.
type compacting struct {
	sweeps int
}

func (c *compacting) Sweep(context.Context, jetstream.SweepOptions) (jetstream.Swept, error) {
	if c.sweeps++; c.sweeps == 1 {
		return jetstream.Swept{}, errors.New("no answer")
	}
	return jetstream.Swept{Used: 0.5}, nil
}

// Ended runs are removed while there is a lane, also after an error, and the goroutines end with
// the last lane.
func TestEndedRunsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &compacting{}
		var used []float64
		begun, ended := 0, 0
		r := newRig(t, Config{Sweep: time.Hour, States: store, Filled: func(u float64) { used = append(used, u) }, Beside: func(ctx context.Context) {
			begun++
			<-ctx.Done()
			ended++
		}})
		a, b := r.lane("agent.a"), r.lane("agent.b")
		r.Add(a)
		r.Add(b)
		time.Sleep(time.Minute)
		synctest.Wait()
		if store.sweeps < 8 || len(used) != store.sweeps-1 || used[0] != 0.5 || begun != 1 {
			t.Errorf("%d sweeps, used %v, %d goroutines beside", store.sweeps, used, begun)
		}
		r.Remove(a)
		synctest.Wait()
		if ended != 0 {
			t.Error("the goroutines ended before the last lane")
		}
		r.Remove(b)
		was := store.sweeps
		if ended != 1 {
			t.Error("Remove does not wait for the goroutines")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if store.sweeps != was {
			t.Error("swept after the last lane")
		}
	})
}

// slow is a store whose sweeps take a while.
type slow struct {
	took  time.Duration
	swept jetstream.Swept
	began []time.Time
}

func (s *slow) Sweep(context.Context, jetstream.SweepOptions) (jetstream.Swept, error) {
	s.began = append(s.began, time.Now())
	time.Sleep(s.took)
	return s.swept, nil
}

// A store that is nearly full, and has no run that may be deleted, is read completely by each sweep.
// The pause after such a sweep grows with what it took, to a bound. A sweep that deletes something,
// or is short, is soon followed by the next one.
func TestSweepsThatDeleteNothingTakeASmallPartOfTheTime(t *testing.T) {
	for name, of := range map[string]struct {
		store       *slow
		least, most time.Duration // between two sweeps
	}{
		"short":                 {&slow{took: 50 * time.Millisecond}, 2 * time.Second, 8 * time.Second},
		"long":                  {&slow{took: 2 * time.Second}, 22 * time.Second, 62 * time.Second},
		"very long":             {&slow{took: time.Minute}, 2 * time.Minute, 4 * time.Minute},
		"runs were deleted":     {&slow{took: 2 * time.Second, swept: jetstream.Swept{Runs: 1}}, 4 * time.Second, 10 * time.Second},
		"an object was deleted": {&slow{took: 2 * time.Second, swept: jetstream.Swept{Objects: 1}}, 4 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{Sweep: time.Hour, States: of.store, Filled: func(float64) {}})
				l := r.lane("agent.a")
				r.Add(l)
				time.Sleep(time.Hour)
				r.Remove(l)
				if len(of.store.began) < 10 {
					t.Errorf("%d sweeps in an hour", len(of.store.began))
				}
				for i, at := range of.store.began[1:] {
					if pause := at.Sub(of.store.began[i]); pause < of.least || pause > of.most {
						t.Errorf("sweep %d began %v after the one before", i+1, pause)
					}
				}
			})
		})
	}
}
