package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Options configure a soak. The zero value of each optional field means its default.
type Options struct {
	// Self is the command that runs [Role] with the arguments that follow it, for
	// instance the path of aeemesh and "soak". Required.
	Self []string
	// Dir is the directory for the servers' stores, logs and traces. It must exist.
	// Required.
	Dir string

	Seed     uint64        // determines the faults and the tasks
	Faults   int           // how many; default 100
	For      time.Duration // after that no more faults begin; default: no limit
	Servers  int           // 1, or a cluster of 3 with as many replicas; default 1
	Workers  int           // default 3
	Second   int           // workers of a second system, to which runs are transferred; default 2, below 0: no second system
	Places   int           // tasks at once in a worker; default 4
	Clients  int           // tasks under way; default 16
	Moves    int           // if above 0, all tasks are chains, and so many of them are transferred at once, again and again, amid kills; see [kills]
	Lease    time.Duration // default: the mesh's
	Pace     time.Duration // the mean time between two faults; default a third of the lease
	Sync     string        // the servers' sync_interval; default "2m", nats-server's default
	Disk     int64         // bytes: each server has a disk of its own, in memory, which faults fill; root on Linux only; default 0: none has
	Patience time.Duration // time to finish what is under way after the last fault; default 1 minute

	// Only, if set, lists the kinds of faults to use, and At the points at which they strike.
	Only []Kind
	At   []Point
	// To, if set, lists the agents that clients submit tasks to.
	To []string
	// Late is how long a worker that was stopped at a point waits there after it runs again, so
	// that its lane may get the message again before it goes on. Default: it does not wait.
	Late time.Duration
	// Break, if set, makes workers break a promise, to test that the soak notices: one of
	// [Breaks].
	Break string

	// Progress, if set, is called about once a second, and more often with a lease of less
	// than two.
	Progress func(Progress)
}

// Progress says how far a soak has come.
type Progress struct {
	Elapsed    time.Duration
	Faults, Of int
	Accepted   int
	Answered   int
	Violations int
	Found      []Violation // those since the last call
}

func (o Options) normal() (Options, error) {
	var bad []error
	if len(o.Self) == 0 {
		bad = append(bad, errors.New("the command of the children is missing"))
	}
	if o.Dir == "" {
		bad = append(bad, errors.New("the directory is missing"))
	}
	o.Faults = cmp.Or(o.Faults, 100)
	o.Second = cmp.Or(o.Second, 2)
	o.Servers, o.Workers, o.Places, o.Clients = max(o.Servers, 1), cmp.Or(o.Workers, 3), cmp.Or(o.Places, 4), cmp.Or(o.Clients, 16)
	if o.Moves > 0 {
		o.Places = max(o.Places, o.Moves) // the workers that are left have room for all
		if len(o.Only) == 0 {
			o.Only = kills
		}
	}
	if aim, ok := aims[o.Break]; ok && len(o.Only) == 0 && len(o.At) == 0 {
		o.Only, o.At = []Kind{aim.kind}, aim.at
	}
	o.Lease = cmp.Or(o.Lease, jetstream.DefaultLease)
	o.Pace, o.Patience, o.Sync = cmp.Or(o.Pace, o.Lease/3), cmp.Or(o.Patience, time.Minute), cmp.Or(o.Sync, "2m")
	if o.Servers != 1 && o.Servers != 3 && o.Servers != 5 {
		bad = append(bad, fmt.Errorf("%d servers: it is 1, or a cluster of 3 or 5", o.Servers))
	}
	if o.Faults < 0 || o.For < 0 || o.Workers < 1 || o.Places < 1 || o.Clients < 1 || o.Lease < 100*time.Millisecond || o.Pace < 0 || o.Patience < 0 || o.Moves < 0 || o.Disk < 0 {
		bad = append(bad, errors.New("numbers and durations cannot be negative, and a lease is at least 100ms"))
	}
	if o.Break != "" && !slices.Contains(Breaks, o.Break) {
		bad = append(bad, fmt.Errorf("break %q: it is one of %v", o.Break, Breaks))
	}
	return o, errors.Join(bad...)
}

// Run runs a soak: it starts the processes, lets clients submit tasks and faults strike,
// waits until all tasks have replies, and judges them. An error means that the soak
// itself could not continue; broken promises are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.normal()
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	s := &soak{Options: o, began: time.Now()}
	defer s.close()
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	if err := s.soak(ctx); err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	return s.report()
}

// soak is one run.
type soak struct {
	Options
	began, finished time.Time

	conn, submits *nats.Conn // of the observer, and of the clients
	js            natsjs.JetStream
	servers       *servers
	workers       *workers
	second        *second // nil: there is none
	effects       *effects
	client        door
	seen          *observer
	log           *os.File

	mu      sync.Mutex
	strikes []Strike
	died    []error
}

func (s *soak) start(ctx context.Context) error {
	l := &launcher{self: s.Self, dir: s.Dir}
	var err error
	if s.log, err = os.Create(filepath.Join(s.Dir, "effects.jsonl")); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s.Seed, 0xeffec7))
	var mu sync.Mutex
	if s.effects, err = newEffects(s.log, func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(int64(s.Lease / 20)))
	}); err != nil {
		return err
	}
	if s.servers, err = newServers(l, s.Servers, s.Sync, "n", s.Disk); err != nil {
		return err
	}
	if err := s.servers.startAll(ctx); err != nil {
		return err
	}
	cfg := workerConfig{System: firstSystem, Effects: s.effects.addr, Lease: s.Lease, Places: s.Places, Break: s.Break}
	if s.Second > 0 {
		if s.second, err = newSecond(l, s.Second, s.Sync, cfg); err != nil {
			return err
		}
		s.second.workers.died, s.second.receiver.died = s.dies, s.dies
		cfg.Remote, cfg.CA = s.second.url(), s.second.ca
	}
	s.workers, err = newWorkers(l, "worker", "w", s.Workers, s.servers.addresses(), cfg)
	if err != nil {
		return err
	}
	s.workers.died = s.dies
	// The workers start before the streams exist, and must join the durable lane by
	// themselves.
	started := make(chan error, 1)
	go func() {
		if s.second == nil {
			started <- nil
			return
		}
		started <- s.second.start(ctx)
	}()
	err = s.workers.startAll(ctx)
	if err = errors.Join(err, <-started); err != nil {
		return err
	}
	return s.connect(ctx)
}

// dies is called when a process exits by itself.
func (s *soak) dies(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.died = append(s.died, err)
}

// connect creates the streams, and the connections of the soak itself.
func (s *soak) connect(ctx context.Context) error {
	s.seen = newObserver(subject.Map{}, s.effects, 2*s.Lease)
	var err error
	if s.conn, s.js, err = s.prepare(ctx, s.servers); err != nil {
		return err
	}
	s.seen.views = append(s.seen.views, &view{conn: s.conn, js: s.js})
	if s.second != nil {
		if s.second.conn, s.second.js, err = s.prepare(ctx, s.second.servers); err != nil {
			return err
		}
		s.seen.views = append(s.seen.views, &view{conn: s.second.conn, js: s.second.js, second: true})
	}
	if s.client, err = newDoor(s.servers.addresses()); err != nil {
		return err
	}
	s.submits, err = connect(s.client.urls(), "soak clients")
	return err
}

// prepare creates a system's streams, and connects the observer to it.
func (s *soak) prepare(ctx context.Context, servers *servers) (conn *nats.Conn, js natsjs.JetStream, err error) {
	var urls []string
	for _, a := range servers.addresses() {
		urls = append(urls, "nats://"+a)
	}
	if conn, err = connect(urls, "soak observer"); err != nil {
		return nil, nil, err
	}
	if js, err = natsjs.New(conn); err != nil {
		return conn, nil, err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := servers.awaitJetStream(ready, js); err != nil {
		return conn, js, err
	}
	return conn, js, poll(ready, 200*time.Millisecond, func() error {
		if _, err := jetstream.Apply(ready, js, jetstream.Options{Replicas: len(servers.nodes)}); err != nil {
			return err
		}
		return shortWindow(ready, js)
	})
}

// shortWindow makes the server forget the message ids of records and replies at once. For
// two minutes they would hide a reply that is stored twice.
func shortWindow(ctx context.Context, js natsjs.JetStream) error {
	stream, err := js.Stream(ctx, "KV_"+jetstream.BucketState)
	if err != nil {
		return err
	}
	cfg := stream.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond // the least that it takes
	_, err = js.UpdateStream(ctx, cfg)
	return err
}

// soak runs the load and the faults, and judges the tasks.
func (s *soak) soak(ctx context.Context) error {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watch, load sync.WaitGroup
	watch.Go(func() { s.seen.run(watching) })
	watch.Go(func() { s.tell(watching) })
	submitting, enough := context.WithCancel(ctx)
	defer enough()
	answering, giveUp := context.WithCancel(ctx)
	defer giveUp()
	c := &clients{conn: s.submits, n: s.Clients, seed: s.Seed, lease: s.Lease, to: s.To, seen: s.seen, moves: s.Moves}
	if s.second != nil {
		c.away = s.second.url()
	}
	load.Go(func() { c.run(answering, submitting) })

	err := s.strike(ctx)
	enough()
	late := time.AfterFunc(s.Patience, giveUp)
	load.Wait()
	late.Stop()
	// A zombie can act only within its lease: wait for that.
	pause.For(ctx, s.seen.settle)
	left := append(s.leftOver(ctx, s.js), s.deafAgents(ctx, s.conn, s.workers)...)
	if s.second != nil {
		left = append(left, s.leftOver(ctx, s.second.js)...)
		left = append(left, s.deafAgents(ctx, s.second.conn, s.second.workers)...)
		left = append(left, s.notQueued(ctx)...)
	}
	reading, done := context.WithTimeout(ctx, s.Patience)
	if readErr := s.seen.caughtUp(reading); readErr != nil {
		err = errors.Join(err, readErr)
	}
	done()
	stopWatching()
	watch.Wait()
	s.workers.drain(20 * time.Second)
	if s.second != nil {
		s.second.workers.drain(20 * time.Second)
		s.second.receiver.drain(20 * time.Second)
	}
	s.seen.judge(true)
	for _, v := range left {
		s.seen.note(v)
	}
	s.finished = time.Now()
	return errors.Join(err, ctx.Err())
}

// strike carries out the faults.
func (s *soak) strike(ctx context.Context) error {
	if s.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.For)
		defer cancel()
	}
	c := &chaos{servers: s.servers, workers: s.workers, client: s.client, second: s.second, lease: s.Lease, late: s.Late, begun: s.struck, ended: s.mended}
	return c.run(ctx, plan(s.Options))
}

func (s *soak) struck(f Strike) {
	switch f.Kind.does() {
	case WorkerKill, WorkerStop, WorkerHold, WorkerRestart:
		if f.Victim != "" {
			s.seen.lost(f.Victim, end{kind: f.Kind, at: f.At})
		}
	}
}

func (s *soak) mended(f Strike) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strikes = append(s.strikes, f)
}

// tell judges the tasks that have ended, and reports progress.
func (s *soak) tell(ctx context.Context) {
	told := 0
	for pause.For(ctx, min(time.Second, s.Lease/2)) {
		s.seen.judge(false)
		if s.Progress == nil {
			continue
		}
		s.seen.mu.Lock()
		p := Progress{Elapsed: time.Since(s.began), Of: s.Faults, Accepted: s.seen.counts.Accepted, Answered: s.seen.counts.Answered, Violations: len(s.seen.found)}
		p.Found = slices.Clone(s.seen.found[told:])
		told = len(s.seen.found)
		s.seen.mu.Unlock()
		s.mu.Lock()
		p.Faults = len(s.strikes)
		s.mu.Unlock()
		s.Progress(p)
	}
}

func (s *soak) close() {
	if s.workers != nil {
		s.workers.close()
	}
	if s.second != nil {
		s.second.close()
	}
	for _, c := range []*nats.Conn{s.conn, s.submits} {
		if c != nil {
			c.Close()
		}
	}
	s.client.close()
	if s.servers != nil {
		s.servers.close()
	}
	if s.effects != nil {
		s.effects.close()
	}
	if s.log != nil {
		s.log.Close()
	}
}

// report builds the report, and writes the traces of tasks that broke a rule.
func (s *soak) report() (*Report, error) {
	o := s.seen
	r := &Report{
		Seed: s.Seed, Servers: s.Servers, Workers: s.Workers, Second: max(0, s.Second), Lease: s.Lease, Sync: s.Sync, Took: s.finished.Sub(s.began), Cores: runtime.NumCPU(),
		Tasks: o.counts, Violations: o.found, Dir: s.Dir,
	}
	for _, err := range s.died {
		r.Violations = append(r.Violations, Violation{Rule: RuleAlive, Detail: err.Error()})
	}
	r.Tasks.Early = s.workers.early
	if s.second != nil {
		r.Tasks.Early += s.second.workers.early
	}
	r.faults(s.strikes)
	r.recoveries(o.back, s.strikes, o.moved)
	if len(r.Violations) == 0 {
		return r, nil
	}
	text, err := json.MarshalIndent(map[string]any{"report": r, "tasks": o.kept, "strikes": s.strikes}, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, "trace.json"), text, 0o600)
	}
	return r, err
}
