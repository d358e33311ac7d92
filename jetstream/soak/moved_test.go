package soak

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// gone is the task of good, which the first system transferred to the second one after
// the first step. Two owners called the second step there.
func gone() *task {
	t := good()
	one := t.Writes[2].Done
	phase := func(w write, phase, status string) write {
		w.Phase, w.Status, w.Running, w.Kind, w.Name, w.Done, w.Begun = phase, status, false, "migrate", phase, one, nil
		return w
	}
	there := slices.Clone(t.Writes[3:]) // the intent of the second step, another claim, its receipt, the end
	for i := range there {
		there[i].Epoch++
		there[i].Phase = "accepted"
	}
	staged := phase(there[0], "staged", "migrating")
	staged.Owner = ""
	t.There = append([]write{staged}, there...)
	left := phase(t.Writes[3], "committed", "migrating")
	left.At = there[0].At.Add(-1)
	last := t.Writes[6]
	last.Epoch, last.Owner, last.Phase, last.Name = 1, "a", "relaying", "relaying"
	t.Writes = append(t.Writes[:3:3], left, phase(left, "relaying", "migrating"), last)
	for i := range t.Calls {
		t.Calls[i].From = secondSystem
		t.Calls[i].Epoch++
	}
	t.Calls[0].From, t.Calls[0].Epoch = firstSystem, 1
	t.ThereReplies = []reply{{Stored: true, Type: "result", Body: t.Replies[0].Body}}
	return t
}

func TestModelAcceptsARunThatMoves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*task){
		"as it was": func(*task) {},
		"refused first": func(t *task) {
			refused := t.Writes[3]
			back := t.Writes[2]
			back.Phase = "aborted"
			t.Writes = slices.Insert(t.Writes, 3, refused, back)
		},
		"refused, and ended at home": func(t *task) {
			was := t.Writes[3]
			*t = *good()
			back := t.Writes[3]
			back.Phase = "aborted"
			t.Writes = slices.Insert(t.Writes, 3, was, back)
		},
	} {
		run := gone()
		change(run)
		if found := judge(run); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestModelFindsEachViolationOfAMove(t *testing.T) {
	t.Parallel()
	for rule, changes := range map[Rule][]func(*task){
		RuleOneOwner: {
			func(t *task) { t.Writes = slices.Delete(t.Writes, 3, 5) },                                         // never released
			func(t *task) { t.Writes[3].At = t.There[2].At },                                                   // released too late
			func(t *task) { t.Writes[4].Phase, t.Writes[4].Status = "aborted", "running" },                     // taken back
			func(t *task) { t.Writes[4].Status = "running" },                                                   // continues in the first system
			func(t *task) { t.Calls = append(t.Calls, call{Key: "k1", Epoch: 2, Step: 1, From: firstSystem}) }, // has an effect in the first system
			func(t *task) { t.There = t.There[:1] },                                                            // has effects in the second system, which has not started it
			func(t *task) { t.There[2].Epoch = 1 },
		},
		RuleOneReply: {func(t *task) { t.ThereReplies = append(t.ThereReplies, t.ThereReplies[0]) }},
		RuleLost: {
			func(t *task) { t.There = t.There[:4] },
			func(t *task) { t.Replies = nil },
		},
		RuleOrder: {
			func(t *task) { t.ThereReplies = nil },
			func(t *task) { t.There = append(t.There, t.There[4]) },
		},
		RuleStepOnce: {
			func(t *task) { t.There[1].Done = nil },
			func(t *task) { t.There[1].Done = map[string]digest{"k0": digestOf([]byte("9"))} },
		},
		RuleEffectOnce: {
			func(t *task) { t.Calls = append(t.Calls, call{Key: "k0", Epoch: 2, Receipt: 1, From: secondSystem}) },
			func(t *task) {
				t.Calls[0].Once = true
				t.Calls = append(t.Calls, call{Key: "k0", Epoch: 1, Once: true})
			},
		},
		RuleMoved: {
			func(t *task) { t.There = nil },
			func(t *task) { t.Writes[5].Name = "" },
			func(t *task) { t.ThereReplies[0].Body = json.RawMessage(`{"receipts":[1,3]}`) },
			func(t *task) { t.ThereReplies[0].Type = "error" },
		},
	} {
		for i, change := range changes {
			t.Run(fmt.Sprint(rule, i), func(t *testing.T) {
				run := gone()
				change(run)
				if found := judge(run); !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == rule }) {
					t.Errorf("not found; found %v", found)
				}
			})
		}
	}
}
