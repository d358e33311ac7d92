package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// tally counts the tasks of each entity, and holds the entities that have a gate.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
	gates  map[string]chan struct{}
	ended  chan error // the cause with which a held entity was cancelled
}

func newTally(gated ...string) *tally {
	c := &tally{counts: map[string]int{}, gates: map[string]chan struct{}{}, ended: make(chan error, 16)}
	for _, e := range gated {
		c.gates[e] = make(chan struct{})
	}
	return c
}

func (c *tally) open(entity string) { close(c.gates[entity]) }

func (c *tally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Handle answers with the entity's last letter as a number.
func (c *tally) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	to := task.Envelope.To
	c.mu.Lock()
	c.counts[to]++
	c.mu.Unlock()
	if gate := c.gates[to]; gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			c.ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	}
	return fmt.Appendf(nil, `{"n":%d}`, to[len(to)-1]-'a'), nil
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(longest); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// The run of a swarm has its members' outcomes in the member that the specification defines.
func TestADurableSwarmIsInItsCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally()
	r.serve(true, c, "agent.a", "agent.b")
	r.serve(true, says("!E_TOOL"), "agent.c")
	r.serve(true, team(plan(t, three("]"), ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	if got := r.result(task); got.swarm.MergedBy != "default" || got.swarm.Answered != 2 || got.swarm.Failed != 1 {
		t.Errorf("%+v", got)
	}
	cp := r.checkpoint(task)
	var states []string
	for _, s := range cp.Doc.SubagentStates {
		states = append(states, fmt.Sprintf("%s %s %s", s.Alias, s.Status, s.Output))
	}
	slices.Sort(states)
	if want := []string{`a completed {"n":0}`, `b completed {"n":1}`, `c failed `}; !slices.Equal(states, want) {
		t.Errorf("subagent_states %q, want %q", states, want)
	}
	p := cp.Doc.PipelinePosition
	if p == nil || p.CurrentStep != "swarm" || len(p.CompletedSteps) != 3 {
		t.Errorf("pipeline_position %+v", p)
	}
	if cp.Doc.Status != aaif.RunCompleted || len(cp.Mesh.Calls) > 0 {
		t.Errorf("status %s, open calls %v", cp.Doc.Status, cp.Mesh.Calls)
	}
}

// The orchestrator is killed while one member still works. Another worker ends
// the run: it does not call members again whose outcome was committed, and of
// the others only those whose tasks cannot be found.
func TestASwarmSurvivesItsOrchestrator(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, tt := range []struct {
		name    string
		durable bool
		want    map[string]int
	}{
		{"members on the durable lane", true, map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 1, "agent.s": 1}},
		{"members on the live lane", false, map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 2, "agent.s": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).shortLeases()
			c := newTally("agent.c")
			r.serve(tt.durable, c, "agent.a", "agent.b", "agent.c", "agent.s")
			p := plan(t, three(`,{"ref":"agent.s","alias":"synthesizer"}],"consensus":{"strategy":"majority_vote"}`), extras(`"tie":"first"`))
			first := r.serve(true, team(p, nil), boss)
			task := r.submit(`{"text":"go"}`, "")
			until(t, "two outcomes are committed, and the third member works", func() bool {
				cp, err := r.client.Run(t.Context(), task.To, task.ID)
				return err == nil && len(cp.Doc.SubagentStates) == 2 && c.all()["agent.c"] == 1
			})
			first.kill()
			r.serve(true, team(p, nil), boss)
			if !tt.durable {
				until(t, "the third member is asked again", func() bool { return c.all()["agent.c"] == 2 })
			}
			c.open("agent.c")
			got := r.result(task)
			if got.payload != `{"n":18}` || got.swarm.Winner != "a" || got.swarm.MergedBy != "synthesizer" {
				t.Errorf("%+v", got)
			}
			if !maps.Equal(c.all(), tt.want) {
				t.Errorf("asked %v, want %v", c.all(), tt.want)
			}
			if e := r.checkpoint(task).Mesh.Epoch; e != 2 {
				t.Errorf("epoch %d", e)
			}
		})
	}
}

// Cancelling a swarm cancels its members, on both lanes.
func TestCancelOfASwarmReachesItsMembers(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable %v", durable), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newTally("agent.a", "agent.b", "agent.c")
			r.serve(durable, c, "agent.a", "agent.b", "agent.c")
			r.serve(true, team(plan(t, three("]"), ""), nil), boss)
			task := r.submit(`{"text":"go"}`, "")
			until(t, "all members work", func() bool { return len(c.all()) == 3 })
			if _, err := r.client.Command(r.ctx(), boss, intents.CancelTask{ID: task.ID, Durable: true}); err != nil {
				t.Fatal(err)
			}
			if got := r.result(task); got.err == nil || got.err.Code != envelope.CodeCancelled {
				t.Errorf("%+v", got)
			}
			for range 3 {
				if e := envelope.AsError(within(t, "a member is cancelled", c.ended)); e.Code != envelope.CodeCancelled {
					t.Errorf("a member ended with %v", e)
				}
			}
		})
	}
}

// A paused swarm starts nothing new, and continues when it is resumed.
func TestASwarmIsPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally("agent.a")
	r.serve(false, c, "agent.a", "agent.b", "agent.c")
	r.serve(true, team(plan(t, three("]"), extras(`"width":1`)), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	until(t, "the first member works", func() bool { return c.all()["agent.a"] == 1 })
	if _, err := r.client.Command(r.ctx(), boss, intents.PauseTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	c.open("agent.a")
	until(t, "it is paused", func() bool { return r.checkpoint(task).Doc.Status == aaif.RunPaused })
	if want := map[string]int{"agent.a": 1}; !maps.Equal(c.all(), want) {
		t.Errorf("while it is paused %v were asked, want %v", c.all(), want)
	}
	if _, err := r.client.Command(r.ctx(), boss, intents.ResumeTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	if got := r.result(task); got.swarm.Answered != 3 {
		t.Errorf("%+v", got)
	}
	if want := map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 1}; !maps.Equal(c.all(), want) {
		t.Errorf("asked %v, want %v", c.all(), want)
	}
}

// A swarm that must pause while members on both lanes work waits for those on the live lane,
// because their work would be lost. Those on the durable lane continue.
func TestASwarmThatPausesWaitsForItsLiveMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally("agent.a", "agent.b")
	r.serve(true, c, "agent.a", "agent.c")
	r.serve(false, c, "agent.b")
	r.serve(true, team(plan(t, three("]"), ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	until(t, "all members work", func() bool { return len(c.all()) == 3 })
	if _, err := r.client.Command(r.ctx(), boss, intents.PauseTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	c.open("agent.b")
	until(t, "it is paused", func() bool { return r.checkpoint(task).Doc.Status == aaif.RunPaused })
	if !slices.ContainsFunc(r.checkpoint(task).Doc.SubagentStates, func(s aaif.SubagentState) bool { return s.Alias == "b" }) {
		t.Error("the outcome of the live member is not stored")
	}
	if _, err := r.client.Command(r.ctx(), boss, intents.ResumeTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	c.open("agent.a")
	if got := r.result(task); got.swarm.Answered != 3 {
		t.Errorf("%+v", got)
	}
	if want := map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 1}; !maps.Equal(c.all(), want) {
		t.Errorf("asked %v, want %v", c.all(), want)
	}
}

// The answer of a live member that arrives while a swarm waits for another one before it pauses is stored
// at once: otherwise its work would be lost with the worker.
func TestASwarmThatIsToPauseStoresTheAnswersOfLiveMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally("agent.a", "agent.b")
	r.serve(false, c, "agent.a", "agent.b")
	block := `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}]}`
	r.serve(true, team(plan(t, block, ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	until(t, "all members work", func() bool { return len(c.all()) == 2 })
	if _, err := r.client.Command(r.ctx(), boss, intents.PauseTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	c.open("agent.a")
	until(t, "the first answer is stored", func() bool { return len(r.checkpoint(task).Doc.SubagentStates) == 1 })
	if status := r.checkpoint(task).Doc.Status; state.Parked(status) {
		t.Errorf("the run is %s while a live member works", status)
	}
	c.open("agent.b")
	until(t, "it is paused", func() bool { return r.checkpoint(task).Doc.Status == aaif.RunPaused })
	if _, err := r.client.Command(r.ctx(), boss, intents.ResumeTask{Target: intents.Target{ID: task.ID, Durable: true}}); err != nil {
		t.Fatal(err)
	}
	if got := r.result(task); got.swarm.Answered != 2 {
		t.Errorf("%+v", got)
	}
	if want := map[string]int{"agent.a": 1, "agent.b": 1}; !maps.Equal(c.all(), want) {
		t.Errorf("asked %v, want %v", c.all(), want)
	}
}

// once answers the first task of each entity with the given answer, and later ones as its tally
// does.
func once(c *tally, first map[string]string) mesh.HandlerFunc {
	return func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		payload, err := c.Handle(ctx, task)
		if says := first[task.Envelope.To]; says != "" && c.all()[task.Envelope.To] == 1 {
			return nil, envelope.Errorf(envelope.Code(says), "the first time it fails")
		}
		return payload, err
	}
}

// A retry of a whole swarm calls the failed members again, but only if not all members had ended:
// after that the agreement must not change.
func TestASwarmThatIsTriedAgain(t *testing.T) {
	t.Parallel()
	const never = `"max_retries":0`
	for _, tt := range []struct {
		name  string
		fails map[string]string
		root  string
		want  string
		asked map[string]int
	}{
		{"too few have answered", map[string]string{"agent.a": "E_TOOL", "agent.c": "E_UNAVAILABLE"}, extras(`"min_results":3,"width":1,"steps":{"a":{` + never + `},"c":{` + never + `}},"tie":"first"`), "0 ", map[string]int{"agent.a": 2, "agent.b": 1, "agent.c": 2, "agent.s": 1}},
		{"the synthesizer has failed", map[string]string{"agent.a": "E_TOOL", "agent.s": "E_UNAVAILABLE"}, extras(`"steps":{"s":{` + never + `}},"synthesizer":"s","tie":"first"`), "1 a E_TOOL", map[string]int{"agent.a": 1, "agent.b": 1, "agent.c": 1, "agent.s": 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newTally()
			r.serve(false, once(c, tt.fails), "agent.a", "agent.b", "agent.c", "agent.s")
			r.retries = 1
			r.serve(true, team(plan(t, three(`,{"ref":"agent.s","alias":"s"}],"consensus":{"strategy":"majority_vote"}`), tt.root), nil), boss)
			got := r.result(r.submit(`{"text":"go"}`, ""))
			if have := fmt.Sprintf("%d %s", got.swarm.Failed, failures(got.swarm.Failures)); have != tt.want {
				t.Errorf("failed %s, want %s: %+v", have, tt.want, got)
			}
			if !maps.Equal(c.all(), tt.asked) {
				t.Errorf("asked %v, want %v", c.all(), tt.asked)
			}
		})
	}
}

// A member may be a swarm itself.
func TestSwarmsNest(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable %v", durable), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newTally()
			var leaves, teams []string
			for i := range 3 {
				for j := range 3 {
					leaves = append(leaves, fmt.Sprintf("agent.l%d.%c", i, 'a'+(i*j)%2))
				}
				teams = append(teams, fmt.Sprintf("agent.t%d", i))
			}
			slices.Sort(leaves)
			leaves = slices.Compact(leaves)
			r.serve(durable, c, leaves...)
			for i, name := range teams {
				block := fmt.Sprintf(`{"parallel_execution":true,"subagents":[{"ref":"agent.l%d.a","alias":"x"},{"ref":"agent.l%d.%c","alias":"y"}],"consensus":{"strategy":"majority_vote"}}`, i, i, 'a'+i%2)
				r.serve(durable, team(plan(t, block, extras(`"tie":"first"`)), nil), name)
			}
			r.serve(durable, team(plan(t, `{"parallel_execution":true,"subagents":[{"ref":"agent.t0","alias":"0"},{"ref":"agent.t1","alias":"1"},{"ref":"agent.t2","alias":"2"}],"consensus":{"strategy":"majority_vote","min_votes":3}}`, ""), nil), boss)
			var got answer
			if durable {
				got = r.result(r.submit(`{"text":"go"}`, ""))
			} else {
				got = r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
			}
			if got.payload != `{"n":0}` || got.swarm.Answered != 3 || len(got.swarm.Votes) != 1 || got.swarm.Votes[0].For != 3 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A thousand workers in one swarm.
func TestASwarmOfAThousand(t *testing.T) {
	t.Parallel()
	n := 1000
	if testing.Short() || natstest.Raced {
		n = 100
	}
	r := newRig(t)
	var entities, subagents []string
	for i := range n {
		entities = append(entities, fmt.Sprintf("agent.w%d", i))
		subagents = append(subagents, fmt.Sprintf(`{"ref":"agent.w%d","alias":"w%d","role":"worker"}`, i, i))
	}
	r.serve(false, mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		var i int
		if _, err := fmt.Sscanf(task.Envelope.To, "agent.w%d", &i); err != nil {
			return nil, err
		}
		if i%10 == 9 {
			return nil, envelope.Errorf(envelope.CodeTool, "broken")
		}
		return fmt.Appendf(nil, `{"verdict":%d,"by":%d}`, min(1, i%3), i), nil
	}), entities...)
	block := `{"parallel_execution":true,"subagents":[` + strings.Join(subagents, ",") + `],"consensus":{"strategy":"majority_vote"}}`
	r.serve(true, team(plan(t, block, extras(`"vote_on":"/verdict"`)), nil), boss)
	begun := time.Now()
	task := r.submit(`{"text":"go"}`, "")
	got := r.result(task)
	t.Logf("%d members in %v", n, time.Since(begun))
	s := got.swarm
	if got.payload != `{"by":1,"verdict":1}` || s.Answered != n*9/10 || s.Failed != n/10 || s.Votes[0].For != n*6/10 || len(s.Dissent) != n*3/10 {
		t.Errorf("%s, %d answered, %d failed, %v", got.payload, s.Answered, s.Failed, got.err)
	}
	// Only this run writes to the bucket: its revisions are the run's.
	states := jetstream.NewStates(r.js(natstest.Conn(t, r.srv)), subject.Map{})
	rec, err := states.Get(r.ctx(), state.ID{Entity: boss, Run: state.RunID(boss, task.ID)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d checkpoints, the last of %d bytes", rec.Revision, len(rec.Data))
	if most := uint64(20 + n/4); rec.Revision > most {
		t.Errorf("%d checkpoints for %d members, want at most %d", rec.Revision, n, most)
	}
}

// The time for the judges is computed once in a run: a worker that continues the run after a crash,
// with less time left, does not give a part of it to the members.
func TestTheJudgesKeepTheirTime(t *testing.T) {
	t.Parallel()
	r := newRig(t).shortLeases()
	deadlines := make(chan time.Duration, 2)
	r.serve(false, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		deadlines <- time.Until(task.Deadline)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}), "agent.a")
	p := plan(t, `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}],"consensus":{"strategy":"referee","referee_agent":"agent.r"}}`, "")
	first := r.serve(true, team(p, nil), boss)
	r.submit(`{"text":"go"}`, `{"timeout_ms":400000}`) // a quarter of this is for the referee
	if got := within(t, "the member's task", deadlines); got > 300*time.Second {
		t.Errorf("the member has %s", got)
	}
	first.kill()
	r.timeout = 120 * time.Second // as if most of the time had passed
	r.serve(true, team(p, nil), boss)
	if got := within(t, "the member's task after the crash", deadlines); got > 21*time.Second {
		t.Errorf("the member has %s of the 120 s that are left, and the referee less than 100 s", got)
	}
}

// The run of a swarm is resumed late, when more than half of its members' time has passed. It waits
// for a working member as long as there is time.
func TestASwarmThatGoesOnLateWaitsForItsMembers(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newRig(t).shortLeases()
	c := newTally("agent.c")
	r.serve(true, c, "agent.a", "agent.b", "agent.c", "agent.s")
	p := plan(t, three(`,{"ref":"agent.s","alias":"synthesizer"}]`), "") // ten minutes are reserved for the synthesizer
	first := r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, `{"timeout_ms":7200000}`)
	until(t, "two outcomes are committed, and the third member works", func() bool {
		cp, err := r.client.Run(t.Context(), task.To, task.ID)
		return err == nil && len(cp.Doc.SubagentStates) == 2 && c.all()["agent.c"] == 1
	})
	for range 3 {
		r.told(intents.RunStepStarted)
	}
	first.kill()
	states := jetstream.NewStates(r.js(natstest.Conn(t, r.srv)), subject.Map{})
	rec, err := states.Get(r.ctx(), state.ID{Entity: boss, Run: state.RunID(boss, task.ID)})
	if err != nil {
		t.Fatal(err)
	}
	cp, err := state.Codec{}.Read(rec)
	if err != nil || len(cp.Mesh.Calls) == 0 {
		t.Fatalf("calls %v, %v", cp.Mesh.Calls, err)
	}
	for i := range cp.Mesh.Calls { // less than 110 minutes of the members' time are left
		cp.Mesh.Calls[i].At = cp.Mesh.Calls[i].At.Add(-119 * time.Minute)
	}
	data, err := state.Codec{}.Encode(cp)
	if err == nil {
		_, err = states.Put(r.ctx(), rec.ID, rec.Revision, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.serve(true, team(p, nil), boss)
	steps, _ := r.told(intents.RunStepStarted)
	c.open("agent.c")
	if got := r.result(task); got.err != nil || got.swarm.Answered != 3 {
		t.Errorf("%+v, after %q", got, steps)
	}
}
