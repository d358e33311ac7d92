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

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// three returns a block with subagents a, b, c and further members.
func three(more string) string {
	return `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"},{"ref":"agent.c","alias":"c"}` + more + `}`
}

func aliases(rs []orchestrate.MemberResult) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Alias)
	}
	return strings.Join(out, ",")
}

func failures(fs []orchestrate.Failure) string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Alias+" "+string(f.Error.Code))
	}
	return strings.Join(out, ",")
}

// The results of a swarm of three on the live lane, for different documents and answers of the
// members.
func TestSwarm(t *testing.T) {
	t.Parallel()
	const referee = `],"consensus":{"strategy":"referee","referee_agent":"judge"}`
	for _, tt := range []struct {
		name    string
		block   string
		root    string
		says    map[string]string // by the last token of the entity; a missing entity is not served
		want    string            // "!CODE words" is an error
		winner  string
		by      string
		dissent string
		failed  string
		steps   string // the end of the steps on the bus
	}{
		{
			"nobody merges: the default", three("]"), "",
			map[string]string{"a": `{"text":"one"}`, "b": `{"text":"two"}`, "c": "!E_MODEL"},
			`{"failures":[{"alias":"c","entity":"agent.c","error":{"code":"E_MODEL","message":"it failed","retryable":false}}],"results":[{"alias":"a","entity":"agent.a","output":{"text":"one"}},{"alias":"b","entity":"agent.b","output":{"text":"two"}}],"text":"a:\none\n\nb:\ntwo"}`,
			"", "default", "", "", "merged ",
		},
		{
			"a synthesizer by its alias", three(`,{"ref":"agent.s","alias":"synthesizer"}]`), "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": "!E_MODEL", "s": `{"v":3}`},
			`{"v":3}`, "", "synthesizer", "", "c E_MODEL", "merged ",
		},
		{
			"the majority", three(`],"consensus":{"strategy":"majority_vote"}`), "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2.0}`, "c": `{"v":2}`},
			`{"v":2.0}`, "b", "", "a", "", "voted ",
		},
		{
			"the majority, of numbers beyond a double", three(`],"consensus":{"strategy":"majority_vote"}`), "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":9007199254740993}`, "c": `{"v":9007199254740993}`},
			`{"v":9007199254740993}`, "b", "", "a", "", "voted ",
		},
		{
			"the majority of a part, and a synthesizer", three(`,{"ref":"agent.s","alias":"sum"}],"consensus":{"strategy":"majority_vote","min_votes":2}`), extras(`"vote_on":"/level","synthesizer":"sum"`),
			map[string]string{"a": `{"level":"high","why":"x"}`, "b": `{"level":"low"}`, "c": `{"level":"high","why":"y"}`, "s": `{"merged":true}`},
			`{"merged":true}`, "a", "sum", "b", "", "merged ",
		},
		{
			"too few votes", three(`],"consensus":{"strategy":"majority_vote","min_votes":3}`), "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": `{"v":2}`},
			`!E_SWARM no majority: 2 of 3 votes agree, and min_votes is 3`, "", "", "", "", "voted ",
		},
		{
			"a tie", three(`],"consensus":{"strategy":"majority_vote"}`), "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": "!E_MODEL"},
			`!E_SWARM no majority: 2 answers have 1 of 2 votes each`, "", "", "", "c E_MODEL", "voted ",
		},
		{
			"a tie, to the first", three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"tie":"first"`),
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": `{"v":3}`},
			`{"v":1}`, "a", "", "b,c", "", "voted ",
		},
		{
			"a tie, merged", three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"tie":"merge"`),
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": "!E_MODEL"},
			`{"failures":[{"alias":"c","entity":"agent.c","error":{"code":"E_MODEL","message":"it failed","retryable":false}}],"results":[{"alias":"a","entity":"agent.a","output":{"v":1}},{"alias":"b","entity":"agent.b","output":{"v":2}}]}`,
			"", "default", "", "", "merged ",
		},
		{
			"the best by two evaluators", three(`,{"ref":"agent.j","alias":"j","role":"evaluator"},{"ref":"agent.k","alias":"k","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}`), "",
			map[string]string{"a": `{"n":1}`, "b": `{"n":5}`, "c": `{"n":3}`, "j": "score", "k": `{"text":"I cannot say"}`},
			`{"n":5}`, "b", "", "a,c", "", "voted ",
		},
		{
			"no evaluator can say", three(`,{"ref":"agent.k","alias":"k","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}`), "",
			map[string]string{"a": `{"n":1}`, "b": `{"n":5}`, "c": `{"n":3}`, "k": `{"text":"I cannot say"}`},
			`!E_SWARM no evaluator has given a usable score; k: the answer has no member "score"`, "", "", "", "", "voted ",
		},
		{
			"the referee chooses", three(`,{"ref":"agent.r","alias":"judge"` + "}" + referee), "",
			map[string]string{"a": `{"n":1}`, "b": `{"n":5}`, "c": "!E_MODEL", "r": "choose"},
			`{"n":5}`, "b", "", "a", "c E_MODEL", "voted ",
		},
		{
			"the referee chooses, in a strict form", three(`,{"ref":"agent.r","alias":"judge"` + "}" + referee), "",
			map[string]string{"a": `{"n":1}`, "b": "!E_MODEL", "c": "!E_MODEL", "r": `{"choice":1,"output":null}`},
			`{"n":1}`, "a", "", "", "b E_MODEL,c E_MODEL", "voted ",
		},
		{
			"the referee has an answer of its own", three(`,{"ref":"agent.r","alias":"judge"` + "}" + referee), "",
			map[string]string{"a": `{"n":1}`, "b": `{"n":5}`, "c": `{"n":1}`, "r": `{"output":{"n":7},"reason":"both are wrong"}`},
			`{"n":7}`, "", "", "a,b,c", "", "voted ",
		},
		{
			"the referee cannot be understood", three(`,{"ref":"agent.r","alias":"judge"` + "}" + referee), "",
			map[string]string{"a": `{"n":1}`, "b": `{"n":5}`, "c": `{"n":1}`, "r": `{"choice":3}`},
			`!E_SWARM the referee judge gave no decision: choice is not one of 1 to 2`, "", "", "", "", "voted ",
		},
		{
			"the referee chats", three(`,{"ref":"agent.r","alias":"judge"` + "}" + referee), "",
			map[string]string{"a": `{"n":1}`, "b": `{"n":5}`, "c": `{"n":1}`, "r": `{"text":"I like the first"}`},
			`!E_SWARM the referee judge gave no decision: its answer names no candidate, and has no output of its own`, "", "", "", "", "voted ",
		},
		{
			"the referee says what one of them says", three(`,{"ref":"agent.r","alias":"judge"` + "}" + referee), "",
			map[string]string{"a": `{"n":1,"m":2}`, "b": `{"n":5}`, "c": `{"n":5}`, "r": `{"m":2,"n":1}`},
			`{"m":2,"n":1}`, "a", "", "b,c", "", "voted ",
		},
		{
			"all have failed", three("]"), "",
			map[string]string{"a": "!E_MODEL", "b": "!E_TOOL", "c": "!E_MODEL"},
			`!E_SWARM 3 of 3 members have failed, and min_results is 1; a: E_MODEL`, "", "", "", "a E_MODEL,b E_TOOL,c E_MODEL", "",
		},
		{
			"fewer than the document wants", three("]"), extras(`"min_results":2`),
			map[string]string{"a": "!E_MODEL", "b": `{"v":1}`, "c": "!E_MODEL"},
			`!E_SWARM 2 of 3 members have failed, and min_results is 2; a: E_MODEL`, "", "", "", "a E_MODEL,c E_MODEL", "",
		},
		{
			"one that must not fail", three("]"), extras(`"steps":{"c":{"on_error":"fail"}}`),
			map[string]string{"a": `{"v":1}`, "b": `{"v":1}`, "c": "!E_TOOL"},
			`!E_TOOL step c: it failed`, "", "", "", "", "",
		},
		{
			"the fallback stands in", three(`,{"ref":"agent.f","alias":"f","role":"fallback"}],"consensus":{"strategy":"majority_vote","min_votes":3}`), extras(`"steps":{"c":{"on_error":"fallback"}}`),
			map[string]string{"a": `{"v":1}`, "b": `{"v":1}`, "c": "!E_TOOL", "f": `{"v":1}`},
			`{"v":1}`, "a", "", "", "", "voted ",
		},
		{
			"a synthesizer that fails", three(`,{"ref":"agent.s","alias":"synthesizer"}]`), "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": `{"v":2}`, "s": "!E_TOOL"},
			`!E_TOOL step synthesizer: it failed`, "", "", "", "", "",
		},
		{
			"a synthesizer that may be skipped", three(`,{"ref":"agent.s","alias":"synthesizer"}],"consensus":{"strategy":"majority_vote"}`), extras(`"steps":{"synthesizer":{"on_error":"skip"}}`),
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": `{"v":2}`, "s": "!E_TOOL"},
			`{"v":2}`, "b", "", "a", "", "voted ",
		},
		{
			"those whose condition holds", `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a","when":{"lang":"jmespath","expr":"lang=='go'"}},{"ref":"agent.b","alias":"b","when":{"lang":"jmespath","expr":"lang=='c'"}},{"ref":"agent.c","alias":"c"}],"consensus":{"strategy":"majority_vote"}}`, "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": `{"v":1}`},
			`{"v":1}`, "a", "", "", "", "voted ",
		},
		{
			"one after the other without a model", `{"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}]}`, "",
			map[string]string{"a": `{"v":1}`, "b": `{"v":2}`},
			`{"failures":[],"results":[{"alias":"a","entity":"agent.a","output":{"v":1}},{"alias":"b","entity":"agent.b","output":{"v":2}}]}`,
			"", "default", "", "", "merged ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for name, what := range tt.says {
				r.serve(false, judge(what), "agent."+name)
			}
			r.serve(false, team(plan(t, strings.TrimSuffix(tt.block, "}")+"}", tt.root), nil), boss)
			got := r.ask(`{"text":"go","lang":"go"}`, `{"timeout_ms":60000}`)
			payload := got.payload
			if got.err != nil {
				payload = fmt.Sprintf("!%s %s", got.err.Code, got.err.Message)
			}
			if payload != tt.want {
				t.Errorf("result %s\nwant   %s", payload, tt.want)
			}
			s := got.swarm
			if s.Winner != tt.winner || s.MergedBy != tt.by || aliases(s.Dissent) != tt.dissent || failures(s.Failures) != tt.failed {
				t.Errorf("winner %q, merged by %q, dissent %s, failures %s; want %q, %q, %s, %s", s.Winner, s.MergedBy, aliases(s.Dissent), failures(s.Failures), tt.winner, tt.by, tt.dissent, tt.failed)
			}
			if tt.steps != "" {
				intent := map[string]string{"voted ": intents.RunVoted, "merged ": intents.RunMerged}[tt.steps]
				if _, last := r.told(intent); last.Pattern != "swarm" || last.Winner != s.Winner && intent == intents.RunVoted {
					t.Errorf("told %+v", last)
				}
			}
		})
	}
}

// The input of a swarm's member may be mapped, but not from the answers of
// other members, unless they work one after the other.
func TestInputsOfASwarm(t *testing.T) {
	t.Parallel()
	echo := mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) { return task.Envelope.Payload, nil })
	const members = `"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}]`
	for block, want := range map[string]string{
		`{` + members + `}`:                           `{"asked":"go","first":"go"}`,
		`{"parallel_execution":true,` + members + `}`: `{"asked":"go","first":null}`,
	} {
		r := newRig(t)
		r.serve(false, echo, "agent.a", "agent.b")
		r.serve(false, team(plan(t, block, extras(`"width":1,"steps":{"b":{"input":{"lang":"jmespath","expr":"{asked: task_input.text, first: outputs.a.text}"}}}`)), nil), boss)
		got := r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
		if !strings.Contains(got.payload, `{"alias":"b","entity":"agent.b","output":`+want+`}`) {
			t.Errorf("%s: %s, %v", block, got.payload, got.err)
		}
	}
}

// The outputs of members are bounded in memory.
func TestOutputsOfASwarmAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says(`{"text":"0123456789"}`), "agent.a", "agent.b", "agent.c")
	r.serve(false, teamWith(plan(t, three("]"), extras(`"width":1`)), nil, orchestrate.Options{MaxOutputs: 50}), boss)
	got := r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
	if got.swarm.Answered != 2 || !strings.Contains(got.payload, "E_TOO_LARGE") || !strings.Contains(got.payload, "more than 50 bytes together") {
		t.Errorf("%+v", got)
	}
}

// If no member's condition holds, the fallback does the swarm's work.
func TestTheFallbackOfASwarm(t *testing.T) {
	t.Parallel()
	const block = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a","when":{"lang":"never"}}%s],"consensus":{"strategy":"first_success"}}`
	for more, want := range map[string]string{
		"": "!E_NO_ROUTE no subagent takes this task: no condition holds, and there is no fallback",
		`,{"ref":"agent.f","alias":"f","role":"fallback"}`: `{"v":7}`,
	} {
		r := newRig(t)
		r.serve(false, says(`{"v":7}`), "agent.f")
		r.serve(false, team(plan(t, fmt.Sprintf(block, more), ""), nil), boss)
		got := r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
		if got.err != nil {
			got.payload = fmt.Sprintf("!%s %s", got.err.Code, got.err.Message)
		}
		if got.payload != want {
			t.Errorf("%s, want %s", got.payload, want)
		}
	}
}

// judge returns a handler that always gives the same answer, or, for "score" and "choose", judges
// by the member n of outputs: a higher one is better.
func judge(what string) mesh.HandlerFunc {
	switch what {
	case "score":
		return func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			var in struct{ Candidate struct{ N float64 } }
			if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
				return nil, err
			}
			return fmt.Appendf(nil, `{"score":%g,"reason":"so"}`, in.Candidate.N/10), nil
		}
	case "choose":
		return func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			var in struct {
				Candidates []struct {
					N      int
					Output struct{ N float64 }
				}
			}
			if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
				return nil, err
			}
			best := slices.MaxFunc(in.Candidates, func(a, b struct {
				N      int
				Output struct{ N float64 }
			}) int {
				return int(a.Output.N - b.Output.N)
			})
			return fmt.Appendf(nil, `{"choice":%d}`, best.N), nil
		}
	}
	return says(what)
}

// Members that never answer, answer too late, or have no worker do not block
// the result: each fails when its time is over, and is cancelled.
func TestSwarmWithSlowAndDeadMembers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	cancelled := make(chan error, 1)
	r.serve(false, says(`{"v":1}`), "agent.a")
	r.serve(false, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}), "agent.b")
	r.serve(false, team(plan(t, three(`],"consensus":{"strategy":"majority_vote"}`), extras(`"steps":{"b":{"timeout_seconds":0.3,"max_retries":0},"c":{"max_retries":0,"timeout_seconds":10}}`)), nil), boss)
	got := r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
	if got.payload != `{"v":1}` || failures(got.swarm.Failures) != "b E_TIMEOUT,c E_NO_RESPONDERS" {
		t.Errorf("%s, failures %s, %v", got.payload, failures(got.swarm.Failures), got.err)
	}
	within(t, "the slow member is stopped", cancelled)
}

func TestWhatBecomesOfASwarmIsToldWithAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says(`{"v":1}`), "agent.a")
	r.serve(false, says(`{"v":2}`), "agent.b")
	r.serve(false, says("!E_MODEL"), "agent.c", "agent.x")
	const two = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}`
	for i, tt := range []struct{ name, block, root, then string }{
		{"a member", three("]"), "", "skip"},
		{"a member without whom it fails", three("]"), extras(`"steps":{"c":{"on_error":"fail"}}`), "fail"},
		{"a synthesizer", two + `,{"ref":"agent.x","alias":"synthesizer"}]}`, "", "fail"},
		{"a synthesizer that may fail", two + `,{"ref":"agent.x","alias":"synthesizer"}]}`, extras(`"steps":{"synthesizer":{"on_error":"skip"}}`), "skip"},
		{"an evaluator", two + `,{"ref":"agent.x","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}}`, "", "skip"},
		{"the referee", two + `],"consensus":{"strategy":"referee","referee_agent":"agent.x"}}`, "", "fail"},
	} {
		entity := fmt.Sprintf("%s_%d", boss, i)
		r.serve(false, team(plan(t, tt.block, tt.root), nil), entity)
		_, _ = r.client.Send(r.ctx(), taskFor(entity, `{"text":"go"}`, ""), mesh.SendOptions{}) // some fail
		step, told := "", intents.StepEvent{}
		for step != entity {
			_, told = r.told(intents.RunStepFailed)
			step = r.last.From
		}
		if told.Then != tt.then {
			t.Errorf("%s: then %q, want %q", tt.name, told.Then, tt.then)
		}
	}
}

// Members without timeouts share the task's time, without the part that is
// reserved for the result.
func TestSwarmKeepsTimeForItsResult(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	r.serve(false, says(`{"v":1}`), "agent.a")
	r.serve(false, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}), "agent.b", "agent.c")
	r.serve(false, says(`{"merged":true}`), "agent.s")
	r.serve(false, team(plan(t, three(`,{"ref":"agent.s","alias":"synthesizer"}]`), ""), nil), boss)
	got := r.ask(`{"text":"go"}`, `{"timeout_ms":8000}`)
	if got.payload != `{"merged":true}` || failures(got.swarm.Failures) != "b E_TIMEOUT,c E_TIMEOUT" {
		t.Errorf("%s, failures %s, %v", got.payload, failures(got.swarm.Failures), got.err)
	}
}

func TestFirstSuccessCancelsTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cancelled, waiting := make(chan *envelope.Error, 2), make(chan struct{}, 2)
	r.serve(false, mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		waiting <- struct{}{}
		<-ctx.Done()
		cancelled <- envelope.AsError(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}), "agent.a", "agent.b")
	failed := make(chan struct{})
	r.serve(false, says("!E_TOOL"), "agent.c") // a failure is no success
	r.serve(false, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		<-waiting
		<-waiting
		<-failed
		return json.RawMessage(`{"v":4}`), nil
	}), "agent.d")
	r.serve(false, team(plan(t, three(`,{"ref":"agent.d","alias":"d"}],"consensus":{"strategy":"first_success"}`), ""), nil), boss)
	got := make(chan answer, 1)
	go func() { got <- r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`) }()
	before, _ := r.told(intents.RunStepFailed)
	close(failed)
	if a := within(t, "the answer", got); a.payload != `{"v":4}` || a.swarm.Winner != "d" || !slices.Equal(a.swarm.Cancelled, []string{"a", "b"}) || failures(a.swarm.Failures) != "c E_TOOL" {
		t.Errorf("%s, %+v, %v", a.payload, a.swarm, a.err)
	}
	for range 2 {
		if e := within(t, "the others are cancelled", cancelled); e.Code != envelope.CodeCancelled {
			t.Errorf("one of the others ended with %v", e)
		}
	}
	steps, _ := r.told(intents.RunVoted)
	steps = append(before, steps...)
	for _, want := range []string{"step_finished d", "step_failed a", "step_failed b", "step_failed c"} {
		if !slices.Contains(steps, want) {
			t.Errorf("%s was not told, only %q", want, steps)
		}
	}
}

// Judges and the synthesizer get their payloads as docs/orchestration.md specifies them, not in the
// form of a template. Members get theirs in that form.
func TestTasksOfJudgesAndSynthesizersAreNotShaped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, more string }{
		{"an evaluator", `,{"ref":"agent.j","alias":"j","role":"evaluator"},{"ref":"agent.s","alias":"synthesizer"}],"consensus":{"strategy":"best_of_n"}`},
		{"a referee", `,{"ref":"agent.s","alias":"synthesizer"}],"consensus":{"strategy":"referee","referee_agent":"agent.j"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(false, newTally(), "agent.a", "agent.b", "agent.c")
			r.serve(false, says(`{"score":1,"choice":1}`), "agent.j")
			r.serve(false, says(`{"v":9}`), "agent.s")
			var mu sync.Mutex
			shaped := map[string]bool{}
			shape := func(_ context.Context, entity string, _ json.RawMessage) (string, json.RawMessage, bool) {
				mu.Lock()
				defer mu.Unlock()
				shaped[entity] = true
				return "", nil, false
			}
			r.serve(false, teamWith(plan(t, three(tt.more), ""), nil, orchestrate.Options{Shape: shape}), boss)
			if got := r.ask(`{"text":"go"}`, ""); got.payload != `{"v":9}` {
				t.Errorf("%s, %v", got.payload, got.err)
			}
			mu.Lock()
			defer mu.Unlock()
			if want := map[string]bool{"agent.a": true, "agent.b": true, "agent.c": true}; !maps.Equal(shaped, want) {
				t.Errorf("shaped for %v, want %v", shaped, want)
			}
		})
	}
}
