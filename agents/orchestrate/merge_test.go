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
