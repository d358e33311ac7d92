package quota

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// Each task that is put off is put off further than the one before, so that the
// queue hands out as many at a time as the rate allows.
func TestPaceGivesEachTaskItsTurn(t *testing.T) {
	t.Parallel()
	q := New(Limits{UnknownRate: 10, UnknownBurst: 2, UrgentRate: 1, Rate: 0})
	now := time.Now()
	task := func(from string, p envelope.Priority) *envelope.Envelope {
		e := envelope.New(envelope.TypeTask, from, "agent.a", "code.review", json.RawMessage(`{}`))
		e.Priority = p
		return e
	}
	wait := func(e *envelope.Envelope, verified, again bool) time.Duration {
		_, err := q.pace(e, verified, again, now)
		if err == nil {
			return 0
		}
		if err.Code != envelope.CodeRateLimited || !err.Retryable {
			t.Errorf("put off with %+v", err)
		}
		return err.Backoff()
	}
	eve := task("agent.eve", envelope.PriorityNormal)
	for i, want := range []time.Duration{0, 0, 100, 200, 300} {
		if got := wait(eve, false, false); got != want*time.Millisecond {
			t.Errorf("task %d waits for %v", i, got)
		}
	}
	if got := wait(eve, false, true); got != 0 {
		t.Errorf("a task that has waited waits for %v more", got)
	}
	if got := wait(eve, true, false); got != 0 {
		t.Errorf("a proven sender without a limit waits for %v", got)
	}
	if got := wait(task("agent.other", envelope.PriorityNormal), false, false); got != 0 {
		t.Errorf("another sender waits for %v", got)
	}
	// The debt of one lane is none of the other's.
	if _, err := q.Admit(eve, false, now); err != nil {
		t.Errorf("live: %v", err)
	}
	// All unknown senders together have ten times as much.
	var longest time.Duration
	for i := range 40 {
		longest = max(longest, wait(task("agent.n"+string(rune('a'+i)), envelope.PriorityNormal), false, false))
	}
	if longest == 0 {
		t.Error("unknown senders have no limit together")
	}
	// Of the urgent ones, only so many stay urgent.
	var kept int
	for range 5 {
		if p, _ := q.pace(task("agent.p", envelope.PriorityUrgent), true, false, now); p == envelope.PriorityUrgent {
			kept++
		} else if p != envelope.PriorityNormal {
			t.Errorf("served as %s", p)
		}
	}
	if kept != 2 {
		t.Errorf("%d tasks stayed urgent", kept)
	}
}

// The documented defaults on the live lane. Tasks of unknown senders are limited and never urgent;
// tasks of known senders are not limited, but only some of them are urgent.
func TestDefaultsOfQuotas(t *testing.T) {
	t.Parallel()
	now := time.Now()
	admitted := func(q *Table, intent string, p envelope.Priority, verified bool) (n int, last envelope.Priority) {
		for n < 3000 {
			e := envelope.New(envelope.TypeTask, "agent.eve", "agent.a", intent, json.RawMessage(`{}`))
			e.Priority = p
			got, err := q.Admit(e, verified, now)
			if err != nil {
				break
			}
			n, last = n+1, got
		}
		return n, last
	}
	q := New(Limits{})
	if n, last := admitted(q, "code.review", envelope.PriorityNormal, false); n != 2000 || last != envelope.PriorityNormal {
		t.Errorf("%d tasks of an unknown sender at once, %s", n, last)
	}
	if n, _ := admitted(q, intents.TaskPause, envelope.PriorityNormal, false); n != 2000 {
		t.Errorf("%d commands at once of a sender over its quota of tasks", n)
	}
	if n, last := admitted(New(Limits{}), "code.review", envelope.PriorityUrgent, true); n != 3000 || last != envelope.PriorityNormal {
		t.Errorf("%d urgent tasks of a known sender at once, the last is %s", n, last)
	}
	for verified, want := range map[bool]envelope.Priority{false: envelope.PriorityHigh, true: envelope.PriorityUrgent} {
		e := envelope.New(envelope.TypeTask, "agent.eve", "agent.a", "code.review", json.RawMessage(`{}`))
		e.Priority = envelope.PriorityUrgent
		if got, err := New(Limits{}).Admit(e, verified, now); got != want || err != nil {
			t.Errorf("urgent, verified %v: %s, %v", verified, got, err)
		}
	}
}
