package run_test

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

func TestStep(t *testing.T) {
	t.Parallel()
	model, intent := state.Step{Kind: state.StepModel}, state.Step{Kind: state.StepIntent}
	for name, c := range map[string]struct {
		c       *state.Checkpoint
		step    state.Step
		park    aaif.RunStatus
		leaving bool
		want    run.Stepped
		status  aaif.RunStatus
		owner   string
		pending string
	}{
		"goes on":                           {begun(), model, "", false, run.Stepped{}, aaif.RunRunning, "a", ""},
		"amid a call":                       {begun(inFlight), model, "", false, run.Stepped{}, aaif.RunAwaitingToolResult, "a", ""},
		"the worker stops":                  {begun(), model, "", true, run.Stepped{Stop: true}, aaif.RunRunning, "", ""},
		"the worker stops amid a call":      {begun(inFlight), model, "", true, run.Stepped{}, aaif.RunAwaitingToolResult, "a", ""},
		"the worker stops before a call":    {begun(), intent, "", true, run.Stepped{}, aaif.RunRunning, "a", ""},
		"a pause is pending":                {begun(pendingPause), model, "", false, run.Stepped{Stop: true, Status: aaif.RunPaused}, aaif.RunPaused, "", ""},
		"a pause is pending amid a call":    {begun(pendingPause, inFlight), model, "", false, run.Stepped{}, aaif.RunAwaitingToolResult, "a", "paused"},
		"a pause is pending before a task":  {begun(pendingPause), state.Step{Kind: state.StepCall}, "", false, run.Stepped{}, aaif.RunRunning, "a", "paused"},
		"a pause is pending before a call":  {begun(pendingPause), intent, "", false, run.Stepped{}, aaif.RunRunning, "a", "paused"},
		"a move is pending":                 {begun(pendingMove("c")), model, "", false, run.Stepped{Stop: true, Status: aaif.RunMigrating, Capture: true}, aaif.RunMigrating, "", ""},
		"it parks":                          {begun(), model, aaif.RunPaused, false, run.Stepped{Stop: true, Status: aaif.RunPaused}, aaif.RunPaused, "", ""},
		"it parks amid a call":              {begun(inFlight), model, aaif.RunPaused, false, run.Stepped{Stop: true, Status: aaif.RunPaused}, aaif.RunPaused, "", ""},
		"it waits, and a pause is pending":  {begun(pendingPause), model, aaif.RunAwaitingApproval, false, run.Stepped{Stop: true, Status: aaif.RunAwaitingApproval}, aaif.RunAwaitingApproval, "", "paused"},
		"a move out is pending":             {begun(pendingMove(paris)), model, "", false, run.Stepped{Stop: true, Status: aaif.RunMigrating, Capture: true}, aaif.RunMigrating, "", ""},
		"a move, and an answer is to come":  {begun(pendingMove("c"), waitsForBob), model, "", false, run.Stepped{Stop: true, Status: aaif.RunMigrating, Capture: true}, aaif.RunMigrating, "", ""},
		"a move out, and an answer":         {begun(pendingMove(paris), waitsForBob), model, "", false, run.Stepped{}, aaif.RunRunning, "a", ""},
		"a move out, and an open call":      {begun(pendingMove(paris), calledHelper), model, "", false, run.Stepped{}, aaif.RunRunning, "a", ""},
		"an open call, the worker stops":    {begun(pendingMove(paris), calledHelper), model, "", true, run.Stepped{Stop: true}, aaif.RunRunning, "", "migrating"},
		"it may leave amid the call":        {begun(pendingMove(paris), askedToWait, calledHelper), model, "", true, run.Stepped{Stop: true, Status: aaif.RunMigrating, Capture: true}, aaif.RunMigrating, "", ""},
		"not at the end of a step":          {begun(pendingMove(paris), askedToWait, calledHelper), model, "", false, run.Stepped{}, aaif.RunRunning, "a", ""},
		"it may, but for a person's answer": {begun(pendingMove(paris), askedToWait, calledHelper, waitsForBob), model, "", true, run.Stepped{Stop: true}, aaif.RunRunning, "", "migrating"},
		"a move, and an open call":          {begun(pendingMove("c"), calledHelper), model, "", false, run.Stepped{Stop: true, Status: aaif.RunMigrating, Capture: true}, aaif.RunMigrating, "", ""},
		"an answer, and the worker stops":   {begun(pendingMove(paris), waitsForBob), model, "", true, run.Stepped{Stop: true}, aaif.RunRunning, "", "migrating"},
		"an answer, and a pause is pending": {begun(pendingMove(paris), waitsForBob, pausedThere), model, "", false, run.Stepped{Stop: true, Status: aaif.RunPaused}, aaif.RunPaused, "", ""},
		"an answer, amid a call":            {begun(pendingMove(paris), waitsForBob, inFlight), model, "", false, run.Stepped{}, aaif.RunAwaitingToolResult, "a", "migrating"},
		"it pauses, and a move was pending": {begun(pendingMove("c")), model, aaif.RunPaused, false, run.Stepped{Stop: true, Status: aaif.RunPaused}, aaif.RunPaused, "", ""},
	} {
		c.c.Mesh.Claims = 3
		got, err := run.Step(c.c, c.step, c.park, c.leaving, noon)
		if err != nil || got != c.want || c.c.Doc.Status != c.status || c.c.Mesh.Owner != c.owner || c.c.Mesh.Pending != c.pending || c.c.Mesh.Claims != 0 {
			t.Errorf("%s: %+v (%v), status %s, owner %q, pending %q, claims %d", name, got, err, c.c.Doc.Status, c.c.Mesh.Owner, c.c.Mesh.Pending, c.c.Mesh.Claims)
		}
	}
	for _, s := range []aaif.RunStatus{aaif.RunPaused, aaif.RunAwaitingApproval, aaif.RunMigrating, aaif.RunCompleted, aaif.RunFailed} {
		if _, err := run.Step(begun(status(s)), model, "", false, noon); err == nil {
			t.Errorf("a handler may set the status %s", s)
		}
	}
	told := begun(func(c *state.Checkpoint) { c.Mesh.Told = "half a sentence" })
	if _, err := run.Step(told, state.Step{Kind: state.StepHandler}, "", false, noon); err != nil || told.Mesh.Told != "" {
		t.Errorf("a handler's step: %v, told %q", err, told.Mesh.Told)
	}
}

func TestReleaseAndRetry(t *testing.T) {
	t.Parallel()
	c := begun()
	run.Release(c)
	if c.Mesh.Owner != "" || c.Mesh.Claims != 0 || c.Doc.Status != aaif.RunRunning {
		t.Errorf("released: %+v", c.Mesh)
	}
	c = begun()
	run.Retry(c, envelope.CodeUnavailable, &aaif.RunError{Code: "E_UNAVAILABLE"})
	if c.Mesh.Owner != "" || c.Mesh.Claims != 0 || c.Mesh.Attempt != 1 || c.Doc.Error == nil || c.Doc.Status != aaif.RunRunning {
		t.Errorf("tried again: %+v", c.Mesh)
	}
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		c     *state.Checkpoint
		owner string
		want  bool
	}{
		"running":             {begun(), "a", true},
		"amid a call":         {begun(func(c *state.Checkpoint) { c.Doc.Status = aaif.RunAwaitingToolResult }), "a", true},
		"relaying":            {begun(moving(state.PhaseRelaying, paris)), "a", true},
		"of another owner":    {begun(), "b", false},
		"released":            {begun(noOwner), "a", false},
		"paused":              {begun(status(aaif.RunPaused)), "a", false},
		"ended by this owner": {begun(func(c *state.Checkpoint) { c.Doc.Status = aaif.RunCompleted }), "a", false},
	} {
		epoch, claims := c.c.Mesh.Epoch, c.c.Mesh.Claims
		if got := run.Abandon(c.c, c.owner); got != c.want {
			t.Errorf("%s: %t", name, got)
		} else if m := &c.c.Mesh; got && (m.Owner != "" || m.Work != 0 || m.Epoch != epoch+1 || m.Claims != claims) || !got && m.Epoch != epoch {
			t.Errorf("%s: owner %q, work %d, epoch %d, claims %d", name, m.Owner, m.Work, m.Epoch, m.Claims)
		}
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]struct {
		run.Ending
		status aaif.RunStatus
		kind   state.StepKind
		detail string
	}{
		"a result":     {run.Ending{Reply: []byte("r")}, aaif.RunCompleted, state.StepTerminal, ""},
		"an error":     {run.Ending{Reply: []byte("r"), Error: &aaif.RunError{Code: "E_AGENT"}}, aaif.RunFailed, state.StepTerminal, "E_AGENT"},
		"at paris":     {run.Ending{Reply: []byte("r"), Target: "paris", Stream: 3}, aaif.RunCompleted, state.StepTerminal, "at paris"},
		"a delegation": {run.Ending{Handed: &state.Handed{To: "agent.y", Reason: "it knows"}}, aaif.RunCompleted, state.StepHandoff, "it knows"},
	} {
		c := begun(pendingPause, func(c *state.Checkpoint) { c.Mesh.Told = "half" })
		run.End(c, e.Ending)
		m := &c.Mesh
		if c.Doc.Status != e.status || m.Step.Kind != e.kind || m.Step.Detail != e.detail || m.Pending != "" || m.Told != "" || string(m.Reply) != string(e.Reply) || m.Handed != e.Handed || m.Stream != e.Stream {
			t.Errorf("%s: status %s, %+v", name, c.Doc.Status, m)
		}
		if m.Owner != "a" || m.Epoch != 3 {
			t.Errorf("%s: the record does not say who ended it: %q, %d", name, m.Owner, m.Epoch)
		}
	}
}

func TestErrorStep(t *testing.T) {
	t.Parallel()
	at := func(kind state.StepKind) *state.Checkpoint {
		return begun(func(c *state.Checkpoint) {
			c.Mesh.Step = state.Step{Kind: kind, Name: "pay"}
			c.Doc.PipelinePosition = &aaif.PipelinePosition{CurrentStep: "draft"}
		})
	}
	for _, c := range []struct {
		kind state.StepKind
		code envelope.Code
		want string
	}{
		{state.StepTeam, envelope.CodeAgent, "pay"}, {state.StepIntent, envelope.CodeAgent, "pay"},
		{state.StepReceipt, envelope.CodeTool, "pay"}, {state.StepReceipt, envelope.CodeAgent, "draft"}, {state.StepModel, envelope.CodeAgent, "draft"},
	} {
		if got := run.ErrorStep(at(c.kind), c.code); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.kind, c.code, got, c.want)
		}
	}
	if got := run.ErrorStep(begun(), envelope.CodeAgent); got != "" {
		t.Errorf("in no step: %q", got)
	}
}

// A run that goes on lacks its message until a worker has claimed it, or the record names the
// message; other commands do not matter.
func TestLacksMessage(t *testing.T) {
	t.Parallel()
	resumed := func(c *state.Checkpoint) {
		if out, err := run.Command(c, &run.Order{Envelope: "1", Intent: intents.TaskResume}, run.Stored, noon); err != nil || !out.Requeue {
			t.Fatalf("resumed: %+v, %v", out, err)
		}
	}
	then := func(intent, to string) func(*state.Checkpoint) {
		return func(c *state.Checkpoint) {
			if out, err := run.Command(c, &run.Order{Envelope: intent, Intent: intent, To: to}, run.Stored, noon); err != nil || out.Do != run.Applied {
				t.Fatalf("%s: %+v, %v", intent, out, err)
			}
		}
	}
	paused := status(aaif.RunPaused)
	for name, test := range map[string]struct {
		now  *state.Checkpoint
		want bool
	}{
		"as it was":             {begun(paused, resumed), true},
		"steered":               {begun(paused, resumed, then(intents.TaskSteer, "")), true},
		"to be moved":           {begun(paused, resumed, then(intents.TaskMigrate, "b")), true},
		"to be exported":        {begun(paused, resumed, then(intents.TaskMigrate, intents.MigrateFile)), true},
		"paused again":          {begun(paused, resumed, then(intents.TaskPause, "")), false},
		"paused and resumed":    {begun(paused, resumed, then(intents.TaskPause, ""), then(intents.TaskResume, "")), false},
		"its message is noted":  {begun(paused, resumed, func(c *state.Checkpoint) { c.Mesh.Work = 7 }), false},
		"another owner":         {begun(paused, resumed, func(c *state.Checkpoint) { c.Mesh.Owner = "b" }), false},
		"another epoch":         {begun(paused, resumed, func(c *state.Checkpoint) { c.Mesh.Epoch++ }), false},
		"not stored as resumed": {begun(paused), false},
		"ended":                 {begun(paused, resumed, status(aaif.RunFailed)), false},
	} {
		if got := run.LacksMessage(test.now, begun(paused, resumed)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	late := func(c *state.Checkpoint) { c.Mesh.Deadline = noon }
	for name, c := range map[string]struct {
		c    *state.Checkpoint
		want run.Need
	}{
		"queued":                  {begun(noOwner), run.NeedsQueue},
		"its owner is dead":       {begun(), run.NeedsQueue},
		"amid a call":             {begun(status(aaif.RunAwaitingToolResult)), run.NeedsQueue},
		"commands are noted":      {begun(noted(intents.TaskPause, "human.ann")), run.NeedsNotes},
		"paused":                  {begun(status(aaif.RunPaused)), run.NeedsNothing},
		"paused, and overdue":     {begun(status(aaif.RunPaused), late), run.NeedsWake},
		"waits, and overdue":      {begun(status(aaif.RunAwaitingApproval), waitsForBob, late), run.NeedsWake},
		"moves to paris":          {begun(moving(state.PhaseCommitted, paris)), run.NeedsQueue},
		"moves to paris, overdue": {begun(moving(state.PhaseCommitted, paris), late), run.NeedsQueue},
		"exported":                {begun(moving(state.PhaseCommitted, intents.MigrateFile), late), run.NeedsNothing},
		"captured for no place":   {begun(moving(state.PhaseCaptured, "")), run.NeedsNothing},
		"on its way here":         {begun(arriving, late), run.NeedsNothing},
		"migrating to no place":   {begun(status(aaif.RunMigrating)), run.NeedsNothing},
		"completed":               {begun(status(aaif.RunCompleted), late), run.NeedsNothing},
		"failed":                  {begun(status(aaif.RunFailed)), run.NeedsNothing},
	} {
		got, _ := run.Needs(c.c, noon)
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if carried := got == run.NeedsQueue; carried != run.Carried(c.c.Doc.Status) && c.c.Mesh.Task != nil && got != run.NeedsWake && c.c.Doc.Status != aaif.RunMigrating {
			t.Errorf("%s: Carried says %t", name, !carried)
		}
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	c := begun(status(aaif.RunAwaitingApproval), waitsForBob, func(c *state.Checkpoint) {
		c.Doc.ApprovalRequest, c.Mesh.WakeAt = &aaif.ApprovalRequest{}, noon.Add(time.Minute)
		c.Mesh.Migration = &state.Migration{Phase: state.PhaseAsked, To: "b"}
	})
	if !run.Waits(c) || run.Due(c, noon) != "" || run.Due(c, noon.Add(time.Minute)) == "" || !run.Earliest(c, c.Mesh.WakeAt).Equal(noon.Add(time.Minute)) {
		t.Fatalf("it waits: %t, is due: %q", run.Waits(c), run.Due(c, noon))
	}
	run.Wake(c, "human.bob has answered")
	m := &c.Mesh
	if c.Doc.Status != aaif.RunRunning || c.Doc.ApprovalRequest != nil || !m.WakeAt.IsZero() || m.Epoch != 4 || m.Work != 0 || m.Owner != "" || run.Waits(c) {
		t.Errorf("woken: %s, %+v", c.Doc.Status, m)
	}
	if m.Pending != string(aaif.RunMigrating) {
		t.Errorf("it was to move within the mesh, and now wants %q", m.Pending)
	}
	c = begun(status(aaif.RunAwaitingApproval), waitsForBob, pendingPause, func(c *state.Checkpoint) {
		c.Mesh.Migration = &state.Migration{Phase: state.PhaseAsked, To: "b"}
	})
	if run.Wake(c, "human.bob has answered"); c.Mesh.Pending != string(aaif.RunPaused) {
		t.Errorf("it was to pause before it moves, and now wants %q", c.Mesh.Pending)
	}
	if run.Waits(begun(status(aaif.RunAwaitingApproval), waitsForBob, unknownCall)) {
		t.Error("an answer wakes a run with a call that a person has to settle")
	}
	expired := state.Wait{Until: noon}
	if run.Expired(expired, noon) || !run.Expired(expired, noon.Add(run.ClockSlack)) || run.Expired(state.Wait{}, noon) {
		t.Error("when an answer is too late")
	}
}

func TestMove(t *testing.T) {
	t.Parallel()
	c := begun()
	run.Capture(c, "a", "move-1", noon)
	m := c.Mesh.Migration
	if c.Doc.Status != aaif.RunMigrating || m.ID != "move-1" || m.To != intents.MigrateFile || m.Status != aaif.RunRunning || run.ExportStateOf(c) != run.Stopped || !run.Exported(c) {
		t.Fatalf("captured by its handler: %+v", m)
	}
	c = begun(pendingMove("b"))
	if !run.CaptureNow(c) || run.CaptureNow(c) {
		t.Fatal("a pending move is captured once")
	}
	if waits := begun(pendingMove(paris), waitsForBob); run.CaptureNow(waits) || waits.Mesh.Pending == "" {
		t.Error("a run that needs an answer of this mesh is captured to leave it")
	}
	for to, want := range map[string]bool{paris: true, intents.MigrateFile: false} { // for a file no worker cancels the call
		if got := run.CaptureNow(begun(pendingMove(to), calledHelper)); got != want {
			t.Errorf("amid a call, to %s: captured is %t", to, got)
		}
	}
	run.Capture(c, "a", "other", noon)
	if c.Mesh.Migration.ID != "m" || !run.Offered(c) || run.Next(c.Mesh.Migration) != run.MoveToWorker {
		t.Fatalf("captured: %+v", c.Mesh.Migration)
	}
	c.Mesh.Migration.Key = "the source's"
	run.Accept(c, "b", 9, noon)
	if c.Mesh.Migration.Key != "" {
		t.Errorf("the next source would have the key %q", c.Mesh.Migration.Key)
	}
	if c.Doc.Status != aaif.RunRunning || !run.Owns(c, "b", 4) || run.Owns(c, "a", 3) || c.Mesh.Work != 9 || run.Offered(c) {
		t.Errorf("accepted: %s, %+v", c.Doc.Status, c.Mesh)
	}
	if run.Offered(begun(moving(state.PhaseCaptured, "b"), status(aaif.RunRunning))) {
		t.Error("a run that runs is offered")
	}
	for phase, want := range map[state.Phase]run.NextMove{state.PhaseCaptured: run.MoveToRemote, state.PhaseCommitted: run.MoveDecide, state.PhaseRelaying: run.MoveRelay} {
		if got := run.Next(&state.Migration{Phase: phase, To: paris}); got != want {
			t.Errorf("after %s: %d, want %d", phase, got, want)
		}
	}
	for name, c := range map[string]struct {
		was    aaif.RunStatus
		owner  string
		status aaif.RunStatus
		runs   bool
		keeps  string
	}{
		"it ran here":   {aaif.RunRunning, "a", aaif.RunRunning, true, "a"},
		"to any worker": {aaif.RunRunning, "", aaif.RunRunning, true, ""},
		"it was paused": {aaif.RunPaused, "a", aaif.RunPaused, false, ""},
	} {
		r := begun(moving(state.PhaseCommitted, paris))
		r.Mesh.Migration.Status = c.was
		if got := run.Back(r, c.owner, noon, "refused"); got != c.runs || r.Doc.Status != c.status || r.Mesh.Owner != c.keeps || r.Mesh.Epoch != 4 || r.Mesh.Migration.Phase != state.PhaseAborted {
			t.Errorf("%s: runs %t, %s, owner %q", name, got, r.Doc.Status, r.Mesh.Owner)
		}
	}
}

// Who looks at a run's history reads in its steps what was done to it, and by whom.
func TestStepsSayWhatWasDone(t *testing.T) {
	t.Parallel()
	order := func(o run.Order, at run.Position) func(*state.Checkpoint) {
		return func(c *state.Checkpoint) {
			o.Envelope, o.From, o.Reason = "1", "human.ann", "lunch"
			if _, err := run.Command(c, &o, at, noon); err != nil {
				t.Error(err)
			}
		}
	}
	asked := state.AskedBy + "human.ann: lunch"
	for name, c := range map[string]struct {
		c      *state.Checkpoint
		change func(*state.Checkpoint)
		want   state.Step
		phase  state.Phase
	}{
		"pause":  {begun(), order(run.Order{Intent: intents.TaskPause}, run.Here), state.Step{Kind: state.StepPause, Detail: asked}, ""},
		"resume": {begun(status(aaif.RunPaused)), order(run.Order{Intent: intents.TaskResume}, run.Stored), state.Step{Kind: state.StepResume, Detail: asked}, ""},
		"steer":  {begun(), order(run.Order{Intent: intents.TaskSteer}, run.Here), state.Step{Kind: state.StepSteer, Detail: asked}, ""},
		"settle": {begun(status(aaif.RunAwaitingApproval), unknownCall), order(run.Order{Intent: intents.TaskSettle, Call: "call-1", Outcome: intents.OutcomeFailed}, run.Stored),
			state.Step{Kind: state.StepSettle, Name: "call-1", Detail: "failed, says human.ann: lunch"}, ""},
		"migrate": {begun(), order(run.Order{Intent: intents.TaskMigrate, To: "b"}, run.Here), state.Step{Kind: state.StepMigrate, Name: "asked", Detail: "to b, " + asked}, state.PhaseAsked},
		"export":  {begun(status(aaif.RunPaused)), order(run.Order{Intent: intents.TaskMigrate, To: intents.MigrateFile}, run.Stored), state.Step{Kind: state.StepMigrate, Name: "asked", Detail: "to file, " + asked}, state.PhaseCaptured},
		"abort":   {begun(pendingMove("b")), order(run.Order{Intent: intents.TaskMigrate, Abort: true}, run.Here), state.Step{Kind: state.StepMigrate, Name: "aborted", Detail: "by human.ann: lunch"}, state.PhaseAborted},
		"capture": {begun(pendingMove("b")), func(c *state.Checkpoint) { run.Capture(c, "a", "", noon) }, state.Step{Kind: state.StepMigrate, Name: "captured", Detail: "to b"}, state.PhaseCaptured},
		"advance": {begun(moving(state.PhaseCaptured, "b")), func(c *state.Checkpoint) { run.Advance(c, state.PhaseCommitted, noon) }, state.Step{Kind: state.StepMigrate, Name: "committed", Detail: "to b"}, state.PhaseCommitted},
		"accept":  {begun(moving(state.PhaseCaptured, "b")), func(c *state.Checkpoint) { run.Accept(c, "b", 9, noon) }, state.Step{Kind: state.StepClaim, Name: "moved", Detail: "from a"}, state.PhaseMoved},
		"retry":   {begun(), func(c *state.Checkpoint) { run.Retry(c, "E_AGENT", nil) }, state.Step{Kind: state.StepRetry, Detail: "E_AGENT"}, ""},
		"wake":    {begun(status(aaif.RunPaused)), func(c *state.Checkpoint) { run.Wake(c, "its time has come") }, state.Step{Kind: state.StepResume, Detail: "its time has come"}, ""},
		"take over a move": {begun(moving(state.PhaseAsked, paris)), func(c *state.Checkpoint) { run.Claim(c, run.Moving, run.Message{Worker: "b"}, terms()) },
			state.Step{Kind: state.StepMigrate, Name: "captured", Detail: "to " + paris}, state.PhaseCaptured},
		"stay": {begun(pendingMove(paris)), func(c *state.Checkpoint) { run.Stay(c, noon) }, state.Step{Kind: state.StepClaim}, state.PhaseAborted},
	} {
		c.change(c.c)
		if c.c.Mesh.Step != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.c.Mesh.Step, c.want)
		}
		if g := c.c.Mesh.Migration; c.phase != "" && (g.Phase != c.phase || !g.Since.Equal(noon) && name != "export") {
			t.Errorf("%s: phase %s since %v", name, g.Phase, g.Since)
		}
		if name == "stay" && c.c.Mesh.Pending != "" {
			t.Errorf("it stays, and is to go: %q", c.c.Mesh.Pending)
		}
	}
}

func TestOwns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*state.Checkpoint{
		"another epoch": begun(func(c *state.Checkpoint) { c.Mesh.Epoch++ }),
		"another owner": begun(func(c *state.Checkpoint) { c.Mesh.Owner = "b" }),
		"ended":         begun(func(c *state.Checkpoint) { c.Doc.Status = aaif.RunCompleted }),
	} {
		if run.Owns(c, "a", 3) {
			t.Errorf("%s: it is owned", name)
		}
	}
	if !run.Owns(begun(), "a", 3) {
		t.Error("it is not owned")
	}
}
