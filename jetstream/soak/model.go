package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// A Rule is one promise of the mesh that the soak checks.
type Rule string

// The rules. docs/durability.md explains each, and its conditions.
const (
	// RuleLost: an accepted task gets a terminal reply.
	RuleLost Rule = "accepted task lost"
	// RuleOneReply: it gets exactly one.
	RuleOneReply Rule = "more than one terminal reply"
	// RuleSameReply: a reply that is published again has the same bytes, which are those
	// in the run's record.
	RuleSameReply Rule = "reply differs"
	// RuleOrder: the reply is published after the terminal record is written, and no
	// record is written after that.
	RuleOrder Rule = "commit order"
	// RuleOneOwner: epochs never decrease, and each has one owner.
	RuleOneOwner Rule = "two owners"
	// RuleDelivery: a worker takes a run over from another one only by a later delivery of its
	// message than the other one's, or by the same.
	RuleDelivery Rule = "claimed by an older delivery"
	// RuleStepOnce: the result of a finished step is neither lost nor changed.
	RuleStepOnce Rule = "finished step repeated"
	// RuleReceipt: the receipt of an effect is in the record before the next step is.
	RuleReceipt Rule = "receipt late"
	// RuleParked: a run that is paused, or waits, is claimed only after its record says
	// that it goes on.
	RuleParked Rule = "parked run begun"
	// RuleEffectOnce: an effect with a receipt is not repeated; one that is not safe to
	// repeat is never called twice.
	RuleEffectOnce Rule = "effect repeated"
	// RuleIntent: an effect's intent is in the record before the effect.
	RuleIntent Rule = "effect without intent"
	// RuleResult: the result is that of all steps, each once, in order.
	RuleResult Rule = "wrong result"
	// RuleMembers: a team sends each member its task at most once, whatever crashes; a
	// team with a result has sent all of them.
	RuleMembers Rule = "member asked twice, or not"
	// RuleMoved: a run that is transferred to the second system ends there, and its reply
	// there reaches its sender.
	RuleMoved Rule = "moved run not ended where it went"
	// RuleLeftOver: at the end no message waits and no record is open.
	RuleLeftOver Rule = "left over"
	// RuleLane: at the end each worker accepts durable tasks, also one that started while
	// JetStream was unavailable or had no streams.
	RuleLane Rule = "worker without durable lane"
	// RuleRecord: every revision can be read, and its checksum holds.
	RuleRecord Rule = "unreadable record"
	// RuleAlive: no worker exits by itself.
	RuleAlive Rule = "worker ended by itself"
)

// Rules lists them all, in the order of a report.
var Rules = []Rule{RuleLost, RuleOneReply, RuleSameReply, RuleOrder, RuleOneOwner, RuleDelivery, RuleStepOnce, RuleReceipt, RuleParked, RuleEffectOnce, RuleIntent, RuleResult, RuleMembers, RuleMoved, RuleLeftOver, RuleLane, RuleRecord, RuleAlive}

// A Violation is one broken promise.
type Violation struct {
	Rule   Rule   `json:"rule"`
	Task   string `json:"task"`
	Run    string `json:"run,omitempty"`
	Detail string `json:"detail"`
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: task %s, run %s: %s", v.Rule, v.Task, v.Run, v.Detail)
}

// judge checks what was observed of one task against the rules, after the task or the
// soak has ended.
func judge(t *task) []Violation {
	j := &judgement{t: t}
	j.replies()
	j.owners(t.Writes)
	j.owners(t.There)
	j.deliveries(t.Writes)
	j.deliveries(t.There)
	j.parked(t.Writes)
	j.parked(t.There)
	j.steps()
	j.receipts(t.Writes)
	j.receipts(t.There)
	j.effects()
	j.result()
	j.moved()
	return j.found
}

type judgement struct {
	t     *task
	found []Violation
}

func (j *judgement) bad(rule Rule, format string, args ...any) {
	j.found = append(j.found, Violation{Rule: rule, Task: j.t.ID, Run: j.t.Run, Detail: fmt.Sprintf(format, args...)})
}

// replies checks the replies: one for each accepted task, with the same bytes however
// often it was published, and only after the record that contains it.
func (j *judgement) replies() {
	t := j.t
	last, answered := t.terminal()
	if !answered {
		if !t.Accepted.IsZero() {
			j.bad(RuleLost, "accepted at %s and never answered; its record: %s", t.Accepted.Format("15:04:05.000"), lastOf(t.Writes))
		}
		return
	}
	stored := 0
	for _, r := range t.Replies {
		if r.Stored {
			stored++
		}
		if r.Digest != last.Digest {
			j.bad(RuleSameReply, "%s of %s and %s of %s are not the same bytes", last.Type, last.At.Format("15:04:05.000"), r.Type, r.At.Format("15:04:05.000"))
		}
	}
	if stored > 1 {
		j.bad(RuleOneReply, "%d are stored", stored)
	}
	i := slices.IndexFunc(t.Writes, func(w write) bool { return w.Over })
	switch {
	case i < 0:
		j.bad(RuleOrder, "answered, and its record is not terminal: %s", lastOf(t.Writes))
		return
	case !t.Writes[i].HasReply:
		j.bad(RuleOrder, "the terminal record holds no reply")
	case t.Writes[i].Reply != last.Digest:
		j.bad(RuleSameReply, "the reply is not the one in the terminal record")
	}
	if last.At.Before(t.Writes[i].At) {
		j.bad(RuleOrder, "answered %v before the terminal record was written", t.Writes[i].At.Sub(last.At))
	}
	if n := len(t.Writes) - 1 - i; n > 0 {
		j.bad(RuleOrder, "%d writes after the terminal record, the last: %s", n, lastOf(t.Writes))
	}
}

func lastOf(writes []write) string {
	if len(writes) == 0 {
		return "none"
	}
	w := writes[len(writes)-1]
	return strings.TrimSpace(fmt.Sprintf("revision %d, epoch %d of %s, %s, step %s %s", w.Revision, w.Epoch, w.Owner, w.Status, w.Kind, w.Name))
}

// owners checks that an epoch has one owner, and that epochs never decrease.
func (j *judgement) owners(writes []write) {
	owner := map[uint64]string{}
	var at uint64
	for _, w := range writes {
		if w.Problem != "" {
			j.bad(RuleRecord, "revision %d: %s", w.Revision, w.Problem)
			continue
		}
		if w.Epoch < at {
			j.bad(RuleOneOwner, "revision %d is of epoch %d, after one of epoch %d", w.Revision, w.Epoch, at)
		}
		at = max(at, w.Epoch)
		if w.Owner == "" { // parked: no owner
			continue
		}
		if was, ok := owner[w.Epoch]; ok && was != w.Owner {
			j.bad(RuleOneOwner, "epoch %d is of %s and of %s", w.Epoch, was, w.Owner)
		}
		owner[w.Epoch] = w.Owner
	}
}

// deliveries checks that the messages' deliveries by which a run changes its owner do not go back.
func (j *judgement) deliveries(writes []write) {
	for i := 1; i < len(writes); i++ {
		was, w := writes[i-1], writes[i]
		if was.Owner != "" && w.Owner != "" && was.Owner != w.Owner && was.Work == w.Work && w.Redelivered < was.Redelivered {
			j.bad(RuleDelivery, "revision %d (epoch %d of %s) claims by delivery %d of the message, and %s had the run by delivery %d", w.Revision, w.Epoch, w.Owner, w.Redelivered+1, was.Owner, was.Redelivered+1)
		}
	}
}

// parked checks that a run does not go on by itself.
func (j *judgement) parked(writes []write) {
	for i := 1; i < len(writes); i++ {
		was, w := writes[i-1], writes[i]
		if was.Epoch == 0 {
			continue // commands were noted before the task began
		}
		if (was.Status == string(aaif.RunPaused) || was.Status == string(aaif.RunAwaitingApproval)) && w.Kind == string(state.StepClaim) && !w.Over {
			j.bad(RuleParked, "revision %d (epoch %d of %s) claims a run that is %s", w.Revision, w.Epoch, w.Owner, was.Status)
		}
	}
}

// receipts checks that no step is stored together with the receipt of the effect before
// it.
func (j *judgement) receipts(writes []write) {
	done, had := digestOf([]byte(state.EffectDone)), map[string]bool{}
	for _, c := range j.t.Calls {
		had[c.Key] = false
	}
	for _, w := range writes {
		for key, was := range had {
			if was || w.Done[key] != done {
				continue
			}
			had[key] = true
			switch state.StepKind(w.Kind) {
			case state.StepIntent, state.StepModel, state.StepAnswer, state.StepTerminal:
				j.bad(RuleReceipt, "revision %d (epoch %d of %s, step %s %s) is the first with the receipt of %s", w.Revision, w.Epoch, w.Owner, w.Kind, w.Name, key)
			}
		}
	}
}

// steps checks that results are only added and never change. The record in the second
// system must have all results that the first system had when it released the run.
func (j *judgement) steps() {
	j.stepsOf(j.t.Writes, map[string]digest{})
	done := map[string]digest{}
	if left := j.t.left(); left >= 0 {
		maps.Copy(done, j.t.Writes[left].Done)
	}
	j.stepsOf(j.t.There, done)
}

func (j *judgement) stepsOf(writes []write, done map[string]digest) {
	for _, w := range writes {
		if w.Problem != "" || w.Over { // the terminal record need not contain them
			continue
		}
		for name, d := range done {
			now, still := w.Done[name]
			switch {
			case !still:
				j.bad(RuleStepOnce, "revision %d (epoch %d, step %s %s) has lost the result of %s", w.Revision, w.Epoch, w.Kind, w.Name, name)
				delete(done, name)
			case now != d:
				j.bad(RuleStepOnce, "revision %d (epoch %d) has another result of %s", w.Revision, w.Epoch, name)
				done[name] = now
			}
		}
		maps.Copy(done, w.Done)
	}
}

// effects checks that an effect comes after its intent, is not repeated after its
// receipt, and is never repeated if that is not safe.
func (j *judgement) effects() {
	t := j.t
	intent, receipt := map[string]uint64{}, map[string]uint64{} // by key: the first epoch that has it
	for _, w := range t.everywhere() {
		for _, key := range w.Begun {
			if _, ok := intent[key]; !ok {
				intent[key] = w.Epoch
			}
		}
		for key := range w.Done {
			if _, ok := receipt[key]; !ok {
				receipt[key] = w.Epoch
			}
		}
	}
	calls := map[string][]call{}
	for _, c := range t.Calls {
		before := calls[c.Key]
		calls[c.Key] = append(before, c)
		if at, ok := receipt[c.Key]; ok && c.Epoch > at {
			j.bad(RuleEffectOnce, "%s was called by epoch %d, and epoch %d has its receipt", c.Key, c.Epoch, at)
		}
		if slices.ContainsFunc(before, func(b call) bool { return b.Epoch == c.Epoch }) {
			j.bad(RuleEffectOnce, "%s was called twice by epoch %d", c.Key, c.Epoch)
		}
		if c.Once && len(before) > 0 {
			j.bad(RuleEffectOnce, "%s is not safe to repeat, and was called by epochs %d and %d", c.Key, before[0].Epoch, c.Epoch)
		}
		if at, ok := intent[c.Key]; !ok || c.Epoch < at {
			j.bad(RuleIntent, "%s was called by epoch %d; its intent: %v, of epoch %d", c.Key, c.Epoch, ok, at)
		}
	}
}

// result checks that the result has the receipts of all steps, in order.
func (j *judgement) result() {
	last, answered := j.t.terminal()
	if !answered {
		return
	}
	if why := wrongResult(j.t, last); why != "" {
		j.bad(RuleResult, "%s", why)
	}
	if n, most := len(j.t.Children), j.t.Team; n > most || n < most && last.Type == "result" {
		j.bad(RuleMembers, "%d tasks for the members of a team that has %d to give: %v", n, most, slices.Sorted(maps.Keys(j.t.Children)))
	}
}

// wrongResult says what is wrong with the terminal reply of a task. If the task has
// effects, it must be {"receipts": […]} with the receipt of each effect, in order.
func wrongResult(t *task, last reply) string {
	if last.Type != "result" {
		var why envelope.Error
		if json.Unmarshal(last.Body, &why) == nil && why.Code == envelope.CodeCancelled && t.Cancelled {
			return ""
		}
		if poisoned(t.everywhere()) {
			return "" // claimed repeatedly without finishing a step: docs/durability.md allows that
		}
		return fmt.Sprintf("the reply is of type %q: %s", last.Type, last.Body)
	}
	if len(t.Effects) == 0 {
		return ""
	}
	var body struct{ Receipts []json.RawMessage }
	if err := json.Unmarshal(last.Body, &body); err != nil {
		return err.Error()
	}
	if len(body.Receipts) != len(t.Effects) {
		return fmt.Sprintf("%d receipts of %d effects", len(body.Receipts), len(t.Effects))
	}
	for i, want := range t.Effects {
		got := readReceipt(body.Receipts[i])
		if got == gaveUp && want.Once {
			continue // it is unknown whether the effect happened, and it is not safe to repeat
		}
		at := slices.IndexFunc(t.Calls, func(c call) bool { return c.Step == want.Step })
		if at < 0 {
			return fmt.Sprintf("step %d has a receipt and was never called", want.Step)
		}
		if t.Calls[at].Receipt != got {
			return fmt.Sprintf("step %d has receipt %d, and the effect log %d", want.Step, got, t.Calls[at].Receipt)
		}
	}
	return ""
}

// readReceipt decodes a receipt: a number, as a chain writes it, or the result of a tool.
func readReceipt(raw json.RawMessage) int {
	var n int
	if json.Unmarshal(raw, &n) == nil {
		return n
	}
	var result struct{ Receipt int }
	if json.Unmarshal(raw, &result) == nil {
		return result.Receipt
	}
	return gaveUp // the result that a model gets for a call that was given up
}

// gaveUp stands for an unknown receipt.
const gaveUp = -1

// poisonAfter is how often a run may be claimed without finishing a step.
const poisonAfter = 5

// poisoned reports whether a run was claimed so often without progress that it may be
// dead-lettered.
func poisoned(writes []write) bool {
	vain, done := 0, 0
	for _, w := range writes {
		if len(w.Done) > done {
			vain, done = 0, len(w.Done)
		}
		if w.Kind == "claim" {
			vain++
		}
	}
	return vain >= poisonAfter
}
