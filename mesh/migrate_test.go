package mesh_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// In the middle of a generation: the target goes on with the next word.
func TestARunMovesInTheMiddleOfAGeneration(t *testing.T) {
	t.Parallel()
	for _, any := range []bool{false, true} {
		t.Run(fmt.Sprint("any ", any), func(t *testing.T) {
			t.Parallel()
			m := newMovement(t)
			m.source.speak(wordsInTurn + 3)
			for range wordsInTurn + 3 {
				within(t, "a word", m.source.told)
			}
			to := m.targetID
			if any {
				to = intents.MigrateAny
			}
			m.move(to) // its owner answers, or a worker that sees the request
			run := within(t, "the target", m.target.begun)
			if !run.Restored() || run.Epoch() != 2 {
				t.Errorf("restored %v, epoch %d", run.Restored(), run.Epoch())
			}
			m.target.speak(1)
			equal(t, "the next word", within(t, "a word", m.target.told), "target:"+strings.SplitAfter(text(1), " ")[3])
			m.finish("target")
			c := m.record(m.task)
			equal(t, "phase", c.Mesh.Migration.Phase, state.PhaseMoved)
			equal(t, "from, to", c.Mesh.Migration.Source+" "+c.Mesh.Migration.Target, m.sourceID+" "+m.targetID)
			equal(t, "by", c.Mesh.Migration.By, ada)
			equal(t, "epoch", c.Mesh.Epoch, uint64(2))
		})
	}
}

// Awaiting a tool: the call ends where it was begun, then the run moves; or, when
// it takes too long, the call goes along as one whose outcome is not known.
func TestARunMovesWhileItAwaitsATool(t *testing.T) {
	t.Parallel()
	const ages = 18446744073710 // milliseconds, more than a time.Duration holds
	for name, wait := range map[string]int64{"until it is done": 0, "or ages have passed": ages, "with the call": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMovement(t)
			m.source.speak(2 * wordsInTurn)
			call := within(t, "the tool call", m.source.tools)
			m.move(m.targetID, func(c *intents.MigrateTask) { c.WaitMS = wait })
			if wait != 1 {
				if _, err := m.client.Command(ctxFor(t), reviewer, intents.SteerTask{Target: intents.Target{ID: m.task.ID}, Text: "later"}); err != nil {
					t.Error(err)
				}
				equal(t, "phase while the call is under way", m.phase(), state.PhaseAsked)
				close(call)
			}
			run := within(t, "the target", m.target.begun)
			effects := run.View().Mesh.Effects
			want := state.EffectDone
			if wait == 1 {
				want = state.EffectInFlight
			}
			if len(effects) != 1 || effects[0].Status != want {
				t.Errorf("effects %+v", effects)
			}
			m.finish("target")
		})
	}
}

// Between turns, where the handler's own commit is what stops it.
func TestARunMovesBetweenTurns(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(wordsInTurn - 1)
	for range wordsInTurn - 1 {
		within(t, "a word", m.source.told)
	}
	held := m.sourceAt.hold(mesh.PointBeforeCommit)
	m.source.speak(1)
	release := within(t, "the commit of the turn", held)
	moved := make(chan intents.CommandResult, 1)
	go func() { moved <- m.move(m.targetID) }()
	close(release)
	within(t, "the answer", moved)
	within(t, "the target", m.target.begun)
	m.finish("target")
}

// A paused run goes to its new worker when it is resumed.
func TestAPausedRunMoves(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(wordsInTurn + 1)
	for range wordsInTurn + 1 {
		within(t, "a word", m.source.told)
	}
	ctx := ctxFor(t)
	if _, err := m.client.Command(ctx, reviewer, intents.PauseTask{Target: intents.Target{ID: m.task.ID}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is paused", func() bool { return m.record(m.task).Doc.Status == aaif.RunPaused })
	m.drainedQueue()
	m.move(m.targetID)
	equal(t, "status", m.record(m.task).Doc.Status, aaif.RunPaused)
	equal(t, "phase", m.phase(), state.PhaseAsked)
	if _, err := m.client.Command(ctx, reviewer, intents.ResumeTask{Target: intents.Target{ID: m.task.ID}}); err != nil {
		t.Fatal(err)
	}
	// The target runs it, whichever worker draws the message.
	within(t, "the target", m.target.begun)
	m.finish("target")
	if c := m.record(m.task); c.Mesh.Owner != m.targetID {
		t.Errorf("owner %s", c.Mesh.Owner)
	}
}

// A move that fails, wherever it does, leaves the run with its source, which goes
// on with the next word.
func TestAMoveThatFails(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, tt := range map[string]struct {
		to      func(*movement) string
		prepare func(*movement)
		why     string
	}{
		"nobody else": {to: func(*movement) string { return intents.MigrateAny }, prepare: func(m *movement) { m.targetNC.Close() },
			why: "no other worker of agent.reviewer answers that it has room"},
		"the target is full": {prepare: func(m *movement) {
			other := newTask(reviewer, "code.review", `{"n":2}`)
			m.submit(m.client, other)
			within(m.t, "the target to be busy", m.target.begun)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMovement(t)
			m.source.speak(2)
			for range 2 {
				within(t, "a word", m.source.told)
			}
			if tt.prepare != nil {
				tt.prepare(m)
			}
			to := m.targetID
			if tt.to != nil {
				to = tt.to(m)
			}
			m.move(to)
			run := within(t, "the source to go on", m.source.begun)
			if !run.Restored() || run.Epoch() != 2 {
				t.Errorf("epoch %d", run.Epoch())
			}
			c := m.record(m.task)
			equal(t, "phase", c.Mesh.Migration.Phase, state.PhaseAborted)
			if c.Mesh.Migration.Detail == "" {
				t.Error("nobody says why")
			}
			if !strings.Contains(c.Mesh.Migration.Detail, tt.why) {
				t.Errorf("%q does not say: %s", c.Mesh.Migration.Detail, tt.why)
			}
			m.source.speak(1)
			equal(t, "the next word", within(t, "a word", m.source.told), "source:"+strings.SplitAfter(text(0), " ")[2])
			if name != "the target is full" {
				m.finish("source")
			}
		})
	}
}

// A move that cannot succeed does not stop the run.
func TestAMoveThatIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(2)
	for range 2 {
		within(t, "a word", m.source.told)
	}
	before := m.record(m.task)
	refused := func(what, to string, code envelope.Code, why string) {
		t.Helper()
		_, err := m.client.Command(ctxFor(t), reviewer, intents.MigrateTask{Target: intents.Target{ID: m.task.ID}, To: to})
		if codeOf(err) != code || !strings.Contains(fmt.Sprint(err), why) {
			t.Errorf("%s: %v, want %s: %s", what, err, code, why)
		}
	}
	refused("to the worker that has it", m.sourceID, envelope.CodeDenied, "the run is there already")
	refused("to nobody", "NOSUCHINSTANCE", envelope.CodeNotFound, "there is no worker NOSUCHINSTANCE of agent.reviewer")
	refused("to all", "*", envelope.CodeNotFound, "there is no worker * of agent.reviewer")
	if after := m.record(m.task); after.Mesh.Migration != nil || after.Mesh.Epoch != before.Mesh.Epoch {
		t.Errorf("the run has stopped: %+v, epoch %d", after.Mesh.Migration, after.Mesh.Epoch)
	}
	m.source.speak(1)
	within(t, "a word", m.source.told)
	m.finish("source")
}

// The source is gone at each point of the move, and the target at each of its
// own. One worker finishes the run, and the caller notices nothing.
func TestWorkersDieDuringAMove(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for _, tt := range []struct {
		who string
		at  mesh.Point
	}{
		{"source", mesh.PointBeforeCommit}, {"source", mesh.PointAfterCommit}, {"source", mesh.PointBeforeMove + "captured"},
		{"source", mesh.PointAfterMove + "captured"}, {"source", mesh.PointOffer},
		{"target", mesh.PointVerified}, {"target", mesh.PointMoved}, {"target", mesh.PointClaimed},
	} {
		t.Run(tt.who+" "+string(tt.at), func(t *testing.T) {
			t.Parallel()
			m := newMovement(t, endingLeases)
			m.source.speak(wordsInTurn + 2)
			for range wordsInTurn + 2 {
				within(t, "a word", m.source.told)
			}
			at, nc := m.sourceAt, m.sourceNC
			if tt.who == "target" {
				at, nc = m.targetAt, m.targetNC
			}
			held := at.hold(tt.at)
			m.move(m.targetID)
			release := within(t, "the point", held)
			nc.Close()
			close(release)
			// The worker that is left takes it when the lease has ended.
			by := "target"
			if tt.who == "target" {
				by = "source"
			}
			m.finish(by)
		})
	}
}

// The run is claimed twice at once: by the target that accepts it, and by the worker
// to which the server hands the source's message because the source is gone.
func TestAMoveRacesARedelivery(t *testing.T) {
	t.Parallel()
	m := newMovement(t, endingLeases)
	m.source.speak(wordsInTurn + 2)
	for range wordsInTurn + 2 {
		within(t, "a word", m.source.told)
	}
	held := m.targetAt.hold(mesh.PointVerified)
	m.move(m.targetID)
	release := within(t, "the target to verify", held)
	// The source is gone, and the server hands its message to the target, which
	// claims the run without the offer.
	m.sourceNC.Close()
	within(t, "the run to go on", m.target.begun)
	epoch := m.record(m.task).Mesh.Epoch // 3 where the source was missed before its lease ended
	close(release)
	m.finish("target")
	select {
	case <-m.target.begun:
		t.Error("it runs twice")
	default:
	}
	equal(t, "epoch", m.record(m.task).Mesh.Epoch, epoch)
}

// The worker that gets an offer verifies it, whichever process sends it.
func TestAForgedOfferIsRefused(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(2)
	for range 2 {
		within(t, "a word", m.source.told)
	}
	held := m.sourceAt.hold(mesh.PointOffer)
	offers := m.listen("aee.ctl." + reviewer)
	m.move(m.targetID)
	release := within(t, "the offer", held)
	c := m.record(m.task)
	before := m.revision(m.task)
	offer := func(change func(map[string]any)) string {
		t.Helper()
		p := map[string]any{"from": m.sourceID, "to": m.targetID, "run": c.Doc.RunID, "revision": before, "token": "a.b.c", "ack": "$JS.ACK.x"}
		change(p)
		e := envelope.New(envelope.TypeTask, reviewer, reviewer, "mesh.task.offer", mustJSON(p))
		msg, err := m.nc.Request("aee.ctl."+reviewer, encode(t, e), patience)
		if err != nil {
			t.Fatal(err)
		}
		reply := parse(t, msg.Data)
		if reply.Type != envelope.TypeError {
			return string(reply.Payload)
		}
		problem := errorOf(t, reply)
		return string(problem.Code) + " " + problem.Message
	}
	for what, tt := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"no token":         {func(p map[string]any) { delete(p, "token") }, "token_invalid"},
		"a forged token":   {func(map[string]any) {}, "token_invalid"},
		"another revision": {func(p map[string]any) { p["revision"] = before - 1 }, "token_state"},
		"another run":      {func(p map[string]any) { p["run"] = "6a0f3c1e-90a7-4d5c-8b0e-0f5f4bb0e1aa" }, "E_"},
	} {
		if got := offer(tt.change); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", what, got)
		}
		equal(t, what+": revision", m.revision(m.task), before)
	}
	close(release)
	within(t, "the target", m.target.begun)
	// The genuine offer is no use a second time.
	var genuine *envelope.Envelope
	for genuine == nil {
		if e := parse(t, within(t, "the offer", offers).Data); e.Intent == "mesh.task.offer" && strings.Contains(string(e.Payload), "eyJ") {
			genuine = e
		}
	}
	revision := m.revision(m.task)
	again := envelope.New(envelope.TypeTask, reviewer, reviewer, "mesh.task.offer", genuine.Payload)
	msg, err := m.nc.Request("aee.ctl."+reviewer, encode(t, again), patience)
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, msg.Data); got.Type != envelope.TypeError {
		t.Errorf("a replayed offer: %s", got.Payload)
	}
	equal(t, "revision", m.revision(m.task), revision)
	m.finish("target")
}

func (r *durableRig) revision(task *envelope.Envelope) uint64 {
	r.t.Helper()
	rec, err := r.durableOver(r.js(r.nc)).States.Get(ctxFor(r.t), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	if err != nil {
		r.t.Fatal(err)
	}
	return rec.Revision
}

// A move may be taken back as long as the run is here.
func TestAMoveIsTakenBack(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(2 * wordsInTurn)
	call := within(t, "the tool call", m.source.tools)
	m.move(m.targetID)
	abort := intents.MigrateTask{Target: intents.Target{ID: m.task.ID}, Abort: true}
	result, err := m.client.Command(ctxFor(t), reviewer, abort)
	if err != nil || !result.Migrating {
		t.Fatalf("%+v, %v", result, err)
	}
	close(call)
	m.finish("source")
	equal(t, "phase", m.phase(), state.PhaseAborted)
}

// Only those may send a run out of the mesh who may see all that is in it.
func TestWhoMayMoveARun(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(1)
	within(t, "a word", m.source.told)
	command := func(from, to string) error {
		node := m.lane(mesh.Config{Entity: from})
		_, err := node.Command(ctxFor(t), reviewer, intents.MigrateTask{Target: intents.Target{ID: m.task.ID}, To: to})
		return err
	}
	if err := command("human.ada", "https://paris.example"); codeOf(err) != envelope.CodeDenied || !strings.Contains(err.Error(), "--handoff-to") {
		t.Errorf("to nobody knows where: %v", err)
	}
	equal(t, "phase", m.phase(), state.Phase(""))
	m.finish("source")
}
