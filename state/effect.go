package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// EffectKey is the idempotency key of a tool call: the run, the turn of the model that
// asked for the call, from 1, and the call's position in that turn, from 1. A repeated
// call has the same key, whichever worker repeats it. The key does not use the model
// provider's call id, which is not unique within a run for every provider.
func EffectKey(run string, turn, call int) string {
	return run + "." + strconv.Itoa(turn) + "." + strconv.Itoa(call)
}

// ArgsHash is "sha256:" and the SHA-256, in hex, of a call's arguments in canonical JSON,
// or of the raw arguments if they have no canonical form.
func ArgsHash(args json.RawMessage) string {
	text, err := envelope.Canonical(args)
	if err != nil {
		text = args
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Effect returns the ledger entry with an idempotency key, nil if there is none. The
// caller may change it in place.
func (c *Checkpoint) Effect(key string) *Effect {
	for i := len(c.Mesh.Effects) - 1; i >= 0; i-- { // the last entries are looked up most often
		if c.Mesh.Effects[i].Key == key {
			return &c.Mesh.Effects[i]
		}
	}
	return nil
}

// Unknown returns the effects whose outcome a person has to state.
func (c *Checkpoint) Unknown() []Effect {
	var all []Effect
	for _, e := range c.Mesh.Effects {
		if e.Status == EffectUnknown {
			all = append(all, e)
		}
	}
	return all
}

// The outcomes that a person can state for an effect with an unknown outcome.
const (
	SettleDone   = "done"   // it happened; result, if given, is what it returned
	SettleFailed = "failed" // it did not happen, or failed; the model gets the reason
	SettleRepeat = "repeat" // call it again, under the same idempotency key
)

// ErrSettle is wrapped by the errors of Settle.
var ErrSettle = errors.New("cannot be settled")

// Settle records the outcome that a person states for an effect with an unknown outcome.
// call is a tool call id or an idempotency key. It returns how many unknown effects are
// left: at 0 the run may continue. On error c is unchanged.
//
// The result of a done effect is JSON; without one the model is told that the effect is
// settled as done, and by whom.
func (c *Checkpoint) Settle(call, outcome string, result json.RawMessage, reason, by string, now time.Time) (left int, err error) {
	at := slices.IndexFunc(c.Mesh.Effects, func(e Effect) bool {
		return e.Status == EffectUnknown && (e.ID == call || e.Key == call)
	})
	if at < 0 {
		return 0, c.settleError(call)
	}
	e := c.Mesh.Effects[at]
	e.Epoch, e.SettledBy, e.Result, e.Error = c.Mesh.Epoch, by, nil, ""
	switch outcome {
	case SettleDone:
		if e.Result = result; len(result) == 0 {
			b := append([]byte(nil), `{"settled":`...)
			b = envelope.AppendString(b, cleanText(settledWords("done", reason, by)))
			e.Result = append(b, '}')
		} else if !json.Valid(result) {
			return 0, fmt.Errorf("call %s %w: the result is not valid JSON", clip.Text(call, 80), ErrSettle)
		}
		e.Status, e.DoneAt = EffectDone, now
	case SettleFailed:
		e.Status, e.DoneAt, e.Error = EffectFailed, now, settledWords("not done", reason, by)
	case SettleRepeat:
		e.Status, e.DoneAt = EffectPending, time.Time{}
	default:
		return 0, fmt.Errorf("call %s %w as %q: want %s, %s or %s", clip.Text(call, 80), ErrSettle, clip.Text(outcome, 80), SettleDone, SettleFailed, SettleRepeat)
	}
	c.Mesh.Effects = slices.Clone(c.Mesh.Effects)
	c.Mesh.Effects[at] = e
	if outcome == SettleRepeat {
		c.Doc.PendingToolCalls = slices.Clone(c.Doc.PendingToolCalls)
		for i, p := range c.Doc.PendingToolCalls {
			if p.ID == e.ID {
				c.Doc.PendingToolCalls[i].Status = aaif.ToolCallPending
			}
		}
	}
	if left = len(c.Unknown()); left == 0 {
		c.Doc.ApprovalRequest = nil
	}
	return left, nil
}

// settleError returns the reason why a call cannot be settled.
func (c *Checkpoint) settleError(call string) error {
	var unknown []string
	for _, e := range c.Mesh.Effects {
		switch {
		case e.Status == EffectUnknown:
			unknown = append(unknown, e.ID)
		case e.ID == call || e.Key == call:
			return fmt.Errorf("call %s %w: it is %s", clip.Text(call, 80), ErrSettle, strings.ReplaceAll(string(e.Status), "_", " "))
		}
	}
	switch {
	case len(unknown) == 0 && call == "":
		return fmt.Errorf("the run %w: none of its calls has an unknown outcome", ErrSettle)
	case len(unknown) == 0:
		return fmt.Errorf("call %s %w: no call of the run has an unknown outcome", clip.Text(call, 80), ErrSettle)
	}
	return fmt.Errorf("call %s %w: the run has no such call; calls with an unknown outcome: %s", clip.Text(call, 80), ErrSettle, clip.Text(strings.Join(unknown, ", "), 80))
}

func settledWords(what, reason, by string) string {
	s := "settled as " + what
	if by != "" {
		s += " by " + by
	}
	if reason != "" {
		s += ": " + reason
	}
	return s
}
