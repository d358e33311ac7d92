package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

const agent = "agent.a"

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// recorder is a run and its worker that write down what is done with them.
type recorder struct {
	states *state.Mem
	cp     *state.Checkpoint
	rev    uint64
	fail   error // of each Advance
	// room is the error of Room; answer the reply to Ask.
	room   error
	answer func(*envelope.Envelope) (*envelope.Envelope, error)
	did    []string
}

func (r *recorder) do(format string, args ...any) {
	r.did = append(r.did, fmt.Sprintf(format, args...))
}

func (r *recorder) Checkpoint() (*state.Checkpoint, uint64) { return r.cp, r.rev }

func (r *recorder) Advance(phase state.Phase, change func(*state.Checkpoint) error) error {
	if r.fail != nil {
		return r.fail
	}
	c := r.cp.Clone()
	run.Advance(c, phase, now)
	if change != nil {
		if err := change(c); err != nil {
			return err
		}
	}
	r.do("advance %s", phase)
	return r.put(c)
}

func (r *recorder) put(c *state.Checkpoint) error {
	data, err := state.Codec{}.Over(r.rev).Encode(c)
	if err != nil {
		return err
	}
	r.rev, err = r.states.Put(context.Background(), c.ID(), r.rev, data)
	r.cp = c
	return err
}

func (r *recorder) Observe(point string) {}
func (r *recorder) StopCalls() {
	for _, c := range r.cp.Mesh.Calls {
		r.do("stop call %s", c.ID)
	}
}
func (r *recorder) End(e *envelope.Envelope, stream int) { r.do("end %s after %d", e.Type, stream) }
func (r *recorder) Fail(problem *envelope.Error)         { r.do("fail %v", problem) }
func (r *recorder) Moved()                               { r.do("moved") }
func (r *recorder) Park()                                { r.do("park") }
func (r *recorder) Resume()                              { r.do("resume as %s", r.cp.Doc.Status) }
func (r *recorder) Requeue(err error)                    { r.do("requeue: %v", err) }

func (r *recorder) Now() time.Time                     { return now }
func (r *recorder) Sendable(int) error                 { return nil }
func (r *recorder) Room() error                        { return r.room }
func (r *recorder) Background(f func(context.Context)) { f(context.Background()) }
func (r *recorder) Ask(_ context.Context, e *envelope.Envelope, _ time.Duration) (*envelope.Envelope, error) {
	return r.answer(e)
}

func (r *recorder) Claim(_ context.Context, rec state.Record, _ *state.Checkpoint, ack string, claimed func(uint64)) error {
	r.do("claim revision %d, ack %s", rec.Revision, ack)
	claimed(7)
	return nil
}

// captured returns a run that has stopped for a transfer to a worker, a platform or a file,
// and that had a status before.
func captured(t *testing.T, to string, was aaif.RunStatus) *recorder {
	t.Helper()
	task := envelope.New(envelope.TypeTask, "human.ada", agent, "code.review", json.RawMessage(`{}`))
	c := state.New(agent, task.ID, "")
	c.Doc.Status, c.Mesh.Migration = was, &state.Migration{ID: "6a0f3c1e-90a7-4d5c-8b0e-0f5f4bb0e1aa", To: to, Status: was}
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Mesh.Task, c.Mesh.Epoch = raw, 3
	run.Capture(c, "here", "", now)
	r := &recorder{states: &state.Mem{}}
	if err := r.put(c); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *recorder) mover(change func(*Config)) *Mover {
	cfg := Config{Entity: agent, Worker: "here", Platform: "berlin", Answers: answers.Reader{Verifier: sign.Verifier{Ring: new(sign.Ring)}}, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	return New(cfg, r)
}

func (r *recorder) run(t *testing.T) *Run {
	t.Helper()
	task, err := r.cp.ReadTask()
	if err != nil {
		t.Fatal(err)
	}
	return &Run{Owned: r, Task: task, Ack: "$JS.ACK.x"}
}

// The last call for a run says what has become of it and of its message.
func TestHowAMoveEnds(t *testing.T) {
	t.Parallel()
	accepts := func(e *envelope.Envelope) (*envelope.Envelope, error) {
		return e.Reply(envelope.TypeResult, json.RawMessage(`{"instance":"there","epoch":4}`)), nil
	}
	refuses := func(e *envelope.Envelope) (*envelope.Envelope, error) {
		return e.Reply(envelope.TypeError, envelope.Errorf(envelope.CodeDenied, "no").Payload()), nil
	}
	silent := func(*envelope.Envelope) (*envelope.Envelope, error) { return nil, context.DeadlineExceeded }
	full := errors.New("the store is full")
	for _, c := range []struct {
		name   string
		to     string
		was    aaif.RunStatus
		answer func(*envelope.Envelope) (*envelope.Envelope, error)
		fail   error
		want   string
	}{
		{name: "accepted", to: "there", was: aaif.RunRunning, answer: accepts, want: "advance captured, moved"},
		{name: "by any worker", to: intents.MigrateAny, was: aaif.RunRunning, answer: accepts, want: "advance captured, moved"},
		{name: "refused", to: "there", was: aaif.RunRunning, answer: refuses, want: "advance captured, advance aborted, resume as running"},
		{name: "refused when paused", to: "there", was: aaif.RunPaused, answer: refuses, want: "advance captured, advance aborted, park"},
		{name: "no answer", to: "there", was: aaif.RunRunning, answer: silent, want: "advance captured, advance aborted, resume as running"},
		{name: "to itself", to: "here", was: aaif.RunRunning, want: "advance aborted, resume as running"},
		{name: "not written", to: "here", was: aaif.RunRunning, fail: full, want: "requeue: the store is full"},
		{name: "to no platform", to: "https://paris.example", was: aaif.RunRunning, want: "advance aborted, resume as running"},
		{name: "to a file", to: intents.MigrateFile, was: aaif.RunRunning, want: "park"},
	} {
		r := captured(t, c.to, c.was)
		r.answer, r.fail = c.answer, c.fail
		r.mover(nil).Move(t.Context(), r.run(t))
		if got := strings.Join(r.did, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// The reason of a refusal is kept, from the code that the other side says.
func TestTheReasonOfAFailedMove(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("why ", 128)
	for name, c := range map[string]struct {
		why  error
		want string
	}{
		"the target's":     {fmt.Errorf("handoff to https://paris.example: %w", transfer.RemoteError("token_key", long)), "the other side says token_key: " + long},
		"another worker's": {fmt.Errorf("offer the run: %w", envelope.Errorf(envelope.CodeDenied, "%s", long)), long},
		"a late refusal":   {fmt.Errorf("%w: %s", transfer.ErrAborted, long[:400]), "aborted: the handoff was aborted: " + long[:400]},
		"a secret one":     {errors.New("password 4711"), "the agent failed for an internal reason"},
	} {
		r := captured(t, "https://paris.example", aaif.RunRunning)
		r.mover(nil).abort(r.run(t), c.why)
		if got := r.cp.Mesh.Migration.Detail; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A worker that drains requeues a run whose target it cannot ask.
func TestADrainEndsTheWaitForATarget(t *testing.T) {
	t.Parallel()
	for _, phase := range []state.Phase{state.PhaseCommitted, state.PhaseRelaying} {
		r := captured(t, "https://paris.example", aaif.RunRunning)
		r.cp.Mesh.Migration.Phase, r.cp.Mesh.Migration.Target = phase, "paris"
		ctx, cancel := context.WithCancel(t.Context())
		r.mover(func(cfg *Config) {
			cfg.Remotes = func(string) (*handoff.Client, error) { cancel(); return nil, errors.New("not now") }
			cfg.Signer, _, _ = sign.NewKey("berlin-1", sign.Ed25519, agent)
		}).Move(ctx, r.run(t))
		if !slices.Equal(r.did, []string{"requeue: <nil>"}) {
			t.Errorf("%s: %q", phase, r.did)
		}
	}
}

// The calls of a run that the target has accepted are cancelled also if the worker that heard so
// died before it cancelled them.
func TestTheNextWorkerThatRelaysCancelsTheCalls(t *testing.T) {
	t.Parallel()
	r := captured(t, "https://paris.example", aaif.RunRunning)
	r.cp.Mesh.Migration.Phase, r.cp.Mesh.Migration.Target = state.PhaseRelaying, "paris"
	r.cp.Mesh.Calls = []state.Call{{Key: "k", ID: "c1", To: "agent.b"}}
	ctx, cancel := context.WithCancel(t.Context())
	r.mover(func(cfg *Config) {
		cfg.Remotes = func(string) (*handoff.Client, error) { cancel(); return nil, errors.New("not now") }
		cfg.Signer, _, _ = sign.NewKey("berlin-1", sign.Ed25519, agent)
	}).Move(ctx, r.run(t))
	if want := []string{"stop call c1", "requeue: <nil>"}; !slices.Equal(r.did, want) {
		t.Errorf("%q, want %q", r.did, want)
	}
}

// A run whose deadline has passed ends at the source, although the target has not ended it, and
// also if the source does not know whether the target has it.
func TestTheWaitForATargetEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	for _, phase := range []state.Phase{state.PhaseCommitted, state.PhaseRelaying} {
		synctest.Test(t, func(t *testing.T) {
			r := captured(t, "https://paris.example", aaif.RunRunning)
			r.cp.Mesh.Migration.Phase, r.cp.Mesh.Migration.Target = phase, "paris"
			asked := 0
			late := r.run(t)
			late.Deadline = now.Add(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			r.mover(func(cfg *Config) {
				cfg.Remotes = func(string) (*handoff.Client, error) { asked++; return nil, errors.New("gone for good") }
				cfg.Signer, _, _ = sign.NewKey("berlin-1", sign.Ed25519, agent)
			}).Move(ctx, late)
			if took := time.Since(began); !slices.Equal(r.did, []string{"fail <nil>"}) || asked < 2 || took != time.Second+relayGrace {
				t.Errorf("%s: %q after %v and %d requests", phase, r.did, took, asked)
			}
		})
	}
}

// An offer is claimed with the revision and the message that it names; what is no offer for
// this worker is not answered.
func TestAnOfferIsAnsweredByTheWorkerItNames(t *testing.T) {
	t.Parallel()
	source := captured(t, "there", aaif.RunRunning)
	var offer *envelope.Envelope
	source.answer = func(e *envelope.Envelope) (*envelope.Envelope, error) {
		offer = e
		return nil, context.DeadlineExceeded
	}
	if _, err := source.mover(nil).offerTo(t.Context(), source.run(t), "there"); err == nil {
		t.Fatal("the offer was accepted by no worker")
	}
	for _, c := range []struct {
		worker, from string
		room         error
		did, reply   string
	}{
		{worker: "there", from: agent, did: fmt.Sprintf("claim revision %d, ack $JS.ACK.x", source.rev), reply: `{"instance":"there","epoch":7}`},
		{worker: "other", from: agent},
		{worker: "there", from: "agent.evil"},
		{worker: "there", from: agent, room: envelope.Errorf(envelope.CodeBusy, "full"), reply: "E_BUSY: full"},
	} {
		target := &recorder{room: c.room}
		task := *offer
		task.From = c.from
		var reply string
		target.mover(func(cfg *Config) { cfg.Worker, cfg.States = c.worker, source.states }).Offered(t.Context(), &task,
			func(payload json.RawMessage) { reply = string(payload) }, func(err error) { reply = err.Error() })
		if got := strings.Join(target.did, ", "); got != c.did || reply != c.reply {
			t.Errorf("%s from %s: %q, %q", c.worker, c.from, got, reply)
		}
	}
}

func TestWhoMayMoveARunToWhere(t *testing.T) {
	t.Parallel()
	signer, _, err := sign.NewKey("a-1", sign.Ed25519, agent)
	if err != nil {
		t.Fatal(err)
	}
	m := (&recorder{}).mover(func(cfg *Config) {
		cfg.Operators, cfg.Signer = []string{"human.ada"}, signer
		cfg.Remotes = func(url string) (*handoff.Client, error) {
			if url != "https://paris.example" {
				return nil, errors.New("no such platform")
			}
			return handoff.NewClient(url, handoff.ClientOptions{})
		}
	})
	for _, c := range []struct {
		from, to  string
		delegated bool
		ok        bool
	}{
		{from: "human.bob", to: "there", ok: true},
		{from: "human.bob", to: "there", delegated: true, ok: true},
		{from: "human.bob", to: "https://paris.example"},
		{from: "human.ada", to: "https://paris.example", ok: true},
		{from: "human.ada", to: "https://rome.example"},
		{from: "human.ada", to: "https://paris.example", delegated: true},
		{from: agent, to: intents.MigrateFile, ok: true},
		{from: "human.bob", to: intents.MigrateFile},
	} {
		err := m.Allow(&run.Order{Intent: intents.TaskMigrate, From: c.from, To: c.to}, c.delegated)
		if (err == nil) != c.ok {
			t.Errorf("%s to %s, delegated %t: %v", c.from, c.to, c.delegated, err)
		}
	}
}
