package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

func terms(change ...func(*run.Terms)) run.Terms {
	t := run.Terms{
		Now: noon, Version: "1.0.0", MaxClaims: 5, Stored: noon, Deadline: noon.Add(time.Minute),
		Task:       run.Task{Envelope: []byte(task), KeyID: "k1", Priority: envelope.PriorityHigh, Stored: noon.Add(-time.Second), Deadline: noon.Add(time.Hour)},
		Limit:      func() *envelope.Error { return envelope.Errorf(envelope.CodeTimeout, "not done within 1h") },
		MayCommand: func(n state.Noted) bool { return n.From == "human.ann" },
	}
	for _, f := range change {
		f(&t)
	}
	return t
}

func noted(intent, from string) func(*state.Checkpoint) {
	return func(c *state.Checkpoint) {
		c.Mesh.Task, c.Mesh.Owner, c.Mesh.Work, c.Mesh.Epoch, c.Mesh.Claims = nil, "", 0, 0, 0
		c.Doc.Status = aaif.RunPaused
		c.Mesh.Noted = append(c.Mesh.Noted, state.Noted{ID: intent, Intent: intent, From: from, Text: "faster"})
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	message := run.Message{Worker: "b", Seq: 9, Redelivered: 2, Retry: "retry.9"}
	refused := envelope.Errorf(envelope.CodeRequires, "no")
	type expect struct {
		verdict run.Verdict
		end     envelope.Code // of the error that ends the run
		status  aaif.RunStatus
		owner   string
		claims  int
	}
	for name, c := range map[string]struct {
		c     *state.Checkpoint
		v     run.Verdict
		terms run.Terms
		want  expect
		check func(t *testing.T, c *state.Checkpoint, out run.Claimed)
	}{
		"a new task": {state.New("agent.x", "t", ""), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 1},
			func(t *testing.T, c *state.Checkpoint, out run.Claimed) {
				if !out.Began || out.Restored || out.Recovered || string(c.Mesh.Task) != task || c.Mesh.KeyID != "k1" || c.Mesh.Priority != "high" || !c.Mesh.StartedAt.Equal(noon) {
					t.Errorf("%+v of %+v", out, c.Mesh)
				}
			}},
		"a task that is refused":           {state.New("agent.x", "t", ""), run.Mine, terms(func(t *run.Terms) { t.Refused = refused }), expect{run.Ended, envelope.CodeRequires, aaif.RunRunning, "b", 1}, nil},
		"a task that comes too late":       {state.New("agent.x", "t", ""), run.Mine, terms(func(t *run.Terms) { t.Task.Deadline = noon }), expect{run.Ended, envelope.CodeTimeout, aaif.RunRunning, "b", 1}, nil},
		"cancelled before it began":        {state.New("agent.x", "t", ""), run.Mine, terms(func(t *run.Terms) { t.Ending = run.Cancelled("human.ann", "") }), expect{run.Ended, envelope.CodeCancelled, aaif.RunRunning, "b", 1}, nil},
		"cancelled, and refused":           {state.New("agent.x", "t", ""), run.Mine, terms(func(t *run.Terms) { t.Refused, t.Ending = refused, run.Cancelled("human.ann", "") }), expect{run.Ended, envelope.CodeCancelled, aaif.RunRunning, "b", 1}, nil},
		"a noted cancel":                   {begun(noted(intents.TaskCancel, "human.ann")), run.Mine, terms(), expect{run.Ended, envelope.CodeCancelled, aaif.RunRunning, "b", 1}, nil},
		"a noted pause":                    {begun(noted(intents.TaskPause, "human.ann")), run.Mine, terms(), expect{run.Parked, "", aaif.RunPaused, "", 0}, nil},
		"a noted pause that is taken back": {begun(noted(intents.TaskPause, "human.ann"), noted(intents.TaskResume, "human.ann")), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 1}, nil},
		"a noted cancel of a stranger": {begun(noted(intents.TaskCancel, "human.eve")), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 1},
			func(t *testing.T, c *state.Checkpoint, out run.Claimed) {
				if len(out.Refused) != 1 || c.Mesh.Noted != nil || len(c.Mesh.Commands) > 0 {
					t.Errorf("%+v, commands %v", out.Refused, c.Mesh.Commands)
				}
			}},
		"a noted message": {begun(noted(intents.TaskSteer, "human.ann")), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 1},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if len(c.Mesh.Steering) != 1 || c.Mesh.Steering[0].Text != "faster" || !slices.Equal(c.Mesh.Commands, []string{intents.TaskSteer}) {
					t.Errorf("%+v", c.Mesh)
				}
			}},
		"after a crash": {begun(), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, out run.Claimed) {
				if !out.Recovered || out.Restored || c.Mesh.Epoch != 4 || c.Mesh.Work != 9 {
					t.Errorf("%+v of %+v", out, c.Mesh)
				}
			}},
		"after a crash, where it is refused": {begun(), run.Mine, terms(func(t *run.Terms) { t.Refused = refused }), expect{run.Ended, envelope.CodeRequires, aaif.RunRunning, "b", 2}, nil},
		"after a release": {begun(noOwner, func(c *state.Checkpoint) { c.Mesh.Step.Kind = state.StepModel }), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, _ *state.Checkpoint, out run.Claimed) {
				if out.Recovered || !out.Restored {
					t.Errorf("%+v", out)
				}
			}},
		"a fork": {begun(noOwner, func(c *state.Checkpoint) {
			c.Mesh.Step.Kind, c.Mesh.Epoch, c.Mesh.Deadline = state.StepFork, 0, time.Time{}
		}), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if !c.Mesh.Deadline.Equal(noon.Add(time.Minute)) {
					t.Errorf("its deadline is %v", c.Mesh.Deadline)
				}
			}},
		"a fork that comes too late": {begun(noOwner, func(c *state.Checkpoint) { c.Mesh.Deadline = time.Time{} }), run.Mine, terms(func(t *run.Terms) { t.Deadline = noon }), expect{run.Ended, envelope.CodeTimeout, aaif.RunRunning, "b", 2}, nil},
		"under another version": {begun(func(c *state.Checkpoint) { c.Doc.AgentVersion = "0.9.0" }), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, out run.Claimed) {
				if out.Was != "0.9.0" || c.Doc.AgentVersion != "1.0.0" {
					t.Errorf("%+v", out)
				}
			}},
		"the one that kills its workers": {begun(func(c *state.Checkpoint) { c.Mesh.Claims = 5 }), run.Mine, terms(), expect{run.Ended, envelope.CodeInternal, aaif.RunRunning, "b", 6},
			func(t *testing.T, _ *state.Checkpoint, out run.Claimed) {
				if out.Dead != "claimed 5 times without completing a step" {
					t.Errorf("%q", out.Dead)
				}
			}},
		"a pause is pending":               {begun(pendingPause), run.Mine, terms(), expect{run.Parked, "", aaif.RunPaused, "", 0}, nil},
		"a pause is pending amid a call":   {begun(pendingPause, inFlight), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2}, nil},
		"a pause is pending, and too late": {begun(pendingPause, func(c *state.Checkpoint) { c.Mesh.Deadline = noon }), run.Mine, terms(), expect{run.Ended, envelope.CodeTimeout, aaif.RunRunning, "b", 2}, nil},
		"a move is pending": {begun(pendingMove("c")), run.Mine, terms(), expect{run.Moving, "", aaif.RunMigrating, "", 0}, func(t *testing.T, _ *state.Checkpoint, out run.Claimed) {
			if !out.Capture {
				t.Error("not captured")
			}
		}},
		"a move is pending amid a call": {begun(pendingMove("c"), inFlight), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if c.Mesh.Migration.Phase != state.PhaseAsked || c.Mesh.Pending != string(aaif.RunMigrating) {
					t.Errorf("phase %s, pending %q", c.Mesh.Migration.Phase, c.Mesh.Pending)
				}
			}},
		"a move out is pending, and an answer is not read": {begun(pendingMove(paris), waitsForBob), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if c.Mesh.Migration.Phase != state.PhaseAsked || c.Mesh.Pending != string(aaif.RunMigrating) {
					t.Errorf("phase %s, pending %q", c.Mesh.Migration.Phase, c.Mesh.Pending)
				}
			}},
		"a move out is pending, and a call is open": {begun(pendingMove(paris), noOwner, calledHelper), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if c.Mesh.Migration.Phase != state.PhaseAsked || c.Mesh.Pending != string(aaif.RunMigrating) {
					t.Errorf("phase %s, pending %q", c.Mesh.Migration.Phase, c.Mesh.Pending)
				}
			}},
		"a move that may leave amid a call is pending": {begun(pendingMove(paris), askedToWait, noOwner, calledHelper), run.Mine, terms(), expect{run.Moving, "", aaif.RunMigrating, "", 0}, func(t *testing.T, _ *state.Checkpoint, out run.Claimed) {
			if !out.Capture {
				t.Error("not captured")
			}
		}},
		"a move that may leave amid a call is pending, and a person's answer is not read": {begun(pendingMove(paris), askedToWait, calledHelper, waitsForBob), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2}, nil},
		"a move to a file is pending amid a call, whatever was asked":                     {begun(pendingMove(intents.MigrateFile), askedToWait, calledHelper), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2}, nil},
		"a move within the mesh is pending, and an answer is not read":                    {begun(pendingMove("c"), waitsForBob), run.Mine, terms(), expect{run.Moving, "", aaif.RunMigrating, "", 0}, nil},
		"a captured run whose worker died": {begun(moving(state.PhaseCaptured, "c")), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 2},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if c.Mesh.Migration.Phase != state.PhaseAborted {
					t.Errorf("phase %s", c.Mesh.Migration.Phase)
				}
			}},
		"a committed move": {begun(moving(state.PhaseCommitted, paris)), run.Moving, terms(), expect{run.Moving, "", aaif.RunMigrating, "b", 1},
			func(t *testing.T, c *state.Checkpoint, out run.Claimed) {
				if out.Capture || c.Mesh.Epoch != 4 || c.Mesh.Migration.Phase != state.PhaseCommitted {
					t.Errorf("%+v of %+v", out, c.Mesh.Migration)
				}
			}},
		"a dead letter that is tried again": {begun(status(aaif.RunFailed), dead, func(c *state.Checkpoint) {
			c.Mesh.Attempt, c.Mesh.Claims, c.Mesh.Reply, c.Doc.Error = 3, 5, []byte(`{}`), &aaif.RunError{Code: "E_AGENT"}
			c.Mesh.Deadline, c.Mesh.Ran = noon, time.Hour
		}), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 1},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				m := &c.Mesh
				if m.Dead != "" || m.Reply != nil || m.Attempt != 0 || m.Ran != 0 || c.Doc.Error != nil || !m.Deadline.Equal(noon.Add(time.Minute)) || !slices.Equal(m.Commands, []string{"retry.9"}) {
					t.Errorf("%+v", m)
				}
			}},
		"a dead letter that is tried again, and has no run": {state.New("agent.x", "t", ""), run.Mine, terms(), expect{run.Mine, "", aaif.RunRunning, "b", 1},
			func(t *testing.T, c *state.Checkpoint, _ run.Claimed) {
				if run.LastRetry(c) != "retry.9" {
					t.Errorf("commands %v", c.Mesh.Commands)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			message := message
			if strings.Contains(name, "tried again") {
				message.Retried = run.Yes
			}
			out := run.Claim(c.c, c.v, message, c.terms)
			got := expect{out.Verdict, "", c.c.Doc.Status, c.c.Mesh.Owner, c.c.Mesh.Claims}
			if out.End != nil {
				got.end = out.End.Code
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if k := &c.c.Mesh; k.Owner != "" && (k.Work != 9 || k.Redelivered != 2) {
				t.Errorf("by the message %d, redelivered %d times", k.Work, k.Redelivered)
			}
			if c.check != nil {
				c.check(t, c.c, out)
			}
		})
	}
}

// A run that ends with nothing but its claim leaves its reply alone: whatever else its record
// holds would be lost. What it has done counts as progress, so that the next owner does not
// begin it anew. Only a handler works: a failed attempt, or a step of the mesh such as a pause, is
// no work.
func TestWhatIsMoreThanAClaim(t *testing.T) {
	t.Parallel()
	bare := func() *state.Checkpoint {
		c := begun()
		c.Mesh.Epoch = 1
		return c
	}
	if c := bare(); !run.Bare(c) || run.Progressed(c) {
		t.Errorf("nothing but a claim: bare %t, progressed %t", run.Bare(c), run.Progressed(c))
	}
	for name, c := range map[string]struct {
		change     func(d *aaif.State, m *state.Mesh)
		progressed bool
	}{
		"a second owner":        {func(_ *aaif.State, m *state.Mesh) { m.Epoch = 2 }, false},
		"a second claim":        {func(_ *aaif.State, m *state.Mesh) { m.Claims = 2 }, false},
		"no task":               {func(_ *aaif.State, m *state.Mesh) { m.Task = nil }, false},
		"a stream":              {func(_ *aaif.State, m *state.Mesh) { m.Stream = 1 }, false},
		"streamed text":         {func(_ *aaif.State, m *state.Mesh) { m.Told = "half" }, false},
		"a pending pause":       {func(_ *aaif.State, m *state.Mesh) { m.Pending = "paused" }, false},
		"usage":                 {func(_ *aaif.State, m *state.Mesh) { m.Usage.ModelCalls = 1 }, false},
		"turns":                 {func(_ *aaif.State, m *state.Mesh) { m.Turns = 1 }, false},
		"a note":                {func(_ *aaif.State, m *state.Mesh) { m.Notes = []state.Note{{}} }, false},
		"a command":             {func(_ *aaif.State, m *state.Mesh) { m.Commands = []string{"c"} }, false},
		"a noted command":       {func(_ *aaif.State, m *state.Mesh) { m.Noted = []state.Noted{{}} }, false},
		"a message":             {func(_ *aaif.State, m *state.Mesh) { m.Steering = []state.Steer{{}} }, false},
		"a wait":                {func(_ *aaif.State, m *state.Mesh) { m.Waits = []state.Wait{{}} }, true},
		"a plan":                {func(_ *aaif.State, m *state.Mesh) { m.Plan = []byte(`{}`) }, true},
		"unknown members":       {func(_ *aaif.State, m *state.Mesh) { m.More = []byte(`{}`) }, false},
		"a parent":              {func(_ *aaif.State, m *state.Mesh) { m.Parent = &state.Parent{} }, false},
		"a move":                {func(_ *aaif.State, m *state.Mesh) { m.Migration = &state.Migration{} }, false},
		"a delegation":          {func(_ *aaif.State, m *state.Mesh) { m.Handed = &state.Handed{} }, false},
		"an approval request":   {func(d *aaif.State, _ *state.Mesh) { d.ApprovalRequest = &aaif.ApprovalRequest{} }, false},
		"a call":                {func(_ *aaif.State, m *state.Mesh) { m.Calls = []state.Call{{}} }, true},
		"a tool call":           {func(_ *aaif.State, m *state.Mesh) { m.Effects = []state.Effect{{}} }, true},
		"a failed attempt":      {func(_ *aaif.State, m *state.Mesh) { m.Attempt = 1 }, true},
		"a step":                {func(_ *aaif.State, m *state.Mesh) { m.Step.Kind = state.StepModel }, true},
		"the handler's data":    {func(_ *aaif.State, m *state.Mesh) { m.Loop = []byte(`{}`) }, true},
		"an iteration":          {func(d *aaif.State, _ *state.Mesh) { d.Iteration = aaif.Int(1) }, true},
		"a pipeline's position": {func(d *aaif.State, _ *state.Mesh) { d.PipelinePosition = &aaif.PipelinePosition{} }, true},
	} {
		cp := bare()
		if c.change(&cp.Doc, &cp.Mesh); run.Bare(cp) || run.Progressed(cp) != c.progressed {
			t.Errorf("%s: bare %t, progressed %t", name, run.Bare(cp), run.Progressed(cp))
		}
		if worked := run.Worked(cp); worked != (c.progressed && name != "a failed attempt" && name != "a step") {
			t.Errorf("%s: worked %t", name, worked)
		}
	}
}

// A command has the id of its envelope, which its sender has chosen.
func TestTheLastRetryOfARun(t *testing.T) {
	t.Parallel()
	c := state.New("agent.x", "t", "")
	for _, at := range []struct{ command, want string }{
		{"01JFB2R1JZKQ9V3K8W8Y9W1F2A", ""}, {"retry.", ""}, {"retry.x1234567", ""}, {"retry.9", "retry.9"}, {"retry.-1", "retry.9"}, {"retry.12", "retry.12"}, {"retry.9 ", "retry.12"},
	} {
		c.Mesh.Commands = append(c.Mesh.Commands, at.command)
		if got := run.LastRetry(c); got != at.want {
			t.Errorf("after %q: %q, want %q", at.command, got, at.want)
		}
	}
}
