package soak

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// good returns a correct task of two steps whose first owner died in the second step:
// both owners called that step.
func good() *task {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tick := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	d := func(s string) digest { return digestOf([]byte(s)) }
	reply1 := d("the reply")
	w := func(n int, epoch uint64, owner, kind string, done map[string]digest, begun ...string) write {
		return write{Revision: uint64(10 + n), At: tick(n), Epoch: epoch, Owner: owner, Status: "running", Running: true, Kind: kind, Done: done, Begun: begun}
	}
	one := map[string]digest{"k0": d("1")}
	both := map[string]digest{"k0": d("1"), "k1": d("2")}
	last := w(7, 2, "b", "terminal", nil)
	last.Over, last.Running, last.HasReply, last.Reply = true, false, true, reply1
	return &task{
		ID: "t", Run: "r", Entity: "agent.x", Accepted: at, Effects: []expected{{Step: 0}, {Step: 1}},
		Writes: []write{
			w(1, 1, "a", "claim", nil), w(2, 1, "a", "intent", nil, "k0"), w(3, 1, "a", "receipt", one), w(4, 1, "a", "intent", one, "k1"),
			w(5, 2, "b", "claim", one, "k1"), w(6, 2, "b", "receipt", both), last,
		},
		Calls: []call{
			{N: 1, Key: "k0", Run: "r", Epoch: 1, Step: 0, Receipt: 1}, {N: 2, Key: "k1", Run: "r", Epoch: 1, Step: 1, Receipt: 2},
			{N: 3, Key: "k1", Run: "r", Epoch: 2, Step: 1, Receipt: 2},
		},
		Replies: []reply{
			{Stored: true, Seq: 5, At: tick(8), Digest: reply1, Type: "result", Body: json.RawMessage(`{"receipts":[1,2]}`)},
			{At: tick(9), Digest: reply1, Type: "result"}, // published again
		},
	}
}

func TestModelAcceptsCorrectRuns(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*task){
		"as it was":                         func(*task) {},
		"submitted, but never acknowledged": func(t *task) { *t = task{ID: "t", Run: "r"} },
		"results of tools": func(t *task) {
			t.Replies[0].Body = json.RawMessage(`{"receipts":[{"step":0,"receipt":1},{"step":1,"receipt":2}]}`)
		},
		"one that was given up": func(t *task) {
			t.Effects[1].Once, t.Calls = true, t.Calls[:1]
			t.Replies[0].Body = json.RawMessage(`{"receipts":[1,"nobody knows"]}`)
		},
		"a team": func(t *task) { t.Team, t.Children = 2, map[string]bool{"a": true, "b": true} },
		"a team that was cancelled": func(t *task) {
			t.Team, t.Cancelled, t.Replies[0].Type, t.Replies[0].Body = 2, true, "error", json.RawMessage(`{"code":"E_CANCELLED","message":"","retryable":false}`)
		},
		"delivered again to the next owner": func(t *task) { t.Writes[4].Redelivered = 1 },
		"given back, and taken up by another message": func(t *task) {
			t.Writes[3].Redelivered, t.Writes[3].Work, t.Writes[4].Work = 3, 1, 2
		},
		"parked between two deliveries": func(t *task) {
			t.Writes[2].Redelivered, t.Writes[3].Owner = 3, ""
		},
		"a zombie's call arrives late": func(t *task) { t.Calls = append(t.Calls[:1:1], t.Calls[2], t.Calls[1]) },
		"given up after five claims": func(t *task) {
			for range 5 {
				t.Writes = slices.Insert(t.Writes, 5, t.Writes[4])
			}
			t.Writes = slices.Delete(t.Writes, 10, 11) // the second receipt
			t.Replies[0].Type = "error"
		},
	} {
		run := good()
		change(run)
		if found := judge(run); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// A model that finds nothing proves nothing: each rule is broken once.
func TestModelFindsEachViolation(t *testing.T) {
	t.Parallel()
	broken := map[Rule][]func(*task){
		RuleLost: {
			func(t *task) { t.Replies = nil },
			func(t *task) { t.Replies = t.Replies[1:] },
			func(t *task) { t.Replies, t.Writes = nil, nil },
		},
		RuleOneReply: {func(t *task) { t.Replies[1].Stored = true }},
		RuleSameReply: {
			func(t *task) { t.Replies[1].Digest = digestOf([]byte("other")) },
			func(t *task) { t.Writes[6].Reply = digestOf([]byte("other")) },
		},
		RuleOrder: {
			func(t *task) { t.Writes = t.Writes[:6] },
			func(t *task) { t.Replies[0].At = t.Writes[5].At },
			func(t *task) { t.Writes = append(t.Writes, t.Writes[6]) },
			func(t *task) { t.Writes[6].HasReply = false },
		},
		RuleOneOwner: {
			func(t *task) { t.Writes[5].Epoch = 1 },
			func(t *task) { t.Writes[3].Owner = "b" },
			func(t *task) { t.Writes[5].Owner = "a" },
		},
		RuleDelivery: {
			func(t *task) { t.Writes[3].Redelivered = 1 },
			func(t *task) { t.Writes[3].Redelivered, t.Writes[4].Redelivered = 3, 2 },
		},
		RuleStepOnce: {
			func(t *task) { t.Writes[4].Done = nil },
			func(t *task) { t.Writes[5].Done["k0"] = digestOf([]byte("9")) },
		},
		RuleReceipt: {
			func(t *task) {
				t.Writes = slices.Delete(t.Writes, 2, 3) // stored with the next intent
				t.Writes[2].Done = map[string]digest{"k0": digestOf([]byte("done"))}
			},
			func(t *task) { // stored with the end
				t.Writes = slices.Delete(t.Writes, 5, 6)
				t.Writes[5].Done = map[string]digest{"k1": digestOf([]byte("done"))}
			},
		},
		RuleParked: {
			func(t *task) { t.Writes[3].Status = "paused" },
			func(t *task) { t.Writes[3].Status = "awaiting_approval" },
		},
		RuleEffectOnce: {
			func(t *task) { t.Calls = append(t.Calls, call{Key: "k0", Epoch: 2, Receipt: 1}) },
			func(t *task) { t.Calls = append(t.Calls, t.Calls[2]) },
			func(t *task) { t.Calls[1].Once, t.Calls[2].Once = true, true },
		},
		RuleIntent: {
			func(t *task) { t.Writes[3].Begun, t.Writes[4].Begun = nil, nil },
			func(t *task) { t.Writes[1].Begun, t.Writes[2].Begun = nil, []string{"k0"}; t.Calls[0].Epoch = 0 },
		},
		RuleResult: {
			func(t *task) { t.Replies[0].Body = json.RawMessage(`{"receipts":[1]}`) },
			func(t *task) { t.Replies[0].Body = json.RawMessage(`{"receipts":[2,1]}`) },
			func(t *task) { t.Replies[0].Type = "error" },
			func(t *task) { t.Replies[0].Body = json.RawMessage(`{"receipts":[1,"nobody knows"]}`) },
			func(t *task) { t.Replies[0].Body = json.RawMessage(`[`) },
			func(t *task) { t.Calls = t.Calls[:1] },
		},
		RuleMembers: {
			func(t *task) { t.Team, t.Children = 1, map[string]bool{"a": true, "b": true} },
			func(t *task) { t.Team = 1 },
		},
		RuleRecord: {func(t *task) { t.Writes[2].Problem = "checksum" }},
	}
	for _, rule := range Rules {
		if rule != RuleMoved && rule != RuleLeftOver && rule != RuleLane && rule != RuleAlive && len(broken[rule]) == 0 {
			t.Errorf("nothing here breaks %q", rule)
		}
		for i, change := range broken[rule] {
			t.Run(fmt.Sprint(rule, i), func(t *testing.T) {
				run := good()
				change(run)
				found := judge(run)
				if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == rule }) {
					t.Errorf("not found; found %v", found)
				}
			})
		}
	}
}

func TestPlanIsTheSeeds(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 7, Faults: 1000, Workers: 3, Servers: 3, Second: 2, Disk: 1, Lease: time.Second, Pace: time.Second}
	a, b := plan(o), plan(o)
	if !slices.Equal(a, b) {
		t.Error("one seed, two plans")
	}
	if o.Seed = 8; slices.Equal(a, plan(o)) {
		t.Error("two seeds, one plan")
	}
	seen := map[Kind]int{}
	at := map[Point]int{}
	for _, f := range a {
		seen[f.Kind]++
		at[f.Point]++
	}
	for _, k := range kindsFor(3, true, true) {
		if k.weight > 0 && seen[k.kind] == 0 {
			t.Errorf("%s never comes", k.kind)
		}
	}
	for _, p := range slices.Concat([]Point{""}, Points, LeavePoints) {
		if at[p] < 10 {
			t.Errorf("%d faults at %q", at[p], p)
		}
	}
	for _, p := range TakePoints {
		if at[p] == 0 {
			t.Errorf("no fault at %q", p)
		}
	}
}

// Some broken promises show only where a fault strikes between two steps: a message is lost if its
// writer dies between two of its writes, and a worker has an old delivery if it stands still with
// it. So the soak strikes there, unless it is told what to do.
func TestASoakStrikesWhereABrokenPromiseShows(t *testing.T) {
	t.Parallel()
	for promise, aim := range aims {
		points := func(o Options) (n int) {
			o.Faults, o.Seed, o.Break = 30, 1, promise
			o, _ = o.normal() // its folder is missing
			for _, f := range plan(o) {
				if f.Kind != aim.kind || f.Point != "" && !slices.Contains(aim.at, f.Point) {
					return -1
				}
				if f.Point != "" {
					n++
				}
			}
			return n
		}
		if n := points(Options{}); n < 10 {
			t.Errorf("%s: %d of 30 faults strike where it shows", promise, n)
		}
		if points(Options{Only: []Kind{ServerStop}}) >= 0 {
			t.Errorf("%s: other faults than those that it is told to use", promise)
		}
	}
}
