package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/state"
)

// brokenSeen is a replay window that fails for some keys.
type brokenSeen struct {
	Seen
	errs map[string]error
}

func (s *brokenSeen) Claim(ctx context.Context, entity, id, by string) (string, error) {
	if err := s.errs[id]; err != nil {
		return "", err
	}
	return s.Seen.Claim(ctx, entity, id, by)
}

// The id of a signed task in the queue is in the mesh's replay window already. Whether the task
// begins, is looked at again later, or is refused depends on who has the id, and on whether a run
// has begun under it.
func TestWhoHasTheIDOfADurableTask(t *testing.T) {
	t.Parallel()
	const begins, later, refused, elsewhere = "begins", "later", string(envelope.CodeReplay), string(envelope.CodeRequires)
	type test struct {
		holder    string // seenWork + "77777": this message; "QUEUED": the message that is in the queue with the same task
		err       error  // of the window
		record    bool   // a run has begun
		unsigned  bool
		handoff   bool // the task says that it was delegated
		delivered uint64
		want      string
		insists   string // where the operator insists on the window; "": as want
	}
	tests := map[string]test{
		"a live task":                           {holder: seenLive + "x", want: refused},
		"a live task, and this one is unsigned": {holder: seenLive + "x", unsigned: true, want: begins},
		"a live task that was moved here":       {holder: seenLater + "x", want: begins},
		"and no delegated one is moved":         {holder: seenLater + "x", handoff: true, want: refused},
		"a message that is queued":              {holder: "QUEUED", delivered: 9, want: later},
		"a message that has begun a run":        {holder: "QUEUED", record: true, want: begins},
		"one that is gone, and has begun a run": {holder: seenWork + "99999", record: true, delivered: 9, want: begins},
		"one that is gone":                      {holder: seenWork + "99999", delivered: seenTries + 1, want: refused},
		"one that is gone, maybe just now":      {holder: seenWork + "99999", delivered: seenTries, want: later},
		"this message, which names no lane":     {holder: seenWork + "77777", want: begins, insists: elsewhere},
		"the window is away":                    {err: jetstream.ErrUnavailable, want: begins, insists: later},
		"another, which cannot be read":         {err: fmt.Errorf("%w: a replica lags behind", jetstream.ErrExists), want: later},
		"another, which this user may not read": {err: fmt.Errorf("%w: %w", jetstream.ErrExists, jetstream.ErrDenied), want: begins, insists: later},
	}
	for _, insists := range []bool{false, true} {
		t.Run(fmt.Sprintf("insists=%v", insists), func(t *testing.T) {
			t.Parallel()
			lanes, over := make(chan *lane, 100), make(chan struct{})
			defer close(over)
			window := &brokenSeen{errs: map[string]error{}}
			node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
				lanes <- task.Run().lane
				<-over
				return json.RawMessage(`{}`), nil
			})}, func(cfg *Config) { cfg.Seen, cfg.SeenUnsigned = window, insists })
			js, err := natsjs.New(node.conn)
			if err != nil {
				t.Fatal(err)
			}
			window.Seen = seen.New(js, subject.Map{}, time.Minute)
			submit := func(task *envelope.Envelope) uint64 {
				receipt, err := node.Submit(ctx, task, client.SubmitOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return receipt.Seq
			}
			newTask := func() *envelope.Envelope {
				return envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
			}
			submit(newTask())
			l := <-lanes // the agent's only place is taken from now on
			for name, test := range tests {
				task := newTask()
				if test.handoff {
					task.Requires = json.RawMessage(`{"` + requires.Handoff + `":{}}`)
				}
				if test.holder == "QUEUED" {
					test.holder = seenWork + strconv.FormatUint(submit(task), 10)
				}
				key := seenKey(task)
				if test.err != nil {
					window.errs[key] = test.err
				} else if _, err := window.Claim(ctx, "agent.x", key, test.holder); err != nil {
					t.Fatal(err)
				}
				if test.record {
					c := state.New("agent.x", task.ID, "")
					data, err := state.Codec{}.Encode(c)
					if err == nil {
						_, err = l.cfg.States.Put(ctx, c.ID(), 0, data)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				one := &Task{Envelope: task, KeyID: "ada", host: l.host}
				if test.unsigned {
					one.KeyID = ""
				}
				r := newRun(l, one, &hold{Delivery: &jetstream.Delivery{Seq: 77777, Stored: time.Now(), Delivered: max(test.delivered, 1)}})
				err := l.deliveries.firstInMesh(ctx, r)
				got, want := begins, test.want
				if errors.Is(err, errLater) {
					got = later
				} else if err != nil {
					got = string(fault.ForPeer(err).Code)
				}
				if insists && test.insists != "" {
					want = test.insists
				}
				if got != want {
					t.Errorf("%s: the task %s, not %s: %v", name, got, want, err)
				}
			}
		})
	}
}

// lateWindow is a replay window that keeps nothing until it is found.
type lateWindow struct {
	Seen
	found bool
	since time.Time
}

func (s *lateWindow) Claim(ctx context.Context, entity, id, by string) (string, error) {
	if !s.found {
		return by, nil
	}
	return s.Seen.Claim(ctx, entity, id, by)
}

func (s *lateWindow) KeepsSince() time.Time { return s.since }

// A live task that was moved to the queue before the mesh's replay window was found begins: the
// window could not keep the claim of the worker that moved it. One that was queued later does not.
func TestATaskThatWasMovedBeforeTheReplayWindowWasFoundBegins(t *testing.T) {
	t.Parallel()
	lanes, over := make(chan *lane, 1), make(chan struct{})
	defer close(over)
	window := &lateWindow{}
	node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		lanes <- task.Run().lane
		<-over
		return json.RawMessage(`{}`), nil
	})}, func(cfg *Config) { cfg.Seen, cfg.SeenUnsigned = window, true })
	js, err := natsjs.New(node.conn)
	if err != nil {
		t.Fatal(err)
	}
	newTask := func() *envelope.Envelope {
		return envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	}
	if _, err := node.Submit(ctx, newTask(), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	l := <-lanes
	window.Seen = seen.New(js, subject.Map{}, time.Minute)
	for name, test := range map[string]struct {
		since time.Duration // from when the message was stored to when the window was found
		want  envelope.Code
	}{"before": {10 * time.Second, ""}, "after": {-10 * time.Second, envelope.CodeRequires}} {
		task := newTask()
		window.found = false
		if holder, err := window.Claim(ctx, "agent.x", seenKey(task), seenLater+"x"); err != nil || holder != seenLater+"x" {
			t.Fatal(holder, err)
		}
		stored := time.Now()
		window.found, window.since = true, stored.Add(test.since)
		r := newRun(l, &Task{Envelope: task, KeyID: "ada", host: l.host}, &hold{Delivery: &jetstream.Delivery{Seq: 77777, Stored: stored, Delivered: 1}})
		got := envelope.Code("")
		if err := l.deliveries.firstInMesh(ctx, r); err != nil {
			got = fault.ForPeer(err).Code
		}
		if got != test.want {
			t.Errorf("stored %s: %q, want %q", name, got, test.want)
		}
	}
}
