package orchestrate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// outcomes makes an outcome from each text, in document order: a JSON object, or "!CODE" for a
// failure.
func outcomes(texts ...string) []Outcome {
	out := make([]Outcome, len(texts))
	for i, s := range texts {
		alias := string(rune('a' + i))
		out[i] = Outcome{Slot: i, Alias: alias, Entity: "agent." + alias}
		if code, failed := strings.CutPrefix(s, "!"); failed {
			out[i].Err = envelope.Errorf(envelope.Code(code), "it failed")
		} else {
			out[i].Output = json.RawMessage(s)
		}
	}
	return out
}

func votes(t Tally) string {
	var b strings.Builder
	for _, v := range t.Votes {
		fmt.Fprintf(&b, "%d %s %s; ", v.For, v.Value, strings.Join(v.By, ","))
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// Missing answers of people may be ignored only if their votes cannot cause another winner or a
// tie, or be the result.
func TestAVoteIsDecidedWhateverIsMissing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ballot  Ballot
		in      []Outcome
		missing []int
		want    bool
	}{
		{Ballot{}, outcomes(`1`, `1`), []int{2}, true},
		{Ballot{}, outcomes(`1`, `1`), []int{2, 3}, false},
		{Ballot{}, outcomes(`1`, `2`, `1`), nil, true},
		{Ballot{}, outcomes(`1`, `2`, `1`), []int{3}, false},
		{Ballot{Tie: TieFirst}, outcomes(`1`, `2`, `1`), []int{3}, false},
		{Ballot{Tie: TieFirst}, outcomes(`1`, `2`), nil, false},
		{Ballot{MinVotes: 3}, outcomes(`1`, `1`), []int{2}, false},
		// Of equal votes on a part, the output of the first member is the result.
		{Ballot{On: "/v"}, outcomes(`{"v":1}`, `{"v":1}`), []int{-1}, false},
		{Ballot{On: "/v"}, outcomes(`{"v":2}`, `{"v":1}`, `{"v":1}`, `{"v":1}`), []int{-1}, false},
		{Ballot{On: "/v"}, outcomes(`{"v":1}`, `{"v":1}`), []int{2}, true},
		{Ballot{}, outcomes(`1`, `1`), []int{-1}, true},
	} {
		if got := tt.ballot.Decided(tt.in, tt.missing); got != tt.want {
			t.Errorf("%+v, %d missing of %s: %t", tt.ballot, tt.missing, votes(tt.ballot.Count(tt.in)), got)
		}
	}
}

func TestMajorityVote(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		ballot Ballot
		in     []Outcome
		votes  string
		winner int
		err    string // "" with winner -1: all are merged
	}{
		{"all agree", Ballot{}, outcomes(`{"v":1}`, `{"v":1.0}`, ` { "v" : 1e0 } `), `3 {"v":1} a,b,c`, 0, ""},
		{"the order of members says nothing", Ballot{}, outcomes(`{"y":2,"x":1}`, `{"x":1,"y":2}`, `{"x":1}`), `2 {"x":1,"y":2} a,b; 1 {"x":1} c`, 0, ""},
		{"the largest group wins, without half of the votes", Ballot{}, outcomes(`{"v":1}`, `{"v":2}`, `{"v":3}`, `{"v":2}`, `{"v":4}`), `2 {"v":2} b,d; 1 {"v":1} a; 1 {"v":3} c; 1 {"v":4} e`, 1, ""},
		{"on a part", Ballot{On: "/verdict/level"}, outcomes(`{"verdict":{"level":"high"},"why":"x"}`, `{"verdict":{"level":"low"}}`, `{"verdict":{"level":"high"},"why":"y"}`), `2 "high" a,c; 1 "low" b`, 0, ""},
		{"on a part that one has not", Ballot{On: "/v"}, outcomes(`{"w":1}`, `{"v":null}`), `1 null b`, 1, ""},
		{"on an array's element", Ballot{On: "/l/1"}, outcomes(`{"l":[1,2]}`, `{"l":[3,2]}`, `{"l":[1]}`), `2 2 a,b`, 0, ""},
		{"the failed have no vote", Ballot{}, outcomes("!E_TIMEOUT", `{"v":2}`, "!E_TIMEOUT"), `1 {"v":2} b`, 1, ""},
		{"enough", Ballot{MinVotes: 2}, outcomes(`{"v":1}`, `{"v":2}`, `{"v":2}`), `2 {"v":2} b,c; 1 {"v":1} a`, 1, ""},
		{"min_votes not reached", Ballot{MinVotes: 3}, outcomes(`{"v":1}`, `{"v":2}`, `{"v":2}`), `2 {"v":2} b,c; 1 {"v":1} a`, -1, "no majority: 2 of 3 votes agree, and min_votes is 3"},
		{"min_votes not reached, whatever the tie", Ballot{MinVotes: 2, Tie: TieFirst}, outcomes(`{"v":1}`, `{"v":2}`), `1 {"v":1} a; 1 {"v":2} b`, -1, "no majority: 1 of 2 votes agree, and min_votes is 2"},
		{"a tie", Ballot{}, outcomes(`{"v":1}`, `{"v":2}`, `{"v":3}`, `{"v":2}`, `{"v":1}`), `2 {"v":1} a,e; 2 {"v":2} b,d; 1 {"v":3} c`, -1, "no majority: 2 answers have 2 of 5 votes each"},
		{"a tie on a part", Ballot{On: "/v", Tie: TieFail}, outcomes(`{"v":1}`, `{"v":2}`), `1 1 a; 1 2 b`, -1, "no majority: 2 answers have 1 of 2 votes each on /v"},
		{"a tie goes to the first", Ballot{Tie: TieFirst}, outcomes(`{"v":3}`, `{"v":2}`, `{"v":1}`, `{"v":1}`, `{"v":2}`), `2 {"v":2} b,e; 2 {"v":1} c,d; 1 {"v":3} a`, 1, ""},
		{"a tie is merged", Ballot{Tie: TieMerge}, outcomes(`{"v":1}`, `{"v":2}`), `1 {"v":1} a; 1 {"v":2} b`, -1, ""},
		{"nobody", Ballot{Tie: TieMerge}, nil, "", -1, "no member of the swarm has voted"},
		{"all have failed", Ballot{}, outcomes("!E_MODEL", "!E_MODEL"), "", -1, "no member of the swarm has voted"},
		{"nobody has the part", Ballot{On: "/v"}, outcomes(`{}`, `{"w":1}`), "", -1, "no member of the swarm has voted on /v: 2 answered without it"},
		{"nobody has the part, texts have none", Ballot{On: "/v"}, outcomes(`{"text":"yes"}`, `{"text":"yes","w":1}`, "!E_MODEL"), "", -1,
			"no member of the swarm has voted on /v: 2 answered without it, 1 of them in plain text (response_format json makes objects)"},
		{"numbers beyond a double", Ballot{}, outcomes(`{"v":9007199254740993,"w":1.0}`, `{"v":9007199254740992}`, ` { "w" : 1.0, "v" : 9007199254740993 } `), `2 {"v":9007199254740993,"w":1.0} a,c; 1 {"v":9007199254740992} b`, 0, ""},
		{"a part that is beyond a double", Ballot{On: "/v"}, outcomes(`{"v":1}`, `{"v":1e999}`, `{"v":1e999,"w":2}`), `2 1e999 b,c; 1 1 a`, 1, ""},
		{"no JSON of one meaning", Ballot{}, outcomes(`{"v":2,"v":3}`, `{"v":1}`), `1 {"v":1} b`, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.ballot.Count(tt.in)
			problem := ""
			if got.Err != nil {
				problem = got.Err.Message
			}
			if votes(got) != tt.votes || got.Winner != tt.winner || problem != tt.err {
				t.Errorf("votes %s, winner %d, error %q\nwant %s, %d, %q", votes(got), got.Winner, problem, tt.votes, tt.winner, tt.err)
			}
			for range 20 {
				rand.Shuffle(len(tt.in), func(i, j int) { tt.in[i], tt.in[j] = tt.in[j], tt.in[i] })
				if again := tt.ballot.Count(tt.in); !reflect.DeepEqual(again, got) {
					t.Fatalf("in another order of arrival: %+v\nwant %+v", again, got)
				}
			}
		})
	}
}

// Outputs with a number that a double cannot represent are equal if the number is spelled equally.
func TestOutputsWithLargeNumbersAreCompared(t *testing.T) {
	t.Parallel()
	in := outcomes(`{"v":9007199254740993,"w":1}`, `{"v":9007199254740992,"w":1}`, `{"w":1,"v":9007199254740993}`)
	if got := Candidates(in, ""); len(got) != 2 {
		t.Errorf("%d candidates, want the two that differ", len(got))
	}
	var r Record
	r.Strategy = "majority_vote"
	if r.account(in, 0, []string{"a", "c"}); len(r.Results) != 0 || len(r.Dissent) != 1 || r.Dissent[0].Alias != "b" {
		t.Errorf("record %+v", r)
	}
}

func TestCandidatesTellNothingOfTheirAuthors(t *testing.T) {
	t.Parallel()
	in := outcomes(`{"v":1}`, `{"v":2}`, "!E_MODEL", `{"v":1.0}`, `{"v":3}`)
	firsts := map[string]bool{}
	for seed := range 40 {
		s := fmt.Sprint(seed)
		got := Candidates(in, s)
		if len(got) != 3 {
			t.Fatalf("%d candidates, want the three that differ", len(got))
		}
		for _, c := range got {
			if string(c.Output) == `{"v":1}` && (strings.Join(c.By, ",") != "a,d" || c.slot != 0) {
				t.Errorf("%+v, want it of a and d", c)
			}
		}
		firsts[string(got[0].Output)] = true
		shuffled := append([]Outcome(nil), in...)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := Candidates(shuffled, s); !reflect.DeepEqual(again, got) {
			t.Fatalf("seed %s in another order of arrival: %v, want %v", s, again, got)
		}
	}
	if len(firsts) != 3 {
		t.Errorf("with 40 seeds only %v came first", firsts)
	}
}

func TestBestOfN(t *testing.T) {
	t.Parallel()
	score := func(f float64) Judgement { return Judgement{By: "j", Score: &f} }
	none := Judgement{By: "j", Error: "score is no number"}
	cs := []Candidate{{By: []string{"b"}, slot: 1}, {By: []string{"a", "c"}, slot: 0}, {By: []string{"d"}, slot: 3}}
	for _, tt := range []struct {
		name   string
		judged [][]Judgement
		tie    Tie
		slot   int
		order  string
		err    string
	}{
		{"the highest", [][]Judgement{{score(.2)}, {score(.9)}, {score(-1)}}, "", 0, "a b d", ""},
		{"the mean", [][]Judgement{{score(1), score(0)}, {score(.4), score(.4)}, {score(.8), score(.5)}}, "", 3, "d b a", ""},
		{"who gives none is not counted", [][]Judgement{{score(.6), none}, {score(.9), score(.1)}, {none, none}}, "", 1, "b a d", ""},
		{"equal scores go to the first", [][]Judgement{{score(.5)}, {score(.5)}, {score(.1)}}, "", 0, "a b d", ""},
		{"or fail", [][]Judgement{{score(.5)}, {score(.5)}, {score(.1)}}, TieFail, -1, "a b d", "two outputs have the highest score, 0.5"},
		{"or are merged", [][]Judgement{{score(.5)}, {score(.5)}, {score(.1)}}, TieMerge, -1, "a b d", ""},
		{"nobody gives one", [][]Judgement{{none}, {none}, {none}}, TieMerge, -1, "a b d", "no evaluator has given a usable score; j: score is no number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			slot, scores, err := Best(cs, tt.judged, tt.tie)
			var order []string
			for _, s := range scores {
				order = append(order, s.By[0])
			}
			problem := ""
			if err != nil {
				problem = err.Message
			}
			if slot != tt.slot || strings.Join(order, " ") != tt.order || problem != tt.err {
				t.Errorf("slot %d, order %v, error %q; want %d, %s, %q", slot, order, problem, tt.slot, tt.order, tt.err)
			}
		})
	}
	if slot, _, err := Best(nil, nil, ""); slot != -1 || err == nil {
		t.Errorf("without candidates: slot %d, %v", slot, err)
	}
}

func TestReadScore(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"score":0.5}`:                "0.5 ",
		`{"score":8,"reason":"good"}`:  "8 good",
		`{"score":-3e2,"reason":7}`:    "-300 ",
		`{"text":"{\"score\": 0.25}"}`: "0.25 ",
		"{\"text\":\"```json\\n{\\\"score\\\": 1, \\\"reason\\\": \\\"r\\\"}\\n```\",\"usage\":{}}": "1 r",
		`{"score":"0.5"}`:                      "score is no number",
		`{"score":null}`:                       "score is no number",
		`{"score":1e10}`:                       "score is beyond ±1e+09",
		`{"score":1e999}`:                      "score is beyond ±1e+09",
		`{"scores":[1]}`:                       `the answer has no member "score"`,
		`{"text":"0.5"}`:                       `the answer has no member "score"`,
		`{"text":"{\"score\":1,\"score\":0}"}`: `the answer has no member "score"`,
		`[0.5]`:                                `the answer has no member "score"`,
		``:                                     `the answer has no member "score"`,
	} {
		score, reason, err := readScore(json.RawMessage(in))
		got := fmt.Sprintf("%g %s", score, reason)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestReadScores(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"scores":[1,0.5]}`:            "[1 0.5]",
		`{"scores":[null,"x"]}`:         "[NaN NaN]",
		`{"text":"{\"scores\":[0,1]}"}`: "[0 1]",
		`{"scores":[1]}`:                "there are 1 scores for 2 candidates",
		`{"scores":[1,1,1]}`:            "there are 3 scores for 2 candidates",
		`{"scores":{"1":1,"2":2}}`:      "scores is no array",
		`{"score":1}`:                   `the answer has no member "scores"`,
	} {
		scores, err := readScores(json.RawMessage(in), 2)
		got := fmt.Sprint(scores)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestReadRuling(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"choice":2,"reason":"it is so"}`:         "2  it is so",
		`{"choice":3.0}`:                           "3  ",
		`{"text":"{\"choice\": 1}"}`:               "1  ",
		`{"output":{"v":1},"reason":"none holds"}`: `0 {"v":1} none holds`,
		`{"output":{"v":1,"usage":{}}}`:            `0 {"v":1} `,
		`{"text":" 2\n"}`:                          "2  ",
		`{"text":"4"}`:                             "choice is not one of 1 to 3",
		`{"text":"The second is right."}`:          errNoDecision.Error(),
		`{"verdict":"guilty","usage":{}}`:          errNoDecision.Error(),
		`{"choice":0}`:                             "choice is not one of 1 to 3",
		`{"choice":4}`:                             "choice is not one of 1 to 3",
		`{"choice":-1}`:                            "choice is not one of 1 to 3",
		`{"choice":1.5}`:                           "choice is no integer",
		`{"choice":"1"}`:                           "choice is no integer",
		`{"choice":null}`:                          "choice is no integer",
		`{"choice":1e999}`:                         "choice is no integer",
		`{"choice":1,"output":{}}`:                 "the answer has a choice and an output",
		`{"choice":1,"output":null}`:               "1  ",
		`{"choice":null,"output":{"v":1}}`:         `0 {"v":1} `,
		`{"choice":null,"output":null}`:            "choice is no integer",
		`{"output":"x"}`:                           "output is no object",
		`{"usage":{"input_tokens":1}}`:             errNoDecision.Error(),
		`{}`:                                       errNoDecision.Error(),
		`[1]`:                                      errNoDecision.Error(),
	} {
		r, err := readRuling(json.RawMessage(in), 3)
		got := fmt.Sprintf("%d %s %s", r.choice, r.output, r.reason)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// Answers of judges may be hostile.
func FuzzReadAnswers(f *testing.F) {
	for _, s := range []string{`{"score":0.5,"reason":"x"}`, `{"scores":[1,null,2]}`, `{"choice":2}`, `{"output":{"a":1}}`, `{"text":"{\"choice\":1}"}`, "{\"text\":\"```json\\n{\\\"score\\\":1}\\n```\"}", `{"choice":1e400}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if score, reason, err := readScore(data); err == nil && (score != score || score > maxScore || score < -maxScore || len(reason) > maxReason) {
			t.Errorf("score %v, reason of %d bytes", score, len(reason))
		}
		if scores, err := readScores(data, 3); err == nil && len(scores) != 3 {
			t.Errorf("%d scores", len(scores))
		}
		r, err := readRuling(data, 3)
		switch {
		case err != nil:
		case r.choice == 0 && (kindOf(r.output) != '{' || !json.Valid(r.output)):
			t.Errorf("the referee's own output is %q", r.output)
		case r.choice < 0 || r.choice > 3 || r.choice > 0 && r.output != nil:
			t.Errorf("ruling %+v", r)
		}
	})
}

func FuzzPointer(f *testing.F) {
	f.Add("/a~1b/0/~0", []byte(`{"a/b":[{"~":1}]}`))
	f.Add("", []byte(`1`))
	f.Add("/-", []byte(`[1]`))
	f.Add("/01", []byte(`[1,2]`))
	f.Fuzz(func(t *testing.T, pointer string, value []byte) {
		p, err := ParsePointer(pointer)
		if err != nil {
			return
		}
		part, ok := p.Find(value)
		if ok && !json.Valid(part) || pointer == "" && ok != json.Valid(value) {
			t.Errorf("%q in %q: %q, %v", pointer, value, part, ok)
		}
	})
}

func TestPointer(t *testing.T) {
	t.Parallel()
	const doc = `{"a":{"b":[10,{"c":"x"}]},"m~n":1,"o/p":2,"":3,"dup":null}`
	for p, want := range map[string]string{
		"": doc, "/a/b/1/c": `"x"`, "/a/b/0": "10", "/m~0n": "1", "/o~1p": "2", "/": "3", "/dup": "null",
		"/x": "-", "/a/b/2": "-", "/a/b/01": "-", "/a/b/-": "-", "/a/b/0/c": "-", "/a/b/+1": "-", "/a/c": "-",
	} {
		ptr, err := ParsePointer(p)
		if err != nil {
			t.Errorf("%q: %v", p, err)
			continue
		}
		got, ok := ptr.Find([]byte(doc))
		if !ok {
			got = []byte("-")
		}
		if string(got) != want {
			t.Errorf("%q: %s, want %s", p, got, want)
		}
	}
	for _, bad := range []string{"a", "/~", "/~2", "#/a", "/a~"} {
		if _, err := ParsePointer(bad); err == nil {
			t.Errorf("%q is taken for a pointer", bad)
		}
	}
}
