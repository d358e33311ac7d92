package orchestrate

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDefaultMerge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   []Outcome
		want string
	}{
		{"texts", outcomes(`{"text":"one\n"}`, `{"text":"<two>"}`), `{"text":"a:\none\n\nb:\n<two>","results":[{"alias":"a","entity":"agent.a","output":{"text":"one\n"}},{"alias":"b","entity":"agent.b","output":{"text":"<two>"}}],"failures":[]}`},
		{"one text", outcomes(`{"text":"one\n"}`, "!E_MODEL"), `{"text":"one\n","results":[{"alias":"a","entity":"agent.a","output":{"text":"one\n"}}],"failures":[{"alias":"b","entity":"agent.b","error":{"code":"E_MODEL","message":"it failed","retryable":false}}]}`},
		{"not only texts", outcomes(`{"text":"one"}`, `{"text":"two","n":2}`), `{"results":[{"alias":"a","entity":"agent.a","output":{"text":"one"}},{"alias":"b","entity":"agent.b","output":{"text":"two","n":2}}],"failures":[]}`},
		{"a text that is none", outcomes(`{"text":1}`), `{"results":[{"alias":"a","entity":"agent.a","output":{"text":1}}],"failures":[]}`},
		{"nothing", nil, `{"results":[],"failures":[]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(DefaultMerge(tt.in)); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
			for i, j := 0, len(tt.in)-1; i < j; i, j = i+1, j-1 {
				tt.in[i], tt.in[j] = tt.in[j], tt.in[i]
			}
			if got := string(DefaultMerge(tt.in)); got != tt.want {
				t.Errorf("in another order of arrival: %s", got)
			}
		})
	}
}

func TestARecordKeepsDissentAndStaysSmall(t *testing.T) {
	t.Parallel()
	in := outcomes(`{"v":1}`, `{"v":2}`, `{"v":1}`, "!E_TIMEOUT", `{"v":1,"why":"x"}`)
	r := &Record{Strategy: "majority_vote", Members: 5}
	r.account(in, 0, []string{"a", "c", "e"})
	const want = `{"strategy":"majority_vote","members":5,"answered":4,"failed":1,"winner":"a","results":[{"alias":"e","entity":"agent.e","output":{"v":1,"why":"x"}}],"dissent":[{"alias":"b","entity":"agent.b","output":{"v":2}}],"failures":[{"alias":"d","entity":"agent.d","error":{"code":"E_TIMEOUT","message":"it failed","retryable":true}}]}`
	if got := string(r.JSON()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}

	var many []string
	for range 20 {
		many = append(many, `{"text":"`+strings.Repeat("x", 40<<10)+`"}`)
	}
	r = &Record{Members: 20}
	r.account(outcomes(many...), -1, nil)
	b := r.JSON()
	var back Record
	if err := json.Unmarshal(b, &back); err != nil || len(b) > maxKept+8<<10 || !back.Truncated || len(back.Results) != 20 || back.Results[0].Output == nil || back.Results[19].Output != nil {
		t.Errorf("%d bytes, truncated %v, %d results, %v", len(b), back.Truncated, len(back.Results), err)
	}
}

// A record keeps the outputs, the values of votes, and the texts of judges and errors, in this
// order, as far as they fit. The copy for a synthesizer shares no memory with it.
func TestARecordKeepsWhatFits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	made := func() *Record {
		return &Record{
			Dissent: []MemberResult{{Alias: "a", Output: json.RawMessage(`"` + long + `"`)}}, Votes: []Vote{{Value: json.RawMessage(`"` + long + `"`)}},
			Choice: &Choice{Reason: long}, Failures: []Failure{{Error: FailureError{Message: long}}},
			Scores: []Score{{Judgements: []Judgement{{Reason: long}, {Error: long}}}},
		}
	}
	for room, want := range map[int]string{-1: "", 101: "choice", 102: "output", 204: "output value", 604: "output value choice failure reason error", 304: "output value choice", 504: "output value choice failure reason"} {
		r := made()
		shared := r.abridged(1000, maxValues)
		r.trim(room, maxValues)
		var left []string
		for _, part := range []struct {
			name string
			size int
		}{
			{"output", len(r.Dissent[0].Output)}, {"value", len(r.Votes[0].Value)}, {"choice", len(r.Choice.Reason)}, {"failure", len(r.Failures[0].Error.Message)},
			{"reason", len(r.Scores[0].Judgements[0].Reason)}, {"error", len(r.Scores[0].Judgements[1].Error)},
		} {
			if part.size > 0 {
				left = append(left, part.name)
			}
		}
		if got := strings.Join(left, " "); got != want || r.Truncated != (room < 604) {
			t.Errorf("in %d bytes: %q, truncated %v; want %q", room, got, r.Truncated, want)
		}
		if shared.Truncated || shared.Votes[0].Value == nil || shared.Choice.Reason == "" || shared.Scores[0].Judgements[0].Reason == "" || shared.Dissent != nil {
			t.Errorf("what is told was trimmed with it: %+v", shared)
		}
	}
}

// The depth and the values of JSON are those that an envelope counts.
func TestTheExtentOfAnOutput(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		`1`: {0, 0}, `"[,\\\",{"`: {0, 0}, `{}`: {1, 0}, ` [ ] `: {1, 0}, `[[]]`: {2, 1}, `[1]`: {1, 1}, `{"a":[1,{"b":[]}],"c,":"]"}`: {4, 5},
		`["",{}, [ ]]`: {2, 3}, `[true]`: {1, 1},
	} {
		if depth, values := extent([]byte(text)); [2]int{depth, values} != want || !json.Valid([]byte(text)) {
			t.Errorf("%s: %d levels, %d values; want %v", text, depth, values, want)
		}
	}
}

// The messages of failures are left out of a merge, after the outputs, if there are too many of them.
func TestAMergeOfManyFailuresFits(t *testing.T) {
	t.Parallel()
	in := outcomes(`{"v":1}`, "!E_MODEL", "!E_MODEL", "!E_MODEL")
	for i := range in[1:] {
		in[i+1].Err.Message = strings.Repeat("x", 200)
	}
	if whole, without, cut := mergeWithin(in, 10_000); len(whole) < 600 || without != nil || cut {
		t.Errorf("with room: %s, without %v, cut %v", whole, without, cut)
	}
	got, without, cut := mergeWithin(in, 800)
	var back merging
	if err := json.Unmarshal(got, &back); err != nil || len(got) > 800 || len(without) != 1 || !cut {
		t.Fatalf("%d bytes: %s, without %v, cut %v, %v", len(got), got, without, cut, err)
	}
	if f := back.Failures; len(f) != 3 || f[0].Error.Message == "" || f[2].Error.Message != "" || f[2].Error.Code != "E_MODEL" {
		t.Errorf("failures %+v", f)
	}
}
