package soak

import (
	"bytes"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// leads reports whether a transfer crosses systems: to a URL, or from a peer.
func leads(m *state.Migration) bool { return strings.Contains(m.To, "://") || m.Source == firstSystem }

// left returns the index of the write by which the first system released the run for
// good; -1 if it has not, or has taken the run back.
func (t *task) left() int {
	left := -1
	for i, w := range slices.Backward(t.Writes) {
		if w.Phase != string(state.PhaseCommitted) && w.Phase != string(state.PhaseRelaying) {
			break
		}
		left = i
	}
	return left
}

// relayed reports whether the run ended with the reply of the second system.
func (t *task) relayed() bool {
	i := slices.IndexFunc(t.Writes, func(w write) bool { return w.Over })
	return i >= 0 && t.Writes[i].Name == string(state.PhaseRelaying)
}

// everywhere returns the writes of both systems.
func (t *task) everywhere() []write {
	return append(t.Writes[:len(t.Writes):len(t.Writes)], t.There...)
}

// moved checks the second system's records against the first one's: a run starts there
// only after it was released here, does nothing here after that, ends there, and its
// sender gets the reply that was given there.
func (j *judgement) moved() {
	t := j.t
	left := t.left()
	started := slices.IndexFunc(t.There, func(w write) bool { return w.Status != string(aaif.RunMigrating) })
	switch {
	case started >= 0 && left < 0:
		j.bad(RuleOneOwner, "the second system runs it, and the first has not let go of it, or has it again: %s", lastOf(t.Writes))
	case started >= 0 && t.There[started].At.Before(t.Writes[left].At):
		j.bad(RuleOneOwner, "the second system runs it %v before the first has let go of it", t.Writes[left].At.Sub(t.There[started].At))
	}
	if left >= 0 {
		for _, w := range t.Writes[left:] {
			if !w.Over && w.Status != string(aaif.RunMigrating) {
				j.bad(RuleOneOwner, "let go of with revision %d, and goes on in the first system: %s", t.Writes[left].Revision, lastOf([]write{w}))
			}
		}
	}
	for _, c := range t.Calls {
		switch {
		case c.From == firstSystem && left >= 0 && c.Epoch > t.Writes[left].Epoch:
			j.bad(RuleOneOwner, "%s was called by epoch %d of the first system, which has let go of the run in epoch %d", c.Key, c.Epoch, t.Writes[left].Epoch)
		case c.From == secondSystem && started < 0:
			j.bad(RuleOneOwner, "%s was called by the second system, which does not have the run", c.Key)
		}
	}
	j.movedEnd(started >= 0)
}

// movedEnd checks the end of a run that may have been transferred.
func (j *judgement) movedEnd(there bool) {
	t := j.t
	if n := len(t.ThereReplies); n > 1 {
		j.bad(RuleOneReply, "%d are stored in the second system", n)
	}
	over := slices.IndexFunc(t.There, func(w write) bool { return w.Over })
	switch last, answered := t.terminal(); {
	case !there && t.relayed():
		j.bad(RuleMoved, "its answer is said to be of the second system, which never ran it")
	case there && over < 0:
		j.bad(RuleLost, "the second system has it, and has not ended it: %s", lastOf(t.There))
	case there && len(t.ThereReplies) == 0:
		j.bad(RuleOrder, "ended in the second system, and has no answer there")
	case there && over < len(t.There)-1:
		j.bad(RuleOrder, "%d writes after the terminal record of the second system, the last: %s", len(t.There)-1-over, lastOf(t.There))
	case there && answered && !t.relayed():
		j.bad(RuleMoved, "the second system has it, and the first ended it by itself: %s", lastOf(t.Writes))
	case there && answered && (last.Type != t.ThereReplies[0].Type || !bytes.Equal(last.Body, t.ThereReplies[0].Body)):
		j.bad(RuleMoved, "answered in the second system with the %s %s, and its sender with the %s %s", t.ThereReplies[0].Type, t.ThereReplies[0].Body, last.Type, last.Body)
	}
}

// moves adds a judged task to the counts of transfers.
func (c *Counts) moves(t *task) {
	if slices.ContainsFunc(t.everywhere(), func(w write) bool { return w.Kind == string(state.StepClaim) && w.Name == string(state.PhaseMoved) }) {
		c.Relocated++
	}
	at := slices.IndexFunc(t.Writes, func(w write) bool { return w.Phase == string(state.PhaseCaptured) })
	if at < 0 {
		return
	}
	c.Departed++
	if slices.ContainsFunc(t.Writes[at:], func(w write) bool { return w.Phase == string(state.PhaseAborted) }) {
		c.Returned++
	}
	if t.relayed() {
		c.Moved++
	}
}

// replyThere records one reply from the stream of the second system.
func (o *observer) replyThere(data []byte, r reply) {
	env, err := envelope.Parse(data)
	if err != nil || env.Type == envelope.TypeStream {
		return
	}
	r.Digest, r.Type, r.Body = digestOf(data), string(env.Type), env.Payload
	o.mu.Lock()
	defer o.mu.Unlock()
	t, _ := o.task(env.ReplyTo)
	if t == nil {
		o.found = append(o.found, Violation{Rule: RuleMoved, Task: env.ReplyTo, Detail: "answered in the second system, of no task or after it was over"})
		return
	}
	t.ThereReplies = append(t.ThereReplies, r)
	o.check(t)
}
