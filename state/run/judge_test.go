package run_test

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const task = `{"id":"01J0000000000000000000TASK"}`

// begun is the record of a run that worker a owns, under epoch 3, by message 7.
func begun(change ...func(*state.Checkpoint)) *state.Checkpoint {
	c := state.New("agent.x", "01J0000000000000000000TASK", "")
	m := &c.Mesh
	m.Task, m.Epoch, m.Claims, m.Owner, m.Work = []byte(task), 3, 1, "a", 7
	m.Deadline, m.StoredAt = noon.Add(time.Hour), noon.Add(-time.Minute)
	m.Step = state.Step{Kind: state.StepClaim}
	for _, f := range change {
		f(c)
	}
	return c
}

func status(s aaif.RunStatus) func(*state.Checkpoint) {
	return func(c *state.Checkpoint) {
		if c.Doc.Status = s; state.Parked(s) || state.Terminal(s) {
			c.Mesh.Owner = ""
		}
	}
}

func moving(phase state.Phase, to string) func(*state.Checkpoint) {
	return func(c *state.Checkpoint) {
		c.Doc.Status = aaif.RunMigrating
		c.Mesh.Migration = &state.Migration{ID: "m", Phase: phase, To: to, Source: "a", Target: "paris"}
	}
}

func pendingMove(to string) func(*state.Checkpoint) {
	return func(c *state.Checkpoint) {
		c.Mesh.Pending = string(aaif.RunMigrating)
		c.Mesh.Migration = &state.Migration{ID: "m", Phase: state.PhaseAsked, To: to}
	}
}

// askedToWait is what the order of a pending move has left that had wait_ms.
func askedToWait(c *state.Checkpoint) {
	if _, err := run.Command(c, &run.Order{Envelope: "w", Intent: intents.TaskMigrate, To: c.Mesh.Migration.To, MoveID: "m", WaitMS: 5000}, run.Here, noon); err != nil {
		panic(err)
	}
}

// pausedThere is a move out of the mesh that takes a pause along.
func pausedThere(c *state.Checkpoint)  { c.Mesh.Migration.Status = aaif.RunPaused }
func pendingPause(c *state.Checkpoint) { c.Mesh.Pending = string(aaif.RunPaused) }
func noOwner(c *state.Checkpoint)      { c.Mesh.Owner = "" }
func dead(c *state.Checkpoint)         { c.Mesh.Dead = "failed" }
func inFlight(c *state.Checkpoint) {
	c.Mesh.Effects = append(c.Mesh.Effects, state.Effect{ID: "call-1", Key: "k", Status: state.EffectInFlight})
}
func unknownCall(c *state.Checkpoint) {
	c.Mesh.Effects = append(c.Mesh.Effects, state.Effect{ID: "call-1", Key: "k", Status: state.EffectUnknown})
}
func waitsForBob(c *state.Checkpoint) {
	c.Mesh.Waits = []state.Wait{{Entity: "human.bob", TaskID: "t"}}
}

func calledHelper(c *state.Checkpoint) {
	c.Mesh.Calls = append(c.Mesh.Calls, state.Call{Key: "one", ID: "t1", To: "agent.helper"})
}

// arriving is a run that a receiver has stored, and not accepted yet.
func arriving(c *state.Checkpoint) {
	moving(state.PhaseStaged, "")(c)
	c.Mesh.Owner, c.Mesh.Work = "", 0
}

func redelivered(c *state.Checkpoint) { c.Mesh.Redelivered = 2 }

const paris = "https://paris.example/handoff"

func TestJudge(t *testing.T) {
	t.Parallel()
	mine := run.Message{Worker: "a", Seq: 7, Taken: noon, Same: true}
	message := func(change func(*run.Message)) run.Message {
		m := mine
		change(&m)
		return m
	}
	later := noon.Add(time.Second)
	for name, c := range map[string]struct {
		c       *state.Checkpoint
		m       run.Message
		written time.Time
		want    run.Verdict
	}{
		"no task yet":                       {begun(func(c *state.Checkpoint) { c.Mesh.Task = nil }), run.Message{}, noon, run.Mine},
		"the owner's own message":           {begun(), mine, later, run.Mine},
		"another task":                      {begun(), message(func(m *run.Message) { m.Same = false }), noon, run.Reused},
		"a dead owner":                      {begun(), message(func(m *run.Message) { m.Worker = "b" }), noon, run.Mine},
		"claimed after it was taken":        {begun(), message(func(m *run.Message) { m.Worker = "b" }), later, run.Older},
		"claimed within the clock slack":    {begun(), message(func(m *run.Message) { m.Worker = "b" }), noon.Add(run.ClockSlack), run.Mine},
		"delivered again to the owner":      {begun(redelivered), message(func(m *run.Message) { m.Worker, m.Redelivered = "b", 1 }), noon, run.Older},
		"delivered after the owner":         {begun(redelivered), message(func(m *run.Message) { m.Worker, m.Redelivered = "b", 3 }), noon, run.Mine},
		"the owner's earlier delivery":      {begun(redelivered), mine, noon, run.Mine},
		"another message":                   {begun(), message(func(m *run.Message) { m.Seq = 8 }), noon, run.AskQueue},
		"another message is queued":         {begun(), message(func(m *run.Message) { m.Seq, m.OtherMessage = 8, run.Yes }), noon, run.Foreign},
		"another message may be queued":     {begun(), message(func(m *run.Message) { m.Seq, m.OtherMessage = 8, run.Maybe }), noon, run.Later},
		"another message is lost":           {begun(), message(func(m *run.Message) { m.Seq, m.OtherMessage = 8, run.No }), noon, run.Mine},
		"another is lost, this comes again": {begun(redelivered), message(func(m *run.Message) { m.Worker, m.Seq, m.OtherMessage = "b", 8, run.No }), noon, run.Mine},
		"released after it was taken":       {begun(noOwner), message(func(m *run.Message) { m.Worker = "b" }), later, run.Mine},
		"no message is named":               {begun(noOwner, func(c *state.Checkpoint) { c.Mesh.Work = 0 }), message(func(m *run.Message) { m.Seq = 8 }), noon, run.Mine},
		"completed":                         {begun(status(aaif.RunCompleted)), mine, noon, run.Ended},
		"failed":                            {begun(status(aaif.RunFailed)), mine, noon, run.Ended},
		"a retry of what is no dead letter": {begun(status(aaif.RunFailed)), message(func(m *run.Message) { m.Retry, m.Retried = "retry.9", run.Yes }), noon, run.Ended},
		"a dead letter that comes again":    {begun(status(aaif.RunFailed), dead), mine, noon, run.Ended},
		"a retry":                           {begun(status(aaif.RunFailed), dead), message(func(m *run.Message) { m.Retry = "retry.9" }), noon, run.AskRetry},
		"a retry that was ordered":          {begun(status(aaif.RunFailed), dead), message(func(m *run.Message) { m.Retry, m.Retried = "retry.9", run.Yes }), noon, run.Mine},
		"a retry that nobody ordered":       {begun(status(aaif.RunFailed), dead), message(func(m *run.Message) { m.Retry, m.Retried = "retry.9", run.No }), noon, run.Ended},
		"a retry that was done": {begun(status(aaif.RunFailed), dead, func(c *state.Checkpoint) { c.Mesh.Commands = []string{"retry.9"} }),
			message(func(m *run.Message) { m.Retry, m.Retried = "retry.9", run.Yes }), noon, run.Ended},
		"paused":                                       {begun(status(aaif.RunPaused)), mine, noon, run.Parked},
		"awaiting approval":                            {begun(status(aaif.RunAwaitingApproval)), mine, noon, run.Parked},
		"awaiting a tool's result":                     {begun(status(aaif.RunAwaitingToolResult)), mine, noon, run.Mine},
		"captured for a worker":                        {begun(moving(state.PhaseCaptured, "b")), mine, noon, run.Mine},
		"captured for a platform":                      {begun(moving(state.PhaseCaptured, paris)), mine, noon, run.Mine},
		"asked to move to a worker":                    {begun(moving(state.PhaseAsked, "b")), mine, noon, run.Mine},
		"asked to move to a platform":                  {begun(moving(state.PhaseAsked, paris)), mine, noon, run.Moving},
		"committed":                                    {begun(moving(state.PhaseCommitted, paris)), mine, noon, run.Moving},
		"relaying":                                     {begun(moving(state.PhaseRelaying, paris)), mine, noon, run.Moving},
		"on its way here":                              {begun(arriving), mine, noon, run.Later},
		"on its way here, another task":                {begun(arriving), message(func(m *run.Message) { m.Same = false }), noon, run.Reused},
		"exported":                                     {begun(moving(state.PhaseCommitted, intents.MigrateFile)), mine, noon, run.Parked},
		"migrating without a migration":                {begun(status(aaif.RunMigrating)), mine, noon, run.Parked},
		"another message of a captured run":            {begun(moving(state.PhaseCaptured, "b")), message(func(m *run.Message) { m.Seq = 8 }), noon, run.AskQueue},
		"another message of a committed run":           {begun(moving(state.PhaseCommitted, paris)), message(func(m *run.Message) { m.Seq = 8 }), noon, run.AskQueue},
		"another message of a committed run is queued": {begun(moving(state.PhaseCommitted, paris)), message(func(m *run.Message) { m.Seq, m.OtherMessage = 8, run.Yes }), noon, run.Foreign},
		"another message of a committed run is lost":   {begun(moving(state.PhaseCommitted, paris)), message(func(m *run.Message) { m.Seq, m.OtherMessage = 8, run.No }), noon, run.Moving},
		"another message of an exported run":           {begun(moving(state.PhaseCommitted, intents.MigrateFile)), message(func(m *run.Message) { m.Seq = 8 }), noon, run.Parked},
		"a dead mover":                                 {begun(moving(state.PhaseCommitted, paris)), message(func(m *run.Message) { m.Worker = "b" }), noon, run.Moving},
		"committed by another after it was taken":      {begun(moving(state.PhaseCommitted, paris)), message(func(m *run.Message) { m.Worker = "b" }), later, run.Older},
	} {
		if got := run.Judge(c.c, c.written, c.m); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
	}
}
