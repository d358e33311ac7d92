package orchestrate

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aeemesh/aeemesh/intents/schema"
)

func swarmSchema(t testing.TB, name string) *schema.Schema {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("schema", name+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(raw)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// The payloads for judges and synthesizers fit the published schemas.
func TestWhatJudgesAreSentFitsTheSchemas(t *testing.T) {
	t.Parallel()
	input := json.RawMessage(`{"text":"6 * 7?"}`)
	in := outcomes(`{"v":41}`, `{"v":42}`, `{"v":42}`, "!E_TIMEOUT")
	cs := Candidates(in, "seed")
	full := &Record{Strategy: "majority_vote", Members: 4, Cancelled: []string{"x"}, Tied: true, Abstained: []string{"a"}, MergedBy: "s", Choice: &Choice{By: "r", Said: "no"}}
	full.Votes = Ballot{}.Count(in).Votes
	f := 0.5
	_, full.Scores, _ = Best(cs, [][]Judgement{{{By: "j", Score: &f}}, {{By: "j", Error: "no"}}}, "")
	full.account(in, 1, []string{"b", "c"})
	for _, tt := range []struct {
		schema  string
		payload json.RawMessage
	}{
		{"score.task", scorePayload(input, cs[0])},
		{"referee.task", refereePayload(input, cs)},
		{"referee.task", refereePayload(nil, cs[:1])},
		{"merge.task", mergePayload(input, in, nil)},
		{"merge.task", mergePayload(input, in, full)},
		{"swarm", full.JSON()},
		{"swarm", (&Record{}).JSON()},
		{"referee.result", json.RawMessage(`{"choice":1}`)},
	} {
		if err := swarmSchema(t, tt.schema).Validate(tt.payload); err != nil {
			var invalid *schema.ValidationError
			errors.As(err, &invalid)
			t.Errorf("%s: %s\n%v", tt.schema, tt.payload, err)
		}
	}
}

// Every answer that fits its schema is understood.
func FuzzAnswersThatFitAreRead(f *testing.F) {
	for _, s := range []string{`{"score":1}`, `{"score":-1e9,"reason":"x"}`, `{"choice":2,"reason":""}`, `{"output":{"a":1}}`, `{"verdict":1}`, `{"choice":1,"output":{}}`, `{"text":"{\"choice\":9}"}`} {
		f.Add([]byte(s))
	}
	score, ruling := swarmSchema(f, "score.result"), swarmSchema(f, "referee.result")
	f.Fuzz(func(t *testing.T, data []byte) {
		if score.Validate(data) == nil {
			if _, _, err := readScore(data); err != nil {
				t.Errorf("%s fits, and is not read: %v", data, err)
			}
		}
		var top map[string]json.RawMessage
		if ruling.Validate(data) != nil || json.Unmarshal(data, &top) != nil || top["text"] != nil {
			return // a text may hold another answer, or none
		}
		if _, err := readRuling(data, 1<<30); err != nil && top["choice"] == nil && top["output"] == nil {
			t.Errorf("%s fits, and is not read: %v", data, err)
		}
	})
}
