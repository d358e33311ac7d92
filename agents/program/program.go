package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// Program is a [mesh.Handler] whose work any program does. It starts the
// program once and keeps it. The program reads one task a line on its standard
// input, a whole AEE envelope as compact JSON:
//
//	{"v":"1","id":"01J…","type":"task","intent":"code.review","payload":{…},…}
//
// and writes one JSON object a line on its standard output, in any order and for
// any task that it has read:
//
//	{"type":"stream","reply_to":"01J…","payload":{"text":"reading"}}
//	{"type":"result","reply_to":"01J…","payload":{"findings":[]}}
//	{"type":"error","reply_to":"01J…","payload":{"code":"E_NO_REPO","message":"…","retryable":false}}
//	{"type":"handoff","reply_to":"01J…","payload":{"to":"agent.billing","reason":"it is about money"}}
//
// Streams may come any number of times, then one result, one error, or one
// handoff, by which another agent answers the task ([mesh.Task.HandOff]; intent
// and payload may be given, too, and any other member there is an error). An
// error's code travels as it is and is E_AGENT where there is none. The mesh
// fills in the rest of the envelope and signs it. Other members of a line are
// ignored.
//
// A task of the durable lane has one member more, for it may come again after a
// crash, of the program or of its worker, and nobody knows how far the program
// came with it:
//
//	"durable":{"run":"7e6d3c1a-…","attempt":2}
//
// The run is the same each time, and each attempt has a higher number than the one
// before it: from 1, and with gaps where the run was paused or moved. A program whose
// work must not be done twice notes what it has done under the run or the task's id.
//
// As many tasks are under way at once as the agent's concurrency allows. A
// program is told nothing when a task is cancelled or times out; what it still
// says about it is ignored and counted. Until it has said so, for at most
// Linger, the task keeps its place; while that leaves no place free, senders
// get E_BUSY at once: the program is not given their tasks. It must flush its
// output after each line, and end when its standard input ends.
//
// A program that dies is started again, after a pause that doubles each time.
// Tasks that it had under way are answered with E_UNAVAILABLE, retryable. One
// that closes its standard output counts as dead and is stopped first. A line
// that is no such object, or names a task that is not under way, is counted and
// logged and does no harm; one that names a task, with another type or with a
// result or error that is no object, fails the task with E_AGENT.
type Program struct {
	cfg    Config
	counts lineCounts
	notes  *limitedLog

	mu       sync.Mutex
	state    lifeState
	proc     *process      // while it runs
	changed  chan struct{} // closed, and replaced, when state or proc change
	started  time.Time     // of proc
	retryAt  time.Time     // while it is down
	failures int           // ends in a row that came too soon
	restarts int
	lastExit string
	handling int // calls of Handle
	most     int // of them at once: the agent's concurrency, or the most so far
}

type lifeState int

const (
	idle lifeState = iota // Run has not been called
	up                    // Run is under way: it runs, or will again
	stopped
)

// New makes a Program, or reports all that is wrong with the
// configuration. It does no I/O.
func New(cfg Config) (*Program, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Program{
		cfg:     cfg,
		notes:   newLimitedLog(cfg.Logger, 5, 20),
		changed: make(chan struct{}),
	}, nil
}

// Run starts the program and keeps it running until ctx ends, then stops it
// and everything in its process group: it closes the program's standard input,
// waits, and becomes more insistent. It returns when they are gone. It fails at
// once if there is no such program, and if it was called before.
func (p *Program) Run(ctx context.Context) error {
	if err := p.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	if p.state != idle {
		p.mu.Unlock()
		return errors.New("program: it runs, or has run, already")
	}
	p.state = up
	p.mu.Unlock()
	defer p.set(func() { p.state = stopped })
	for ctx.Err() == nil {
		proc, err := startProcess(p)
		if err == nil {
			p.set(func() { p.proc, p.started = proc, time.Now() })
			p.cfg.Logger.Info("program started", "pid", proc.group.PID())
			err = proc.supervise(ctx, func() { p.set(func() { p.proc = nil }) })
		}
		if ctx.Err() != nil {
			return nil
		}
		pause := p.ended(proc, err)
		p.cfg.Logger.Warn("program ended", "reason", err.Error(), "restart_in", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// Check reports whether the program can be found.
func (p *Program) Check() error {
	cmd := exec.Command(p.cfg.Command[0])
	if cmd.Err != nil {
		return fmt.Errorf("program: %w", cmd.Err)
	}
	return nil
}

// ended keeps the books on an end that nobody asked for, and says how long to
// wait before the next start.
func (p *Program) ended(proc *process, err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if proc != nil && (proc.answered.Load() || time.Since(p.started) >= p.cfg.StableAfter) {
		p.failures = 0
	}
	pause := min(p.cfg.RestartMax, p.cfg.RestartMin<<min(p.failures, 20))
	pause = pause/2 + rand.N(pause/2+1)
	p.failures++
	p.restarts++
	p.lastExit = err.Error()
	p.retryAt = time.Now().Add(pause)
	return pause
}

// set changes the state and tells those who wait for it.
func (p *Program) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Handle gives a task to the program and waits for its answer. A durable task
// waits for a place, too.
func (p *Program) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	durable := task.Run() != nil
	if durable { // what the program does is in no ledger: it must know of every attempt
		if err := task.Run().Claim(ctx); err != nil {
			return nil, err
		}
		if err := begunElsewhere(task.Run()); err != nil {
			return nil, err
		}
	}
	e := *task.Envelope
	e.Payload = task.Input()
	line, err := taskLine(&e, attemptOf(task))
	if err != nil {
		return nil, err
	}
	p.begin()
	defer p.end()
	wait := time.NewTimer(p.cfg.StartWait)
	defer wait.Stop()
	var proc *process
	for {
		if proc, err = p.await(ctx, wait.C, proc, durable); err != nil {
			return nil, err
		}
		payload, err := proc.do(ctx, task.Envelope.ID, task.Emit, line)
		var full *noPlace
		var on *handsOn
		switch {
		case errors.As(err, &on):
			return task.HandOff(ctx, on.HandOff)
		case errors.Is(err, errNotBegun):
		case durable && err == errUnderWay:
			if err := (&noPlace{until: time.Now().Add(underWayPause)}).wait(ctx); err != nil {
				return nil, err
			}
			proc = nil // the same again
		case !errors.As(err, &full):
			return payload, err
		case !durable:
			return nil, full.refusal()
		default:
			if err := full.wait(ctx); err != nil {
				return nil, err
			}
			proc = nil // the same again
		}
	}
}

// begunElsewhere refuses a run of another platform whose steps were completed there in
// part: a program begins with its input, and would do them again.
func begunElsewhere(run *mesh.Run) error {
	if !run.Restored() {
		return nil
	}
	if p := run.View().Doc.PipelinePosition; p != nil && len(p.CompletedSteps) > 0 {
		return envelope.Errorf(envelope.CodeInternal, "the run, which another platform began, cannot go on here: %d of its steps were completed, and a program does not take a run up in the middle", len(p.CompletedSteps))
	}
	return nil
}

// attempt tells a program which attempt of which run a task is.
type attempt struct {
	Run     string `json:"run"`
	Attempt uint64 `json:"attempt"` // the epoch: no other number of the record only rises
}

// attemptOf is nil for a live task, which comes once.
func attemptOf(task *mesh.Task) *attempt {
	r := task.Run()
	if r == nil {
		return nil
	}
	return &attempt{Run: r.ID(), Attempt: r.Epoch()}
}

func (p *Program) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handling++
	p.most = max(p.most, p.handling)
}

func (p *Program) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handling--
}

// Serves tells how many tasks the agent runs at once.
func (p *Program) Serves(concurrency int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = max(p.most, concurrency)
}

// places is how many tasks the program may have at once. Where no [Agent] runs
// it, that is the most that it was handed at once so far.
func (p *Program) places() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// taskLine is the task in one line, and which attempt it is if it may be more
// than one.
func taskLine(e *envelope.Envelope, which *attempt) ([]byte, error) {
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return nil, fmt.Errorf("encode task for the program: %w", err)
	}
	var line bytes.Buffer
	line.Grow(len(raw) + 1)
	if err := json.Compact(&line, raw); err != nil {
		return nil, fmt.Errorf("encode task for the program: %w", err)
	}
	if which != nil {
		raw, err := json.Marshal(which)
		if err != nil {
			return nil, fmt.Errorf("encode task for the program: %w", err)
		}
		line.Truncate(line.Len() - 1)
		line.WriteString(`,"durable":`)
		line.Write(raw)
		line.WriteByte('}')
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
}

// await returns the running program, or waits for another than last as long as
// giveUp allows. Where the program keeps dying it does not wait, unless the task is
// patient: a sender that gives up first would hear of a time-out alone.
func (p *Program) await(ctx context.Context, giveUp <-chan time.Time, last *process, patient bool) (*process, error) {
	for {
		p.mu.Lock()
		proc, state, changed, retryAt, failures := p.proc, p.state, p.changed, p.retryAt, p.failures
		p.mu.Unlock()
		switch {
		case proc != nil && proc != last:
			return proc, nil
		case state == stopped:
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the agent's program has been stopped")
		case failures >= troubled && !patient:
			return nil, notRunning(retryAt)
		}
		select {
		case <-changed:
		case <-giveUp:
			return nil, notRunning(retryAt)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func notRunning(retryAt time.Time) error {
	return envelope.Errorf(envelope.CodeUnavailable, "the agent's program is not running; it had not begun the task").WithBackoff(max(time.Until(retryAt), time.Second))
}

// troubled is after how many ends in a row a program counts as unhealthy.
const troubled = 3

// Health is what the mesh shows as the agent's: unhealthy, with the reason,
// while the program keeps dying soon after its start; degraded while it is down
// for another reason.
func (p *Program) Health() mesh.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := mesh.Health{Status: "healthy", Details: map[string]any{"program": "running", "restarts": p.restarts}}
	p.counts.details(h.Details)
	if p.lastExit != "" {
		h.Details["last_exit"] = p.lastExit
	}
	proven := false
	switch {
	case p.proc != nil:
		h.Details["in_flight"] = p.proc.inFlight()
		proven = p.proc.answered.Load() || time.Since(p.started) >= p.cfg.StableAfter
	case p.state == up:
		h.Details["program"] = "restarting"
		h.Status = "degraded"
		h.Details["reason"] = "the program is being started"
	default:
		h.Details["program"] = "stopped"
		h.Status = "unhealthy"
		h.Details["reason"] = "the program is not running"
	}
	if p.failures >= troubled && !proven && p.state == up {
		h.Status = "unhealthy"
		h.Details["reason"] = fmt.Sprintf("the program ended %d times in a row soon after its start, the last time with: %s", p.failures, p.lastExit)
	}
	return h
}
