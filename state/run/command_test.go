package run_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// The table has what each command does to a run in each state. A cell is the Do, the
// status that the sender is told, the run's status where that differs, then "queue" where
// it needs a message, and what is pending; or the code that refuses the command.
func TestCommand(t *testing.T) {
	t.Parallel()
	approval := func(c *state.Checkpoint) { c.Doc.ApprovalRequest = &aaif.ApprovalRequest{} }
	states := []struct {
		name string
		at   run.Position
		c    func() *state.Checkpoint
	}{
		{"running here", run.Here, func() *state.Checkpoint { return begun() }},
		{"running elsewhere", run.Stored, func() *state.Checkpoint { return begun() }},
		{"owner silent", run.Silent, func() *state.Checkpoint { return begun() }},
		{"queued", run.Stored, func() *state.Checkpoint { return begun(noOwner) }},
		{"queued amid a call", run.Stored, func() *state.Checkpoint { return begun(noOwner, inFlight) }},
		{"pause pending", run.Here, func() *state.Checkpoint { return begun(pendingPause) }},
		{"move pending", run.Here, func() *state.Checkpoint { return begun(pendingMove("c")) }},
		{"move out pending", run.Here, func() *state.Checkpoint { return begun(pendingMove(paris)) }},
		{"paused", run.Stored, func() *state.Checkpoint { return begun(status(aaif.RunPaused)) }},
		{"awaits approval", run.Stored, func() *state.Checkpoint { return begun(status(aaif.RunAwaitingApproval), approval) }},
		{"awaits an answer", run.Stored, func() *state.Checkpoint { return begun(status(aaif.RunAwaitingApproval), waitsForBob) }},
		{"awaits a settlement", run.Stored, func() *state.Checkpoint { return begun(status(aaif.RunAwaitingApproval), unknownCall) }},
		{"captured", run.Silent, func() *state.Checkpoint { return begun(moving(state.PhaseCaptured, "c")) }},
		{"on its way here", run.Stored, func() *state.Checkpoint { return begun(arriving) }},
		{"at paris", run.Stored, func() *state.Checkpoint { return begun(moving(state.PhaseRelaying, paris)) }},
		{"completed", run.Stored, func() *state.Checkpoint { return begun(status(aaif.RunCompleted)) }},
		{"its reply alone", run.Stored, func() *state.Checkpoint {
			return begun(status(aaif.RunCompleted), func(c *state.Checkpoint) { c.Mesh.Task = nil })
		}},
		{"delegated", run.Stored, func() *state.Checkpoint {
			return begun(status(aaif.RunCompleted), func(c *state.Checkpoint) { c.Mesh.Handed = &state.Handed{To: "agent.y"} })
		}},
		{"not begun", run.Stored, func() *state.Checkpoint { return begun(noted(intents.TaskPause, "human.ann")) }},
	}
	orders := []run.Order{
		{Intent: intents.TaskCancel}, {Intent: intents.TaskPause}, {Intent: intents.TaskResume}, {Intent: intents.TaskSteer, Text: "faster"},
		{Intent: intents.TaskSettle, Outcome: intents.OutcomeDone, Result: []byte(`{}`)}, {Intent: intents.TaskMigrate, To: "c"},
		{Intent: intents.TaskMigrate, To: paris}, {Intent: intents.TaskMigrate, To: intents.MigrateFile}, {Intent: intents.TaskMigrate, Abort: true},
	}
	columns := "cancel | pause | resume | steer | settle | move | move out | export | abort"
	want := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(commandTable), "\n") {
		name, cells, _ := strings.Cut(line, ":")
		want[strings.TrimSpace(name)] = strings.Join(strings.Fields(cells), " ")
	}
	do := map[run.Do]string{run.Nothing: "nothing", run.Already: "already", run.Applied: "", run.EndRun: "end", run.Note: "note",
		run.AskOwner: "owner", run.Forward: "forward", run.ForwardOut: "forward out"}
	for _, s := range states {
		var cells []string
		for i := range orders {
			o := orders[i]
			o.Envelope, o.From, o.MoveID = "command-1", "human.ann", "move-1"
			c := s.c()
			epoch, was := c.Mesh.Epoch, c.Clone()
			out, err := run.Command(c, &o, s.at, noon)
			var problem *envelope.Error
			if errors.As(err, &problem) {
				cells = append(cells, string(problem.Code))
				continue
			}
			words := []string{do[out.Do]}
			if out.Do == run.Applied {
				words = append(words, out.Status)
				if got := string(c.Doc.Status); got != out.Status {
					words = append(words, "("+got+")")
				}
				if out.Requeue {
					words = append(words, "queue")
				}
				if c.Mesh.Pending != "" {
					words = append(words, "want "+c.Mesh.Pending)
				}
				if out.Requeue && (c.Mesh.Owner != "" || c.Mesh.Work != 0 || c.Mesh.Epoch != epoch+1) {
					t.Errorf("%s, %s: owner %q, work %d, epoch %d: a later claim would not be recognised", s.name, o.Intent, c.Mesh.Owner, c.Mesh.Work, c.Mesh.Epoch)
				}
			}
			if applied := slices.Contains(c.Mesh.Commands, "command-1"); applied != (out.Do == run.Applied || out.Do == run.EndRun) {
				t.Errorf("%s, %s: noted as applied: %t", s.name, o.Intent, applied)
			} else if applied {
				again, err := run.Command(c, &o, s.at, noon)
				if err != nil || again.Do != run.Already || out.Do == run.Applied && again.Status != out.Status {
					t.Errorf("%s, %s: a second time: %+v, %v; the first time %+v", s.name, o.Intent, again, err, out)
				}
			} else if c.Doc.Status != was.Doc.Status || c.Mesh.Pending != was.Mesh.Pending || c.Mesh.Epoch != epoch {
				t.Errorf("%s, %s: it changed the run", s.name, o.Intent)
			}
			cells = append(cells, strings.TrimSpace(strings.Join(words, " ")))
		}
		if got := strings.Join(cells, " | "); got != want[s.name] {
			t.Errorf("%s (%s)\n got %s\nwant %s", s.name, columns, got, want[s.name])
		}
	}
}

const commandTable = `
running here: end | pausing (running) want paused | nothing | running | nothing | moving (running) want migrating | moving (running) want migrating | moving (running) want migrating | E_NOT_FOUND
running elsewhere: owner | owner | owner | owner | owner | owner | owner | owner | owner
owner silent: end | pausing (running) want paused | nothing | running | E_NOT_FOUND | moving (running) want migrating | moving (running) want migrating | moving (running) want migrating | E_NOT_FOUND
queued: end | paused | nothing | running | E_NOT_FOUND | moving (running) want migrating | moving (running) want migrating | moving (running) want migrating | E_NOT_FOUND
queued amid a call: end | pausing (running) want paused | nothing | running | E_NOT_FOUND | moving (running) want migrating | moving (running) want migrating | moving (running) want migrating | E_NOT_FOUND
pause pending: end | pausing (running) want paused | running | running want paused | nothing | pausing (running) want paused | pausing (running) want migrating | pausing (running) want migrating | E_NOT_FOUND
move pending: end | pausing (running) want paused | nothing | running want migrating | nothing | moving (running) want migrating | E_DENIED | E_DENIED | running
move out pending: end | pausing (running) want migrating | nothing | running want migrating | nothing | E_DENIED | moving (running) want migrating | E_DENIED | running
paused: end | already | running queue | paused | E_NOT_FOUND | paused | migrating queue | migrating | E_NOT_FOUND
awaits approval: end | pausing (awaiting_approval) want paused | running queue | awaiting_approval | E_NOT_FOUND | awaiting_approval | migrating queue | migrating | E_NOT_FOUND
awaits an answer: end | pausing (awaiting_approval) want paused | nothing | awaiting_approval | E_NOT_FOUND | awaiting_approval | E_DENIED | E_DENIED | E_NOT_FOUND
awaits a settlement: end | pausing (awaiting_approval) want paused | nothing | awaiting_approval | running queue | awaiting_approval | migrating queue | migrating | E_NOT_FOUND
captured: end | nothing | nothing | migrating | E_NOT_FOUND | E_DENIED | E_DENIED | E_DENIED | running queue
on its way here: E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE | E_UNAVAILABLE
at paris: forward out | forward out | forward out | forward out | forward out | forward out | forward out | forward out | E_DENIED
completed: nothing | nothing | nothing | nothing | nothing | nothing | nothing | nothing | nothing
its reply alone: nothing | nothing | nothing | nothing | nothing | nothing | nothing | nothing | nothing
delegated: forward | forward | forward | forward | forward | forward | forward | forward | forward
not begun: note | note | note | note | note | note | note | note | note
`

// Until a run that comes from another platform begins here, it may go back to its source. Its sender
// is told so, and that the command may be sent again.
func TestACommandForARunThatIsOnItsWayHere(t *testing.T) {
	t.Parallel()
	c := begun(arriving)
	was := c.Clone()
	_, err := run.Command(c, &run.Order{Envelope: "1", Intent: intents.TaskMigrate, Abort: true}, run.Silent, noon)
	var problem *envelope.Error
	if !errors.As(err, &problem) || !problem.Retryable || problem.Backoff() == 0 || problem.Message != "the run is on its way here from a, and has not begun here: send the command again later" {
		t.Errorf("the abort: %v", err)
	}
	if !reflect.DeepEqual(c, was) {
		t.Errorf("the run has changed: %+v", c)
	}
}

func TestCommandRefusesBeyondLimits(t *testing.T) {
	t.Parallel()
	c := begun()
	for i := range run.MaxSteering {
		if _, err := run.Command(c, &run.Order{Envelope: fmt.Sprint(i), Intent: intents.TaskSteer}, run.Here, noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run.Command(c, &run.Order{Envelope: "last", Intent: intents.TaskSteer}, run.Here, noon); err != run.ErrSteered {
		t.Errorf("one message too many: %v", err)
	}
	denied := errors.New("denied")
	if _, err := run.Command(begun(), &run.Order{Envelope: "m", Intent: intents.TaskMigrate, To: paris, Denied: denied}, run.Here, noon); err != denied {
		t.Errorf("a move that is denied: %v", err)
	}
	if out, err := run.Command(begun(status(aaif.RunCompleted)), &run.Order{Envelope: "m", Intent: intents.TaskMigrate, To: paris, Denied: denied}, run.Stored, noon); err != nil || out.Status != "completed" {
		t.Errorf("of a run that has ended: %+v, %v", out, err)
	}
}

// A pause and a move may both be pending: docs/durability.md says what becomes of them.
func TestPauseAndMoveTogether(t *testing.T) {
	t.Parallel()
	command := func(c *state.Checkpoint, intent, to string) {
		t.Helper()
		if _, err := run.Command(c, &run.Order{Envelope: intent + to, Intent: intent, To: to, From: "human.ann"}, run.Here, noon); err != nil {
			t.Fatal(err)
		}
	}
	c := begun()
	command(c, intents.TaskPause, "")
	command(c, intents.TaskMigrate, "c")
	if c.Mesh.Pending != "paused" {
		t.Fatalf("a pause, then a move within the mesh: want %q", c.Mesh.Pending)
	}
	if out, err := run.Step(c, state.Step{Kind: state.StepModel}, "", false, noon); err != nil || out.Status != aaif.RunPaused || out.Capture {
		t.Fatalf("the step: %+v, %v", out, err)
	}
	command(c, intents.TaskResume, "")
	if c.Doc.Status != aaif.RunRunning || c.Mesh.Pending != "migrating" {
		t.Errorf("resumed: %s, want %q: it goes where it was asked to go", c.Doc.Status, c.Mesh.Pending)
	}

	c = begun()
	command(c, intents.TaskPause, "")
	command(c, intents.TaskMigrate, paris)
	if c.Mesh.Pending != "migrating" || c.Mesh.Migration.Status != aaif.RunPaused {
		t.Fatalf("a pause, then a move out of the mesh: want %q, %s there", c.Mesh.Pending, c.Mesh.Migration.Status)
	}
	out, err := run.Step(c, state.Step{Kind: state.StepModel}, "", false, noon)
	if err != nil || !out.Capture {
		t.Fatalf("the step: %+v, %v", out, err)
	}
	run.Capture(c, "a", "other", noon)
	if run.Back(c, "a", noon, "no answer") || c.Doc.Status != aaif.RunPaused || c.Mesh.Owner != "" {
		t.Errorf("a move that failed: %s, owner %q", c.Doc.Status, c.Mesh.Owner)
	}
}

// A run that waits for a person to settle a call, and is asked to move to another platform
// meanwhile, goes on when the call was settled and the move has failed.
func TestSettledWhileItMoves(t *testing.T) {
	t.Parallel()
	c := begun(status(aaif.RunAwaitingApproval), unknownCall, func(c *state.Checkpoint) { c.Doc.ApprovalRequest = &aaif.ApprovalRequest{} })
	for _, o := range []run.Order{{Envelope: "1", Intent: intents.TaskMigrate, To: paris}, {Envelope: "2", Intent: intents.TaskSettle, Outcome: intents.OutcomeDone}} {
		if _, err := run.Command(c, &o, run.Stored, noon); err != nil {
			t.Fatal(err)
		}
	}
	if !run.Back(c, "a", noon, "no answer") || c.Doc.Status != aaif.RunRunning {
		t.Errorf("it stays %s, which nothing ends", c.Doc.Status)
	}
}

// The outcome of a call is stated once: the same outcome changes nothing, and another one is refused
// with the name of the person who has stated it, in a run that waits for another call as well as in
// one that goes on.
func TestAnOutcomeIsStatedOnce(t *testing.T) {
	t.Parallel()
	waits := begun(status(aaif.RunAwaitingApproval), noOwner, unknownCall, unknownCall)
	waits.Mesh.Effects[1].ID = "call-2"
	goesOn := begun(status(aaif.RunAwaitingApproval), noOwner, unknownCall)
	settle := func(c *state.Checkpoint, envelopeID, call string, at run.Position, outcome intents.Outcome, result string) (run.Commanded, error) {
		o := &run.Order{Envelope: envelopeID, Intent: intents.TaskSettle, From: "human.ann", Call: call, Outcome: outcome, Error: "lost"}
		if result != "" {
			o.Result = []byte(result)
		}
		return run.Command(c, o, at, noon)
	}
	for _, c := range []*state.Checkpoint{waits, goesOn} {
		if _, err := settle(c, "1", "call-1", run.Stored, intents.OutcomeDone, `{"a":1,"b":2}`); err != nil {
			t.Fatal(err)
		}
		before := c.Clone()
		for _, again := range []struct {
			call    string
			at      run.Position
			outcome intents.Outcome
			result  string
			refused bool
		}{
			{"call-1", run.Stored, intents.OutcomeDone, `{"b":2, "a":1}`, false},
			{"call-1", run.Stored, intents.OutcomeDone, `{"a":2}`, true},
			{"call-1", run.Stored, intents.OutcomeFailed, "", true},
			{"call-1", run.Stored, intents.OutcomeRepeat, "", true},
			{"call-1", run.Here, intents.OutcomeRepeat, "", true},
			{"", run.Here, intents.OutcomeRepeat, "", true},
		} {
			if again.call == "" && c == waits {
				continue // it is about the other call
			}
			out, err := settle(c, "2", again.call, again.at, again.outcome, again.result)
			var problem *envelope.Error
			switch {
			case !again.refused && (err != nil || out.Do != run.Already):
				t.Errorf("%s, %s: %+v, %v", c.Doc.Status, again.outcome, out, err)
			case again.refused && (!errors.As(err, &problem) || problem.Code != envelope.CodeDenied || problem.Message != "the outcome of call call-1 was stated already, by human.ann: it is done"):
				t.Errorf("%s, %s %s at %d: %+v, %v", c.Doc.Status, again.outcome, again.result, again.at, out, err)
			}
		}
		if !reflect.DeepEqual(c, before) {
			t.Errorf("%s: the run has changed", c.Doc.Status)
		}
	}
	if _, err := settle(waits, "3", "", run.Stored, intents.OutcomeFailed, ""); err != nil || waits.Doc.Status != aaif.RunRunning {
		t.Errorf("the other call: %v, %s", err, waits.Doc.Status)
	}
	if out, err := settle(goesOn, "3", "call-9", run.Stored, intents.OutcomeFailed, ""); !errors.Is(err, &envelope.Error{Code: envelope.CodeNotFound}) {
		t.Errorf("no such call: %+v, %v", out, err)
	}
}

// A run goes on when a person has settled the last of its calls, and not before.
func TestARunWaitsUntilEachCallIsSettled(t *testing.T) {
	t.Parallel()
	c := begun(status(aaif.RunAwaitingApproval), unknownCall, unknownCall)
	c.Mesh.Effects[1].ID = "call-2"
	for _, call := range []string{"call-1", "call-2"} {
		if c.Doc.Status != aaif.RunAwaitingApproval {
			t.Fatalf("before %s is settled: %s", call, c.Doc.Status)
		}
		last := call == "call-2"
		out, err := run.Command(c, &run.Order{Envelope: call, Intent: intents.TaskSettle, Call: call, Outcome: intents.OutcomeDone}, run.Stored, noon)
		if err != nil || out.Requeue != last {
			t.Errorf("%s: %+v, %v", call, out, err)
		}
	}
	if c.Doc.Status != aaif.RunRunning {
		t.Errorf("it stays %s", c.Doc.Status)
	}
}

// A run that waits for an approval and has a pause pending goes on when it is approved.
func TestApprovalEndsAPendingPause(t *testing.T) {
	t.Parallel()
	c := begun(status(aaif.RunAwaitingApproval), pendingPause)
	if _, err := run.Command(c, &run.Order{Envelope: "1", Intent: intents.TaskResume}, run.Stored, noon); err != nil || c.Mesh.Pending != "" || c.Doc.Status != aaif.RunRunning {
		t.Errorf("%v, %s, pending %q", err, c.Doc.Status, c.Mesh.Pending)
	}
	// A pause that goes along to another platform is withdrawn where it is kept.
	c = begun(pendingPause)
	for i, o := range []run.Order{{Intent: intents.TaskMigrate, To: paris}, {Intent: intents.TaskResume}} {
		o.Envelope = fmt.Sprint(i)
		if _, err := run.Command(c, &o, run.Here, noon); err != nil {
			t.Fatal(err)
		}
	}
	if c.Mesh.Pending != "migrating" || c.Mesh.Migration.Status != "" {
		t.Errorf("pending %q, and %q there", c.Mesh.Pending, c.Mesh.Migration.Status)
	}
	// A pause that was pending before a move stays when the move is withdrawn.
	c = begun(pendingPause)
	for i, o := range []run.Order{{Intent: intents.TaskMigrate, To: paris}, {Intent: intents.TaskMigrate, Abort: true}} {
		o.Envelope = fmt.Sprint(i)
		if _, err := run.Command(c, &o, run.Here, noon); err != nil {
			t.Fatal(err)
		}
	}
	if c.Mesh.Pending != "paused" {
		t.Errorf("pending %q", c.Mesh.Pending)
	}
}

// An order to move a run that is being moved there already is done; another target is refused.
func TestAMoveThatIsUnderWay(t *testing.T) {
	t.Parallel()
	c := begun(status(aaif.RunPaused))
	for i, step := range []struct {
		to      string
		do      run.Do
		refused envelope.Code
	}{{to: paris, do: run.Applied}, {to: paris, do: run.Already}, {to: "b", refused: envelope.CodeDenied}} {
		out, err := run.Command(c, &run.Order{Envelope: fmt.Sprint(i), Intent: intents.TaskMigrate, To: step.to, MoveID: fmt.Sprint(i)}, run.Stored, noon)
		var problem *envelope.Error
		if errors.As(err, &problem) != (step.refused != "") || err != nil && problem.Code != step.refused || err == nil && (out.Do != step.do || out.Status != string(aaif.RunMigrating)) {
			t.Errorf("order %d: %+v, %v", i, out, err)
		}
	}
	if c.Mesh.Migration.ID != "0" {
		t.Errorf("the move is %+v", c.Mesh.Migration)
	}
}

// A run that needs an answer of this mesh does not leave it. The refusal says what the run waits for:
// one that waits for an approval, or is paused, does not read an answer that has arrived.
func TestAMoveOutOfTheMeshWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		was   aaif.RunStatus
		later bool
		want  string
	}{
		{aaif.RunAwaitingApproval, false, "the run waits for human.bob, whose answer comes to this mesh: it can leave the mesh when that has arrived"},
		{aaif.RunAwaitingApproval, true, "the run waits for an approval, and then reads the answer of human.bob, which comes to this mesh: it can leave the mesh after that"},
		{aaif.RunPaused, false, "the run is paused, and then reads the answer of human.bob, which comes to this mesh: resume it first, it can leave the mesh after that"},
	} {
		for _, to := range []string{paris, intents.MigrateFile} {
			c := begun(status(test.was), waitsForBob, func(c *state.Checkpoint) { c.Mesh.Waits[0].Later = test.later })
			_, err := run.Command(c, &run.Order{Intent: intents.TaskMigrate, To: to, MoveID: "1"}, run.Stored, noon)
			var problem *envelope.Error
			if !errors.As(err, &problem) || problem.Code != envelope.CodeDenied || problem.Message != test.want {
				t.Errorf("%s, later %t, to %s: %v", test.was, test.later, to, err)
			}
		}
	}
}

// A run that has called another agent does not leave the mesh before it has read the answer: where it
// arrives, it would call again. An order that says how long to wait lets it go to a platform, which
// cancels the call.
func TestAMoveOutOfTheMeshWaitsForACall(t *testing.T) {
	t.Parallel()
	const paused = "the run is paused amid a call of agent.helper, whose answer comes to this mesh: resume it first, it can leave the mesh when it has read that"
	void := func(c *state.Checkpoint) {
		c.Mesh.Waits = []state.Wait{{Entity: "agent.helper", TaskID: "t1", Void: true}}
	}
	live := func(c *state.Checkpoint) { c.Mesh.Calls[0].Live = true }
	job := func(c *state.Checkpoint) { live(c); c.Mesh.Calls[0].Job = true }
	for name, test := range map[string]struct {
		c    *state.Checkpoint
		to   string
		wait int64
		want string
	}{
		"paused":                    {begun(status(aaif.RunPaused), calledHelper), paris, 0, paused},
		"to a file":                 {begun(status(aaif.RunPaused), calledHelper), intents.MigrateFile, 0, paused},
		"within the mesh":           {begun(status(aaif.RunPaused), calledHelper), "c", 0, ""},
		"the order waits no longer": {begun(status(aaif.RunPaused), calledHelper), paris, 1, ""},
		"but a file cancels none":   {begun(status(aaif.RunPaused), calledHelper), intents.MigrateFile, 1, paused},
		"awaits an approval": {begun(status(aaif.RunAwaitingApproval), calledHelper), paris, 0,
			"the run waits for an approval, and then reads the answer of agent.helper, which comes to this mesh: it can leave the mesh after that"},
		"no answer is needed":       {begun(status(aaif.RunPaused), calledHelper, void), paris, 0, ""},
		"a call over the live lane": {begun(status(aaif.RunPaused), calledHelper, live), paris, 0, ""},
		"a job":                     {begun(status(aaif.RunPaused), calledHelper, job), paris, 0, paused},
	} {
		_, err := run.Command(test.c, &run.Order{Intent: intents.TaskMigrate, To: test.to, MoveID: "1", WaitMS: test.wait}, run.Stored, noon)
		var problem *envelope.Error
		switch {
		case test.want == "" && err != nil, test.want != "" && (!errors.As(err, &problem) || problem.Code != envelope.CodeDenied || problem.Message != test.want):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The answers to tasks of an earlier attempt are not read any more.
func TestAnAnswerOfAnEarlierAttemptKeepsNoRunHere(t *testing.T) {
	t.Parallel()
	e := envelope.New(envelope.TypeTask, "human.ann", "agent.x", "code.review", []byte(`{}`))
	raw, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := begun(status(aaif.RunPaused))
	c.Mesh.Task, c.Mesh.Attempt = raw, 1
	id := run.CallID(c, e, c.Doc.RunID, "ask")
	for name, sent := range map[string]func(*state.Checkpoint){
		"a question": func(c *state.Checkpoint) { c.Mesh.Waits = []state.Wait{{Entity: "human.bob", Key: "ask", TaskID: id}} },
		"a call":     func(c *state.Checkpoint) { c.Mesh.Calls = []state.Call{{To: "agent.helper", Key: "ask", ID: id}} },
	} {
		for attempt, refused := range map[int]bool{1: true, 2: false} {
			c := c.Clone()
			sent(c)
			c.Mesh.Attempt = attempt
			if _, err := run.Command(c, &run.Order{Intent: intents.TaskMigrate, To: paris, MoveID: "1"}, run.Stored, noon); (err != nil) != refused {
				t.Errorf("%s, in attempt %d: %v", name, attempt, err)
			}
		}
	}
}

// A job has the id of a live call, which does not tell its attempt, so a retry says so in the record.
func TestAJobOfAnEarlierAttemptKeepsNoRunHere(t *testing.T) {
	t.Parallel()
	job := func(id string) state.Call {
		return state.Call{Key: "k", ID: id, To: "agent.helper", Live: true, Job: true}
	}
	refused := func(c *state.Checkpoint) bool {
		c = c.Clone()
		c.Doc.Status = aaif.RunPaused
		_, err := run.Command(c, &run.Order{Intent: intents.TaskMigrate, To: paris, MoveID: "1"}, run.Stored, noon)
		return err != nil
	}
	for name, again := range map[string]func(*state.Checkpoint){
		"a retry": func(c *state.Checkpoint) { run.Retry(c, envelope.CodeUnavailable, nil) },
		"a dead letter that is tried again": func(c *state.Checkpoint) {
			status(aaif.RunFailed)(c)
			dead(c)
			run.Claim(c, run.Mine, run.Message{Worker: "b", Seq: 9, Retry: "retry.9"}, terms())
		},
	} {
		c := begun()
		c.Mesh.Calls = []state.Call{job("x")}
		if !refused(c) {
			t.Errorf("%s: before it, the job does not keep the run", name)
		}
		if again(c); refused(c) {
			t.Errorf("%s: a job of the attempt before keeps the run", name)
		}
		if len(c.Mesh.Calls) != 1 || c.Mesh.Calls[0].ID != "x" {
			t.Errorf("%s: the record has lost the job, which is still to be cancelled: %+v", name, c.Mesh.Calls)
		}
		if c.Mesh.Calls = append(c.Mesh.Calls, job("y")); !refused(c) {
			t.Errorf("%s: a job of this attempt does not keep the run", name)
		}
	}
}

// The same holds for an order that comes before the run parks: the move is given up.
func TestAPendingMoveOutOfTheMeshWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	answered := func(c *state.Checkpoint) { c.Mesh.Waits[0].Answered = true }
	for name, test := range map[string]struct {
		c       *state.Checkpoint
		pending string
		phase   state.Phase
	}{
		"to a platform":           {begun(pendingMove(paris), waitsForBob), "", state.PhaseAborted},
		"to a file":               {begun(pendingMove(intents.MigrateFile), waitsForBob), "", state.PhaseAborted},
		"and a pause is pending":  {begun(pendingMove(paris), waitsForBob, pausedThere), "paused", state.PhaseAborted},
		"amid a call":             {begun(pendingMove(paris), calledHelper), "", state.PhaseAborted},
		"within the mesh":         {begun(pendingMove("c"), waitsForBob), "migrating", state.PhaseAsked},
		"it has the answer":       {begun(pendingMove(paris), waitsForBob, answered), "migrating", state.PhaseAsked},
		"it needs no answer":      {begun(pendingMove(paris)), "migrating", state.PhaseAsked},
		"a call is to be settled": {begun(pendingMove(paris), waitsForBob, unknownCall), "migrating", state.PhaseAsked},
	} {
		c := test.c
		run.StayForApproval(c, noon)
		out, err := run.Step(c, state.Step{Kind: state.StepPause}, aaif.RunAwaitingApproval, false, noon)
		if err != nil || out.Capture || c.Doc.Status != aaif.RunAwaitingApproval || c.Mesh.Pending != test.pending || c.Mesh.Migration.Phase != test.phase {
			t.Errorf("%s: %+v, %v: %s, pending %q, the move is %s", name, out, err, c.Doc.Status, c.Mesh.Pending, c.Mesh.Migration.Phase)
		}
		// It agrees with an order that comes when the run has parked.
		late := begun(status(aaif.RunAwaitingApproval))
		late.Mesh.Waits, late.Mesh.Effects, late.Mesh.Calls = c.Mesh.Waits, c.Mesh.Effects, c.Mesh.Calls
		_, err = run.Command(late, &run.Order{Intent: intents.TaskMigrate, To: c.Mesh.Migration.To, MoveID: "1"}, run.Stored, noon)
		if (err != nil) != (test.phase == state.PhaseAborted) {
			t.Errorf("%s: ordered later: %v", name, err)
		}
	}
}

// Whether a run may leave amid its calls is as the last order says, as the wait of its worker.
func TestTheRecordSaysWhetherARunMayLeaveAmidACall(t *testing.T) {
	t.Parallel()
	for _, to := range []string{paris, intents.MigrateFile, "b"} {
		c := begun(calledHelper)
		for i, wait := range []int64{0, 5000, 0} {
			if _, err := run.Command(c, &run.Order{Envelope: fmt.Sprint(i), Intent: intents.TaskMigrate, To: to, MoveID: "1", WaitMS: wait}, run.Here, noon); err != nil {
				t.Fatal(err)
			}
			if got, want := c.Mesh.Migration.AmidCalls, to == paris && wait > 0; got != want {
				t.Errorf("to %s, with wait_ms %d: %t", to, wait, got)
			}
		}
	}
}

// While a move is pending, an order to move the run to another destination is refused. An
// order to the same destination is applied: it may say how long to wait for tools.
func TestAMoveIsNotReplaced(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]func(*state.Checkpoint){nil, {status(aaif.RunPaused)}} {
		c := begun(opts...)
		for i, step := range []struct {
			order   run.Order
			do      run.Do
			refused envelope.Code
		}{
			{order: run.Order{To: "b", MoveID: "1", From: "human.ann"}, do: run.Applied},
			{order: run.Order{To: intents.MigrateAny, MoveID: "2"}, refused: envelope.CodeDenied},
			{order: run.Order{To: paris, MoveID: "3"}, refused: envelope.CodeDenied},
			{order: run.Order{To: "b", MoveID: "4", WaitMS: 100}, do: run.Applied},
			{order: run.Order{To: "b", Absent: envelope.Errorf(envelope.CodeNotFound, "gone")}, refused: envelope.CodeNotFound},
			{order: run.Order{Abort: true}, do: run.Applied},
			{order: run.Order{To: intents.MigrateAny, MoveID: "6"}, do: run.Applied},
		} {
			o := step.order
			o.Envelope, o.Intent = fmt.Sprint(i), intents.TaskMigrate
			out, err := run.Command(c, &o, run.Here, noon)
			var problem *envelope.Error
			if errors.As(err, &problem) != (step.refused != "") || err != nil && problem.Code != step.refused || err == nil && out.Do != step.do {
				t.Errorf("order %d: %+v, %v", i, out, err)
			}
			if step.do == run.Applied && !o.Abort && (c.Mesh.Migration.ID != map[bool]string{true: "1", false: "6"}[i < 5] || opts == nil && !out.Asked) {
				t.Errorf("order %d: %+v, of the move %s", i, out, c.Mesh.Migration.ID)
			}
		}
		if g := c.Mesh.Migration; g.ID != "6" || g.To != intents.MigrateAny {
			t.Errorf("the move is %+v", g)
		}
	}
}

// The ids of retries are among the commands of a run: a command that has such an id would send the
// run's calls again, and swallow the retry of a later dead letter.
func TestACommandIsNoRetry(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"retry.10", "retry.", "retry.x"} {
		c := begun()
		out, err := run.Command(c, &run.Order{Envelope: id, Intent: intents.TaskSteer, From: "human.ann", Text: "faster"}, run.Here, noon)
		var problem *envelope.Error
		if !errors.As(err, &problem) || problem.Code != envelope.CodeRequires || len(c.Mesh.Commands)+len(c.Mesh.Steering) > 0 {
			t.Errorf("%s: %+v, %v, commands %q", id, out, err, c.Mesh.Commands)
		}
		n := state.Noted{ID: id, Intent: intents.TaskSteer, From: "human.ann", Text: "faster", At: noon} // of an earlier release
		c = state.New("agent.x", "task-0001", "")
		c.Mesh.Noted = []state.Noted{n}
		got := run.Claim(c, run.Mine, run.Message{Worker: "a", Seq: 7}, run.Terms{Now: noon, MaxClaims: 3, MayCommand: func(state.Noted) bool { return true }})
		if len(c.Mesh.Commands)+len(c.Mesh.Steering) > 0 || !slices.Equal(got.Refused, []state.Noted{n}) {
			t.Errorf("%s, noted: commands %q, refused %+v", id, c.Mesh.Commands, got.Refused)
		}
	}
}
