package quota

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// At least the last maxCounted messages are remembered, and not all of them for ever.
func TestTheLastMessagesAreRemembered(t *testing.T) {
	t.Parallel()
	var c Counted
	for seq := range uint64(3 * maxCounted) {
		c.Add(seq)
	}
	for seq := range uint64(maxCounted) {
		if last := 3*maxCounted - 1 - seq; !c.Has(last) {
			t.Fatalf("message %d is forgotten", last)
		}
	}
	if c.Has(0) {
		t.Error("the first message is still remembered")
	}
}

// Each limit of unknown senders has its default by itself.
func TestLimitsOfUnknownSendersHaveTheirDefaults(t *testing.T) {
	t.Parallel()
	for limits, atOnce := range map[*Limits]int{{}: 2000, {UnknownRate: 0.001}: 2000, {UnknownBurst: 3}: 3, {UnknownRate: 5, UnknownBurst: 3}: 3} {
		q, now := New(*limits), time.Now()
		e := envelope.New(envelope.TypeTask, "agent.eve", "agent.a", "code.review", json.RawMessage(`{}`))
		n := 0
		for ; n < 3000; n++ {
			if _, err := q.Admit(e, false, now); err != nil {
				break
			}
		}
		if n != atOnce {
			t.Errorf("%+v: %d at once, want %d", *limits, n, atOnce)
		}
	}
}

// One allowance counts the messages that a worker draws and those that it overhears, and
// each message once.
func TestAMessageCountsOnce(t *testing.T) {
	t.Parallel()
	var c Counted
	q, now := New(Limits{UnknownRate: 1, UnknownBurst: 2}), time.Now()
	command := func(from string) *envelope.Envelope {
		return envelope.New(envelope.TypeTask, from, "agent.a", intents.TaskSteer, json.RawMessage(`{}`))
	}
	drawn := func(seq uint64, from string) bool {
		_, problem := c.Pace(q, seq, command(from), false, now)
		return problem == nil
	}
	overheard := func(seq uint64, from string) bool { return c.Overheard(q, seq, command(from), false, now) }
	const eve, bob = "agent.eve", "agent.bob"
	for i, step := range []struct {
		does func(uint64, string) bool
		seq  uint64
		from string
		want bool
	}{
		{drawn, 1, eve, true}, {overheard, 1, eve, true}, // once
		{overheard, 2, eve, true}, {drawn, 2, eve, true}, {overheard, 2, eve, true},
		{overheard, 3, eve, false}, {overheard, 3, eve, false}, // counts none
		{drawn, 3, eve, false}, {overheard, 3, eve, false}, // delayed
		{drawn, 3, eve, true}, {overheard, 3, eve, true}, // it has waited
		{overheard, 4, bob, true}, {drawn, 5, bob, true}, {overheard, 6, bob, false}, {drawn, 7, bob, false},
	} {
		if got := step.does(step.seq, step.from); got != step.want {
			t.Errorf("step %d, message %d of %s: %t", i, step.seq, step.from, got)
		}
	}
	// All unknown senders together have ten times as much.
	var within int
	for i := range uint64(40) {
		if overheard(100+i, "agent.n"+string(rune('a'+i))) {
			within++
		}
	}
	if within != 20-4 { // two of eve, two of bob
		t.Errorf("%d unknown senders are within their limit together", within)
	}
	if !c.Overheard(New(Limits{UnknownRate: -1}), 1000, command(eve), false, now) || !c.Overheard(New(Limits{}), 1001, command(eve), true, now) {
		t.Error("a sender without a limit is over it")
	}
}
