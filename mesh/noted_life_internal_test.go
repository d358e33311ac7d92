package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// noting is an agent that gets commands for a task that has not begun.
type noting struct {
	*testing.T
	ctx  context.Context
	js   natsjs.JetStream
	node *Node
	l    *lane
	task *envelope.Envelope
}

// holding is the intent of tasks that the agent works on until the test ends.
const holding = "x.y.hold"

func newNoting(t *testing.T) *noting {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	node, ctx := serveDurableOn(t, js, 0, Agent{Entity: "agent.x", Handler: HandlerFunc(func(_ context.Context, t *Task) (json.RawMessage, error) {
		if t.Envelope.Intent == holding {
			<-held
		}
		return nil, nil
	})})
	t.Cleanup(func() { close(held) })
	n := &noting{T: t, ctx: ctx, js: js, node: node, task: envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))}
	natstest.Eventually(t, "the agent is served", func() bool {
		for _, h := range node.hosts.all() {
			n.l = h.durable.(*lane)
		}
		return n.l != nil
	})
	return n
}

func (n *noting) apply(intent string) orders.Outcome {
	return n.order(run.Order{Intent: intent, From: "human.ada", ID: n.task.ID})
}

// order applies an unsigned command.
func (n *noting) order(o run.Order) orders.Outcome {
	o.Envelope, o.Durable = envelope.NewID(), true
	return n.l.commands.applyStored(n.ctx, &orders.Order{Order: o}, false, nil)
}

// runID is the id of the task's run.
func (n *noting) runID() string { return state.RunID("agent.x", n.task.ID) }

func (n *noting) note(intent string) {
	n.Helper()
	if out := n.apply(intent); !out.Done || out.Status != "noted" {
		n.Fatalf("%s: %+v", intent, out)
	}
}

func (n *noting) schedule() (due time.Time) { return n.scheduleIn(time.Hour) }

func (n *noting) scheduleIn(d time.Duration) (due time.Time) {
	n.Helper()
	stored, err := n.node.Submit(n.ctx, n.task, client.SubmitOptions{At: time.Now().Add(d)})
	if err != nil {
		n.Fatal(err)
	}
	return stored.Due
}

func (n *noting) record() state.Record {
	n.Helper()
	rec, err := n.l.cfg.States.Get(n.ctx, state.ID{Entity: "agent.x", Run: n.runID()})
	if err != nil {
		n.Fatal(err)
	}
	return rec
}

// sweeps renews the note, and returns its record.
func (n *noting) sweeps() state.Record {
	n.Helper()
	rec := n.record()
	c, err := n.l.records.read(rec)
	if err == nil {
		err = n.l.commands.renewNotes(n.ctx, rec, c)
	}
	if err != nil {
		n.Fatal(err)
	}
	return n.record()
}

// later sets the lane's clock ahead.
func (n *noting) later(d time.Duration) {
	n.l.clock.last.Store(&reading{n.l.clock.now().Add(d), time.Now(), 0})
}

// A command may come before its task is scheduled. Its note is then written again before it expires.
func TestANoteIsKeptForATaskThatIsScheduledAfterIt(t *testing.T) {
	t.Parallel()
	n := newNoting(t)
	n.note(intents.TaskCancel)
	due := n.schedule()
	first := n.record()
	if now := n.sweeps(); now.Revision != first.Revision || now.TTL != orders.NoteTTL {
		t.Errorf("a new note is written again, with %v", now.TTL)
	}
	n.later(8 * time.Minute)
	now := n.sweeps()
	if least := due.Add(orders.NoteTTL).Sub(n.l.clock.now()); now.Revision == first.Revision || now.TTL < least.Truncate(time.Second) || now.TTL > least+time.Minute {
		t.Errorf("after 8 minutes the note has revision %d (before: %d) and is kept for %v, want %v", now.Revision, first.Revision, now.TTL, least)
	}
	if again := n.sweeps(); again.Revision != now.Revision {
		t.Error("the note is written with each sweep")
	}
}

// An earlier note becomes the current one again when a later one expires. So a later note is kept for
// as long, also if the task is not found in the schedule at that moment.
func TestALaterNoteIsKeptAsLongAsAnEarlierOne(t *testing.T) {
	t.Parallel()
	n := newNoting(t)
	due := n.schedule()
	n.note(intents.TaskPause)
	first := n.record()
	if err := n.l.cfg.Queue.Unschedule(n.ctx, "agent.x", n.task.ID); err != nil { // as if a replica lagged behind
		t.Fatal(err)
	}
	n.later(10 * time.Second)
	n.note(intents.TaskCancel)
	if now := n.record(); now.Time.Add(now.TTL).Before(first.Time.Add(first.TTL).Add(-11 * time.Second)) {
		t.Errorf("the task is due in %v, and the notes are kept for %v and then %v", time.Until(due), first.TTL, now.TTL)
	}
}

// A note of a scheduled task is kept while the queue may hold the task, for a week after it was due,
// however long before that the command came.
func TestANoteOfAScheduledTaskIsKeptForAWeekAfterItWasDue(t *testing.T) {
	t.Parallel()
	n := newNoting(t)
	n.scheduleIn(10 * 24 * time.Hour)
	n.note(intents.TaskPause)
	if _, err := n.node.Submit(n.ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", holding, json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the agent works on another task", func() bool { return n.l.queue.Health().Unacked > 0 })
	if err := n.l.cfg.Queue.Unschedule(n.ctx, "agent.x", n.task.ID); err != nil { // as if it was due
		t.Fatal(err)
	}
	first := n.record()
	n.later(10*24*time.Hour + 8*time.Minute)
	now := n.sweeps()
	if now.Revision == first.Revision || now.TTL < orders.NoteTTL {
		t.Errorf("8 minutes after the task was due its note has revision %d (before: %d), and is kept for %v", now.Revision, first.Revision, now.TTL)
	}
	n.later(7*24*time.Hour - 10*time.Minute)
	again := n.sweeps()
	if again.Revision == now.Revision {
		t.Error("the note is not kept for a week after the task was due")
	}
	n.later(9 * time.Minute)
	if last := n.sweeps(); last.Revision != again.Revision {
		t.Error("the note is kept for more than a week after the task was due")
	}
}

// Which queues may hold a task that commands are noted for.
func TestAQueueMayHoldATask(t *testing.T) {
	t.Parallel()
	noted := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		queue jetstream.LaneHealth
		due   time.Duration // after the command
		want  bool
	}{
		"empty":                         {want: false},
		"a message in work":             {queue: jetstream.LaneHealth{Unacked: 1}, want: true},
		"an older message":              {queue: jetstream.LaneHealth{Oldest: noted.Add(-time.Second)}, want: true},
		"a younger message":             {queue: jetstream.LaneHealth{Oldest: noted.Add(time.Second)}, want: false},
		"one since the task was due":    {queue: jetstream.LaneHealth{Oldest: noted.Add(time.Hour + time.Minute)}, due: time.Hour, want: true},
		"one from before it was due":    {queue: jetstream.LaneHealth{Oldest: noted.Add(time.Minute)}, due: time.Hour, want: true},
		"one from well after its time":  {queue: jetstream.LaneHealth{Oldest: noted.Add(2 * time.Hour)}, due: time.Hour, want: false},
		"a command well after its time": {queue: jetstream.LaneHealth{Oldest: noted.Add(-time.Minute)}, due: -time.Hour, want: true},
	} {
		cp := state.New("agent.x", "task-0001", "")
		cp.Mesh.Noted = []state.Noted{{At: noted.Add(-time.Hour)}, {At: noted}}
		if c.due != 0 {
			cp.Mesh.Due = noted.Add(c.due)
		}
		if mayHold(c.queue, cp) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// While it cannot be read whether a task is scheduled, no command is noted for it: the note might expire
// before the task begins. A note that there is is kept.
func TestACommandIsRefusedWhileTheScheduleCannotBeRead(t *testing.T) {
	t.Parallel()
	n := newNoting(t)
	n.note(intents.TaskPause)
	first := n.record()
	s, err := n.js.Stream(n.ctx, jetstream.StreamSchedule)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowDirect = false // then it answers as one that no replica answers for
	if _, err := n.js.UpdateStream(n.ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if out := n.apply(intents.TaskCancel); out.Done || out.Refused == nil || out.Refused.Code != envelope.CodeUnavailable || !out.Refused.Retryable {
		t.Errorf("%+v, want %s", out, envelope.CodeUnavailable)
	}
	if now := n.record(); now.Revision != first.Revision {
		t.Error("the command is stored")
	}
	n.later(8 * time.Minute)
	if now := n.sweeps(); now.Revision == first.Revision || now.TTL < orders.NoteTTL {
		t.Errorf("after 8 minutes the note has revision %d (before: %d), and is kept for %v", now.Revision, first.Revision, now.TTL)
	}
}

// A command may name the run alone, or with the id of another task. Later commands, by the task's own
// id, are kept until the task is due all the same.
func TestACommandByARunsIDDoesNotShortenTheLifeOfLaterNotes(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"no id": "", "another task's id": envelope.NewID()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNoting(t)
			if out := n.order(run.Order{Intent: intents.TaskSteer, From: "human.eve", Run: n.runID(), ID: id}); out.Status != "noted" {
				t.Fatalf("%+v", out)
			}
			due := n.schedule()
			n.note(intents.TaskPause)
			rec := n.record()
			if until := rec.Time.Add(rec.TTL); until.Before(due.Add(orders.NoteTTL - time.Second)) {
				t.Errorf("the task is due at %v, and its pause is kept until %v", due, until)
			}
			c, err := n.l.records.read(rec)
			if err != nil || c.Mesh.TaskID != n.task.ID {
				t.Errorf("the record is of task %q, want %q: %v", c.Mesh.TaskID, n.task.ID, err)
			}
			if out := n.order(run.Order{Intent: intents.TaskSteer, From: "human.eve", Run: n.runID(), ID: envelope.NewID()}); out.Status != "noted" {
				t.Fatalf("%+v", out)
			}
			if c, err = n.l.records.read(n.record()); err != nil || c.Mesh.TaskID != n.task.ID {
				t.Errorf("then it is of task %q: %v", c.Mesh.TaskID, err)
			}
		})
	}
}

// A cancel by the id of a scheduled task ends it at once, also if commands are noted for it. Who may
// not command the task may not end it, and a cancel of another task's run does not reach it.
func TestACancelEndsAScheduledTaskThatHasNotes(t *testing.T) {
	t.Parallel()
	n := newNoting(t)
	if out := n.order(run.Order{Intent: intents.TaskSteer, From: "human.eve", Run: n.runID()}); out.Status != "noted" {
		t.Fatalf("%+v", out)
	}
	n.schedule()
	n.note(intents.TaskPause)
	if out := n.order(run.Order{Intent: intents.TaskCancel, From: "agent.eve", ID: n.task.ID}); out.Done || out.Refused == nil || out.Refused.Code != envelope.CodeDenied {
		t.Errorf("a cancel by another agent: %+v, want %s", out, envelope.CodeDenied)
	}
	other := state.RunID("agent.x", envelope.NewID())
	if out := n.order(run.Order{Intent: intents.TaskCancel, From: "human.ada", ID: n.task.ID, Run: other}); out.Status != "noted" {
		t.Errorf("a cancel of another run: %+v", out)
	}
	if _, err := n.l.cfg.Queue.FindScheduled(n.ctx, "agent.x", n.task.ID); err != nil {
		t.Errorf("the task is scheduled no more: %v", err)
	}
	if out := n.apply(intents.TaskCancel); !out.Done || out.Refused != nil || out.Status != string(aaif.RunFailed) {
		t.Errorf("%+v, want an end", out)
	}
	c, err := n.l.records.read(n.record())
	if err != nil || !c.Terminal() || len(c.Mesh.Noted) > 0 || c.Mesh.TaskID != n.task.ID || len(c.Mesh.Commands) != 1 {
		t.Errorf("the record is %+v, %v", c.Mesh, err)
	}
	if reply, _, err := n.l.commands.storedReply(n.ctx, n.task.ID); err != nil || envelope.ErrorOf(reply).Code != envelope.CodeCancelled {
		t.Errorf("the reply is %v, %v", reply, err)
	}
	if _, err := n.l.cfg.Queue.FindScheduled(n.ctx, "agent.x", n.task.ID); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("the task is still scheduled: %v", err)
	}
}

// If the end of a scheduled task cannot be stored, its cancel is noted beside the earlier commands.
func TestACancelThatCannotEndAScheduledTaskIsNoted(t *testing.T) {
	t.Parallel()
	n := newNoting(t)
	n.note(intents.TaskPause)
	n.schedule()
	s, err := n.js.Stream(n.ctx, jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = 1 // then the run gets no message
	if _, err := n.js.UpdateStream(n.ctx, cfg); err != nil {
		t.Fatal(err)
	}
	n.note(intents.TaskCancel)
	c, err := n.l.records.read(n.record())
	if err != nil || c.Terminal() || c.Mesh.Task != nil || len(c.Mesh.Noted) != 2 || len(c.Mesh.Commands) > 0 {
		t.Errorf("the record is %+v, %v", c.Mesh, err)
	}
}

// A task may begin from a record without its id, or with another, as earlier releases wrote it.
func TestARunThatBeginsFromANoteHasItsTasksID(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"no id": "", "another task's id": envelope.NewID()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNoting(t)
			c := state.New("agent.x", id, "")
			c.Doc.RunID, c.Doc.Status = n.runID(), aaif.RunPaused
			c.Mesh.Noted = []state.Noted{{ID: envelope.NewID(), Intent: intents.TaskSteer, From: "human.eve", At: time.Now()}}
			if err := n.l.commands.putNotes(n.ctx, c.ID(), state.Record{}, c, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if _, err := n.node.Submit(n.ctx, n.task, client.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			natstest.Eventually(t, "the run ends", func() (ended bool) {
				var err error
				if c, err = n.l.records.read(n.record()); err != nil {
					t.Fatal(err)
				}
				return c.Terminal()
			})
			if c.Mesh.TaskID != n.task.ID {
				t.Errorf("the run's task is %q, want %q", c.Mesh.TaskID, n.task.ID)
			}
		})
	}
}

// A worker that may not delete a scheduled message notes a cancel of a task that is due after the record
// of its end would have expired: nothing would stop the task then.
func TestACancelOfATaskThatOutlivesItsRecordIsNoted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fenced, noted bool
		days          int
		want          string
	}{
		"fenced, late":            {true, false, 45, "noted"},
		"fenced, late, and noted": {true, true, 45, "noted"},
		"fenced, soon":            {true, false, 5, string(aaif.RunFailed)},
		"late":                    {false, false, 45, string(aaif.RunFailed)},
	} {
		n := newNoting(t)
		n.scheduleIn(time.Duration(c.days) * 24 * time.Hour)
		if c.fenced {
			n.l.cfg.OwnEntitiesOnly()
		}
		if c.noted {
			n.note(intents.TaskPause)
		}
		if out := n.apply(intents.TaskCancel); !out.Done || out.Status != c.want {
			t.Errorf("%s: %+v, want %s", name, out, c.want)
		}
	}
}
