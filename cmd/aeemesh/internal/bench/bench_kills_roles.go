package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/state"
)

// longEnough is the time of tasks that never end by themselves.
const longEnough = 24 * time.Hour

// sightingSubject is where workers tell what they do.
const sightingSubject = "bench.seen"

// report is what a worker tells of a run, or of itself where Run is empty.
type report struct {
	Run      string `json:"run,omitempty"`
	PID      int    `json:"pid"`
	Released bool   `json:"released,omitempty"`
}

func killConfig(js natsjs.JetStream, entity string) mesh.Config {
	cfg := nodeConfig(entity, benchLane(js))
	cfg.MaxTimeout, cfg.DefaultTimeout = longEnough, longEnough
	return cfg
}

// killTask is a task that writes a checkpoint at each step for ever.
func killTask(to string, step time.Duration) *envelope.Envelope {
	e := envelope.New(envelope.TypeTask, benchClient, to, "bench.work", json.RawMessage(fmt.Sprintf(`{"step_ms":%d}`, step.Milliseconds())))
	e.Requires = json.RawMessage(fmt.Sprintf(`{"timeout_ms":%d}`, longEnough.Milliseconds()))
	return e
}

// workerEntity is the entity of the worker with a number.
func workerEntity(entity string, i int, alone bool) string {
	if alone {
		return fmt.Sprintf("%s_%d", entity, i)
	}
	return entity
}

func newBenchKillsWorkCommand(stdout io.Writer) *cobra.Command {
	var url, entity string
	var workers, concurrency int
	var alone bool
	var reconnect time.Duration
	cmd := childCommand("work", func(ctx context.Context) error {
		ctx = untilStdinCloses(ctx)
		errs := make([]error, workers)
		var serving, ready sync.WaitGroup
		ready.Add(workers)
		for i := range workers {
			serving.Go(func() {
				errs[i] = killWorker(ctx, url, workerEntity(entity, i, alone), concurrency, reconnect, ready.Done)
			})
		}
		ready.Wait()
		fmt.Fprintln(stdout, "ready")
		serving.Wait()
		return errors.Join(errs...)
	})
	f := cmd.Flags()
	f.StringVar(&url, "url", "", "")
	f.StringVar(&entity, "entity", "", "")
	f.IntVar(&workers, "workers", 1, "")
	f.IntVar(&concurrency, "concurrency", 64, "")
	f.BoolVar(&alone, "alone", false, "")
	f.DurationVar(&reconnect, "reconnect", 0, "")
	return cmd
}

// killWorker serves one worker, which tells of its runs.
func killWorker(ctx context.Context, url, entity string, concurrency int, reconnect time.Duration, ready func()) error {
	ready = sync.OnceFunc(ready)
	defer ready()
	conn, err := natsconn.Connect(ctx, natsconn.Config{URL: url})
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn, "")
	if err != nil {
		return err
	}
	node, err := mesh.New(conn, killConfig(js, entity))
	if err != nil {
		return err
	}
	tell := func(r report) {
		r.PID = os.Getpid()
		publish(conn, sightingSubject, r)
	}
	var shaking sync.WaitGroup
	defer shaking.Wait()
	if reconnect > 0 {
		shaking.Go(func() {
			for pause.For(ctx, reconnect) {
				if conn.ForceReconnect() == nil {
					tell(report{})
				}
			}
		})
	}
	work := mesh.HandlerFunc(func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
		run := t.Run()
		if run == nil {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		var in struct {
			Step int64 `json:"step_ms"`
		}
		if err := json.Unmarshal(t.Input(), &in); err != nil {
			return nil, err
		}
		for {
			if err := run.Commit(ctx, state.Step{Kind: state.StepHandler, Name: "step"}, nil); err != nil {
				if errors.Is(err, mesh.ErrParked) {
					tell(report{Run: run.ID(), Released: true})
				}
				return nil, err
			}
			tell(report{Run: run.ID()}) // by its owner, for the swap has succeeded
			if !pause.For(ctx, time.Duration(in.Step)*time.Millisecond) {
				return nil, context.Cause(ctx)
			}
		}
	})
	return node.Serve(ctx, mesh.Agent{Entity: entity, Handler: work, Concurrency: concurrency, Ready: ready})
}

func newBenchKillsBurnCommand(stdout io.Writer) *cobra.Command {
	return childCommand("burn", func(ctx context.Context) error {
		ctx = untilStdinCloses(ctx)
		fmt.Fprintln(stdout, "ready")
		for n := 0; ctx.Err() == nil; n++ {
			if n%1000 == 0 {
				runtime.Gosched()
			}
		}
		return nil
	})
}

// sighting is what is known of a run.
type sighting struct {
	pid         int
	since, last time.Time // when it was first and last seen on this worker
	before      time.Time // when it was last seen on the worker before
}

// sightings are what the workers of one phase tell, which are of an entity of their own.
type sightings struct {
	entity string
	sub    *nats.Subscription

	mu      sync.Mutex
	changed chan struct{} // closed at each report
	runs    map[string]sighting
	moves   int
	shakes  int
}

func watchRuns(conn *nats.Conn, entity string) (*sightings, error) {
	s := &sightings{entity: entity, changed: make(chan struct{}), runs: map[string]sighting{}}
	var err error
	s.sub, err = conn.Subscribe(sightingSubject, s.hear)
	if err == nil {
		err = conn.Flush()
	}
	return s, err
}

func (s *sightings) hear(msg *nats.Msg) {
	now := time.Now()
	var r report
	if json.Unmarshal(msg.Data, &r) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Run == "" {
		s.shakes++
		return
	}
	was, known := s.runs[r.Run]
	switch {
	case known && was.pid == r.PID:
		was.last = now
	case r.Released:
		return // by a former owner, late
	default:
		if known {
			s.moves++
		}
		was = sighting{pid: r.PID, since: now, last: now, before: was.last}
	}
	s.runs[r.Run] = was
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits until something holds, for two minutes at most.
func (s *sightings) until(ctx context.Context, what string, holds func(*sightings) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		s.mu.Lock()
		ok, changed := holds(s), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("bench kills: waited until %s: %w", what, ctx.Err())
		}
	}
}

// of returns the runs of a worker, if each has been there for a while. s.mu is held.
func (s *sightings) of(pid int, atLeast time.Duration) (runs []string) {
	now := time.Now()
	for id, one := range s.runs {
		switch {
		case one.pid != pid:
		case now.Sub(one.since) < atLeast:
			return nil
		default:
			runs = append(runs, id)
		}
	}
	return runs
}

// gaps waits until the runs work elsewhere than on a worker, and returns for how long each
// did not work. from says since when, of what was known of the run before.
func (s *sightings) gaps(ctx context.Context, runs []string, pid int, from func(before sighting) time.Time) (out []time.Duration, err error) {
	err = s.until(ctx, "the runs of a worker that is gone work again", func(s *sightings) bool {
		return !slices.ContainsFunc(runs, func(id string) bool { return s.runs[id].pid == pid })
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range runs {
		now := s.runs[id]
		out = append(out, now.since.Sub(from(sighting{last: now.before})))
	}
	return out, err
}

func (s *sightings) moved() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moves
}

func (s *sightings) reconnected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shakes
}

func (s *sightings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.runs)
}

// liveTasks are live tasks that workers hold.
type liveTasks struct {
	tasks sync.WaitGroup

	mu          sync.Mutex
	at          time.Time // of the last kill
	gaps        []time.Duration
	unexplained int
}

// keep keeps one task with some worker until ctx ends.
func (l *liveTasks) keep(ctx context.Context, node *mesh.Node, entity string) {
	l.tasks.Go(func() {
		for ctx.Err() == nil {
			_, err := node.Send(ctx, killTask(entity, time.Hour), mesh.SendOptions{NoCancel: true})
			now := time.Now()
			var problem *envelope.Error
			if ctx.Err() != nil || !errors.As(err, &problem) || problem.Code != envelope.CodeUnavailable || problem.FromPeer() {
				pause.For(ctx, 10*time.Millisecond) // a worker that drains
				continue
			}
			l.mu.Lock()
			if gap := now.Sub(l.at); gap < time.Minute {
				l.gaps = append(l.gaps, gap)
			} else {
				l.unexplained++
			}
			l.mu.Unlock()
		}
	})
}

func (l *liveTasks) killed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = at
}

// reports returns how long after a kill senders were told of it, and how many were told
// without a kill.
func (l *liveTasks) reports() ([]time.Duration, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.gaps), l.unexplained
}

// distribution makes a row of how long things took.
func distribution(what string, took []time.Duration) killRow {
	row := killRow{What: what, Times: len(took)}
	if len(took) == 0 {
		return row
	}
	slices.Sort(took)
	at := func(share float64) float64 { return float64(quantile(took, share)) / float64(time.Millisecond) }
	row.P50, row.P90, row.P99, row.Max = at(0.50), at(0.90), at(0.99), at(1)
	return row
}
