package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// Program is a [mesh.Handler] whose work an external program does. It starts
// the program once and keeps it running. The program reads one task per line
// from its standard input, a whole AEE envelope as compact JSON:
//
//	{"v":"1","id":"01J…","type":"task","intent":"code.review","payload":{…},…}
//
// and writes one JSON object per line to its standard output, in any order and
// for any task that it has read:
//
//	{"type":"stream","reply_to":"01J…","payload":{"text":"reading"}}
//	{"type":"result","reply_to":"01J…","payload":{"findings":[]}}
//	{"type":"error","reply_to":"01J…","payload":{"code":"E_NO_REPO","message":"…","retryable":false}}
//	{"type":"handoff","reply_to":"01J…","payload":{"to":"agent.billing","reason":"it is about money"}}
//
// Any number of streams may precede one result, one error, or one handoff. A
// handoff delegates the task to another agent, which answers it
// ([mesh.Task.Delegate]); its payload may also have intent and payload, and any
// other member is an error. The mesh fills in the rest of the envelope and
// signs it. Other members of a line are ignored.
//
// An error's code is sent unchanged if it is the program's own: one word of at
// most 128 visible ASCII characters. The default, also for a code that is no
// such word, is E_AGENT. Codes of the mesh that are about the admission of a
// message, such as E_REPLAY, become E_AGENT, with the code in the message.
// E_BUSY, E_RATE_LIMITED and E_DRAINING promise that the program has done
// nothing: the task is sent again.
//
// A task of the durable lane has one more member. It may be sent again after a
// crash of the program or of its worker, and it is not known how much of it the
// program had done:
//
//	"durable":{"run":"7e6d3c1a-…","attempt":2}
//
// The run is the same each time. Attempts are numbered from 1 and increase,
// with gaps if the run was paused or transferred. A program whose work must not
// be repeated has to record what it has done under the run's or the task's id.
//
// The number of tasks under way is limited by the agent's concurrency. The
// program is not told when a task is cancelled or times out; its answers to
// such a task are ignored and counted. The task keeps its place, and its slot of
// the agent's limit across the mesh, until the program has answered it, or for
// at most Linger; while no place is free, senders get E_BUSY at once, and the
// program does not see their tasks. After Linger the program may have more tasks
// than the agent's concurrency. The program must flush its output after each
// line, and exit when its standard input ends.
//
// Streams wait in memory until the mesh has sent them, up to MaxLine bytes of a
// task, while the program's other lines are read. Beyond that its output is not
// read until some are sent; see [Config].StreamTimeout.
//
// A program that exits is restarted, after a pause that doubles each time. Its
// tasks under way fail with E_UNAVAILABLE, retryable. A program that closes its
// standard output is stopped and then treated in the same way. A line that is
// no such object, or that names a task that is not under way, is counted,
// logged and otherwise ignored. A line that names a task under way, but has
// another type, or a result or error that is not an object, fails the task with
// E_AGENT. So does a line that is not JSON but has the reply_to of a task under
// way; if it is longer than MaxLine, the task fails with E_TOO_LARGE.
type Program struct {
	cfg    Config
	counts lineCounts
	notes  *limitedLog

	mu       sync.Mutex
	state    lifeState
	proc     *process      // while it runs
	changed  chan struct{} // closed and replaced when state, proc or failures change
	started  time.Time     // when proc was started
	retryAt  time.Time     // when it is restarted, while it is down
	failures int           // exits in a row that came too soon
	restarts int
	lastExit string
	handling int // calls of Handle
	most     int // the agent's concurrency, or the largest number of tasks so far
}

type lifeState int

const (
	idle lifeState = iota // Run has not been called
	up                    // Run is running: the program runs or will be restarted
	stopped
)

// New makes a Program, or reports all invalid settings. It does no I/O.
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

// Run starts the program and keeps it running until ctx ends. Then it closes
// the program's standard input, waits, and signals everything in its process
// group, see [Config].Grace. It returns when all of it has ended. It fails at
// once if Check does, and if Run was called before. A program that cannot be
// started is tried again, like one that exits.
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
		wait := p.ended(proc, err)
		p.cfg.Logger.Warn("program ended", "reason", err.Error(), "restart_in", wait)
		pause.For(ctx, wait)
	}
	return nil
}

// Check reports whether the program can be found, in PATH or under its path, and
// is executable. It does not tell whether the system can start it.
func (p *Program) Check() error {
	if _, err := exec.LookPath(p.cfg.Command[0]); err != nil {
		return fmt.Errorf("program: %w", err)
	}
	return nil
}

// ended records an unexpected exit, and returns the pause before the next
// start.
func (p *Program) ended(proc *process, err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake() // a waiting task may have to give up
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

// set changes the state and wakes the goroutines that wait for a change.
func (p *Program) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.wake()
}

// wake wakes the goroutines that wait for a change. p.mu is held.
func (p *Program) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Handle gives a task to the program and waits for its answer. A durable task
// also waits for a free place.
func (p *Program) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	durable := task.Run() != nil
	if durable { // a program's work is in no ledger, so it must be told of every attempt
		if err := task.Run().Claim(ctx); err != nil {
			return nil, err
		}
		if err := begunElsewhere(task.Run()); err != nil {
			return nil, err
		}
	}
	e := *task.Envelope
	e.Payload = task.Input()
	e.Extra = slices.DeleteFunc(slices.Clone(e.Extra), func(m envelope.Member) bool { return m.Name == "durable" }) // the mesh's own member
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
			return nil, unbegun(task, err)
		}
		payload, err := proc.do(ctx, task, line)
		var full *noPlace
		var on *handsOn
		switch {
		case errors.As(err, &on):
			return task.Delegate(ctx, on.Delegation)
		case errors.Is(err, errNotBegun):
		case durable && err == errUnderWay:
			if err := (&noPlace{until: time.Now().Add(underWayPause)}).wait(ctx); err != nil {
				return nil, err
			}
			proc = nil // try the same process again
		case !errors.As(err, &full):
			return payload, err
		case !durable:
			return nil, full.refusal()
		default:
			if err := full.wait(ctx); err != nil {
				return nil, err
			}
			proc = nil // try the same process again
		}
	}
}

// begunElsewhere refuses a run of another platform with completed steps: a
// program starts from the input, and would repeat them.
func begunElsewhere(run *mesh.Run) error {
	if !run.Restored() {
		return nil
	}
	if p := run.View().Doc.PipelinePosition; p != nil && len(p.CompletedSteps) > 0 {
		return envelope.Errorf(envelope.CodeInternal, "the run, which another platform began, cannot go on here: %d of its steps were completed, and a program does not take a run up in the middle", len(p.CompletedSteps))
	}
	return nil
}

// attempt tells a program to which run a task belongs, and the number of the
// attempt.
type attempt struct {
	Run     string `json:"run"`
	Attempt uint64 `json:"attempt"` // the run's epoch, the only number of the record that always increases
}

// attemptOf returns nil for a live task, which is never sent again.
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

// Serves sets how many tasks the agent runs at the same time.
func (p *Program) Serves(concurrency int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = max(p.most, concurrency)
}

// places returns how many tasks the program may have at the same time. Without
// an [Agent] that has called Serves, it is the largest number that it was given
// so far.
func (p *Program) places() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// taskLine encodes the task as one line, with the attempt if there may be
// several.
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

// await returns the running program if it is not last, or waits for it as long
// as giveUp allows. If the program keeps failing, it waits only for a patient
// task: another sender would time out first and learn nothing of the reason.
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

// unbegun says in an error that a live task was not begun, so that its sender may send it again. Of
// a durable one the program may have seen an earlier delivery.
func unbegun(task *mesh.Task, err error) error {
	var problem *envelope.Error
	if task.Run() == nil && errors.As(err, &problem) {
		return problem.NotBegun(task.Envelope)
	}
	return err
}

// troubled is the number of exits in a row after which a program counts as
// unhealthy.
const troubled = 3

// Health is the agent's health on the mesh: unhealthy, with the reason, while
// the program keeps exiting soon after its start; degraded while it is down for
// another reason.
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
