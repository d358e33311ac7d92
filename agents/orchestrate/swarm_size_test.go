package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// If one member's output fills a message, the others' outputs are kept, and the result names the
// member whose output is missing.
func TestAnOutsizedOutputDoesNotFailTheSwarm(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	huge := `{"text":"` + strings.Repeat("x", 1_040_000) + `"}`
	for _, tt := range []struct {
		name, b string
		more    string
		root    string
		leftOut []string
		want    string // a part of the payload
	}{
		{"default", huge, "]", "", []string{"b"}, `"results":[{"alias":"a","entity":"agent.a","output":{"text":"one"}},{"alias":"b","entity":"agent.b"},{"alias":"c","entity":"agent.c","output":{"v":3}}]`},
		{"no room for the text", `{"text":"` + strings.Repeat("y", 500_000) + `"}`, "]", "", nil, `"output":{"text":"yyyy`},
		{"a synthesizer is sent too much", huge, `,{"ref":"agent.s","alias":"sum"}]`, extras(`"synthesizer":"sum"`), nil, "the largest outputs are of b (1040011 bytes), c (20011 bytes), a (14 bytes)"},
		{"a referee is sent too much", huge, `],"consensus":{"strategy":"referee","referee_agent":"agent.s"}`, "", nil, "does not fit one message; the largest outputs are of b (1040011 bytes), c (20011 bytes), a (14 bytes)"},
		{"synthesizer that may be skipped", huge, `,{"ref":"agent.s","alias":"sum"}]`, extras(`"synthesizer":"sum","steps":{"sum":{"on_error":"skip"}}`), []string{"b"}, `{"alias":"b","entity":"agent.b"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, durable := range []bool{false, true} {
				r := newRig(t)
				r.serve(durable, says(`{"text":"one"}`), "agent.a")
				r.serve(durable, says(tt.b), "agent.b")
				c := `{"v":3}`
				if strings.Contains(tt.name, "synthesizer") || strings.Contains(tt.name, "referee") {
					c = `{"text":"` + strings.Repeat("z", 20_000) + `"}`
				}
				r.serve(durable, says(c), "agent.c")
				r.serve(durable, says(`{"v":9}`), "agent.s")
				r.serve(durable, team(plan(t, three(tt.more), tt.root), nil), boss)
				var got answer
				if durable {
					got = r.result(r.submit(`{"text":"go"}`, `{"timeout_ms":60000}`))
				} else {
					got = r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
				}
				said, failed := got.payload, got.err != nil
				if failed {
					said = string(got.err.Code) + " " + got.err.Message
				}
				if !strings.Contains(said, tt.want) || got.swarm.Answered != 3 || !slices.Equal(got.swarm.LeftOut, tt.leftOut) || got.swarm.Truncated != (failed || tt.leftOut != nil) {
					t.Errorf("durable %v: left out %v, truncated %v, %.400s", durable, got.swarm.LeftOut, got.swarm.Truncated, said)
				}
			}
		})
	}
}

// An output that does not fit an evaluator's task gets no score, and the error names its member;
// the other outputs get theirs.
func TestAnOutputTooLargeToBeScoredIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says(`{"v":1}`), "agent.a")
	r.serve(false, says(`{"text":"`+strings.Repeat("x", 1_040_000)+`"}`), "agent.b")
	r.serve(false, says(`{"v":3}`), "agent.c")
	r.serve(false, says(`{"score":1}`), "agent.s")
	r.serve(false, team(plan(t, three(`,{"ref":"agent.s","alias":"judge","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}`), extras(`"tie":"first"`)), nil), boss)
	got := r.ask(`{"text":"`+strings.Repeat("y", 20_000)+`"}`, `{"timeout_ms":60000}`)
	if got.payload != `{"v":1}` || len(got.swarm.Scores) != 3 {
		t.Fatalf("%+v", got)
	}
	last := got.swarm.Scores[2]
	if last.Score != nil || len(last.Judgements) != 1 || !strings.HasPrefix(last.Judgements[0].Error, "the output of b has 1040011 bytes and does not fit one message") {
		t.Errorf("of b: %+v", last)
	}
}

// The value of a vote is already in the result, in the results or in the synthesizer's task, so it
// is left out of the record before the message becomes too large.
func TestLargeOutputsThatWereVotedOnFitTheMessage(t *testing.T) {
	t.Parallel()
	text := func(letter string, n int) string { return `{"text":"` + strings.Repeat(letter, n) + `"}` }
	const vote = `],"consensus":{"strategy":"majority_vote"}`
	for _, tt := range []struct {
		name      string
		a, b, c   string
		more      string
		root      string
		want      string // the beginning of the payload, or "!CODE"
		votes     string // the voters, and whether the values are present
		truncated bool
	}{
		{"all agree", text("x", 600_000), text("x", 600_000), text("x", 600_000), vote, "", text("x", 600_000), "a,b,c -", true},
		{"two are larger than what is kept", text("x", 300_000), text("y", 300_000), `{"v":1}`, vote, "", "!E_SWARM", "a -; b -; c +", true},
		{"a synthesizer", text("x", 300_000), text("x", 300_000), text("x", 300_000), `,{"ref":"agent.s","alias":"sum"}` + vote, extras(`"synthesizer":"sum"`), `{"v":9}`, "a,b,c -", true},
		{"small", `{"v":1}`, `{"v":1}`, `{"v":2}`, vote, "", `{"v":1}`, "a,b +; c +", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for i, said := range []string{tt.a, tt.b, tt.c} {
				r.serve(false, says(said), "agent."+string(rune('a'+i)))
			}
			r.serve(false, says(`{"v":9}`), "agent.s")
			r.serve(false, team(plan(t, three(tt.more), tt.root), nil), boss)
			got := r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
			said := got.payload
			if got.err != nil {
				said = "!" + string(got.err.Code)
			}
			var votes []string
			for _, v := range got.swarm.Votes {
				there := " -"
				if v.Value != nil {
					there = " +"
				}
				votes = append(votes, strings.Join(v.By, ",")+there)
			}
			if said != tt.want || strings.Join(votes, "; ") != tt.votes || got.swarm.Truncated != tt.truncated {
				t.Errorf("%.80s, votes %q, truncated %v, %v", said, votes, got.swarm.Truncated, got.err)
			}
		})
	}
}

// An output that the swarm drops for its size does not use up the room for later members.
func TestAnOutputThatIsDroppedTakesNoRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(false, says(`{"text":"`+strings.Repeat("x", 200)+`"}`), "agent.a")
	r.serve(false, says(`{"v":1}`), "agent.b", "agent.c")
	block := strings.Replace(three("]"), `"parallel_execution":true,`, "", 1) // one after the other
	r.serve(false, teamWith(plan(t, block, ""), nil, orchestrate.Options{MaxOutputs: 100}), boss)
	if got := r.ask(`{"text":"go"}`, ""); got.err != nil || got.swarm.Answered != 2 || got.swarm.Failed != 1 {
		t.Errorf("%d answered, %d failed: %s, %v", got.swarm.Answered, got.swarm.Failed, got.payload, got.err)
	}
}

// nested is an object that nests so many levels.
func nested(levels int) string {
	return `{"v":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

// many is an object of so many values.
func many(values int) string { return `{"v":[` + strings.Repeat("1,", values-2) + `1]}` }

// An output that is valid, but would not be inside the swarm's result, is left out of it: an envelope
// nests 64 levels and has 250,000 values.
func TestAnOutputThatNoResultCanContainDoesNotFailTheSwarm(t *testing.T) {
	t.Parallel()
	const vote = `],"consensus":{"strategy":"majority_vote"}`
	for _, tt := range []struct {
		name, b, c string
		more       string
		want       string // a part of the payload
		leftOut    []string
		truncated  bool
	}{
		{"the loser of a vote is deep", `{"v":1}`, nested(60), vote, `{"v":1}`, nil, true},
		{"the loser of a vote is as deep as it may be", `{"v":1}`, nested(59), vote, `{"v":1}`, nil, false},
		{"the loser of a vote has many values", many(150_000), many(100_000), vote, `{"v":[1,`, nil, true},
		{"one of a merge is deep", `{"v":2}`, nested(61), "]", `{"alias":"b","entity":"agent.b","output":{"v":2}},{"alias":"c","entity":"agent.c"}]`, []string{"c"}, true},
		{"one of a merge is deepest", `{"v":2}`, nested(63), "]", `{"alias":"b","entity":"agent.b","output":{"v":2}},{"alias":"c","entity":"agent.c"}]`, []string{"c"}, true},
		{"one of a merge is as deep as it may be", `{"v":2}`, nested(60), "]", `{"alias":"c","entity":"agent.c","output":{"v":[[`, nil, false},
		{"some of a merge have many values", many(150_000), many(120_000), "]", `{"alias":"b","entity":"agent.b"},{"alias":"c","entity":"agent.c","output":{"v":[1,`, []string{"b"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, durable := range []bool{false, true} {
				r := newRig(t)
				a := `{"v":1}`
				if tt.more == vote {
					a = tt.b
				}
				r.serve(durable, says(a), "agent.a")
				r.serve(durable, says(tt.b), "agent.b")
				r.serve(durable, says(tt.c), "agent.c")
				r.serve(durable, team(plan(t, three(tt.more), ""), nil), boss)
				var got answer
				if durable {
					got = r.result(r.submit(`{"text":"go"}`, `{"timeout_ms":60000}`))
				} else {
					got = r.ask(`{"text":"go"}`, `{"timeout_ms":60000}`)
				}
				if !strings.Contains(got.payload, tt.want) || !slices.Equal(got.swarm.LeftOut, tt.leftOut) || got.swarm.Truncated != tt.truncated {
					t.Errorf("durable %v: left out %v, truncated %v, %.400s, %v", durable, got.swarm.LeftOut, got.swarm.Truncated, got.payload, got.err)
				}
			}
		})
	}
}

// Errors count as outputs do: one that takes too much of the room is stored without its details, and with the
// beginning of its message.
func TestAnErrorThatIsTooLargeIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		e := envelope.Errorf(envelope.CodeTool, "%s", strings.Repeat("x", 5_000))
		e.Details = []envelope.Member{{Name: "more", Value: json.RawMessage(`"` + strings.Repeat("y", 5_000) + `"`)}}
		return nil, e
	}), "agent.a", "agent.b")
	r.serve(true, says(`{"v":1}`), "agent.c")
	block := strings.Replace(three("]"), `"parallel_execution":true,`, "", 1) // one after the other
	for most, want := range map[int64][2]bool{1 << 20: {true, true}, 10_200 * 16: {true, false}, 1_000: {}} {
		r.serve(true, teamWith(plan(t, block, ""), nil, orchestrate.Options{MaxOutputs: most}), fmt.Sprintf("agent.boss%d", most))
		task := r.submitted(taskFor(fmt.Sprintf("agent.boss%d", most), `{"text":"go"}`, ""))
		if got := r.result(task); got.err != nil || got.swarm.Answered != 1 || got.swarm.Failed != 2 {
			t.Fatalf("%+v", got)
		}
		var position struct{ Outcomes []orchestrate.Outcome }
		if err := json.Unmarshal(r.checkpoint(task).Mesh.Plan, &position); err != nil || len(position.Outcomes) != 3 {
			t.Fatalf("%d outcomes, %v", len(position.Outcomes), err)
		}
		for i, o := range position.Outcomes[:2] {
			if whole := len(o.Err.Details) == 1 && len(o.Err.Message) == 5_000; whole != want[i] || !whole && (len(o.Err.Details) > 0 || len(o.Err.Message) > 2_000) {
				t.Errorf("MaxOutputs %d: error %d has %d details and a message of %d bytes", most, i, len(o.Err.Details), len(o.Err.Message))
			}
		}
	}
}
