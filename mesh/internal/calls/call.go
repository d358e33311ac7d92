package calls

import (
	"errors"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// Call is a task that an agent sends while it works on one of its own.
type Call = client.Call

// Answer is the outcome of a [Call].
type Answer = client.Answer

// ErrInterrupted: a call stopped waiting, because the caller's run was asked to pause
// or to move, or because its worker drains. The called task goes on. The handler should
// commit now, which parks or releases the run; if the commit succeeds, the request was
// withdrawn. Another Call with the same key returns the answer.
var ErrInterrupted = errors.New("the run was asked to stop while it waited for a call, which goes on")

// maxCallKey bounds the key of a call, in bytes.
const maxCallKey = 256

// readReply sets the answer's Entity and Usage from the terminal envelope.
func readReply(a *Answer) {
	if a.Envelope == nil {
		return
	}
	a.Entity = a.Envelope.From
	var result struct {
		Usage struct {
			Input  int64     `json:"input_tokens"`
			Output int64     `json:"output_tokens"`
			Cost   model.USD `json:"cost_usd"`
		} `json:"usage"`
	}
	if a.Envelope.Type == envelope.TypeResult && wire.ReadJSON(a.Envelope.Payload, &result) == nil {
		u := result.Usage
		a.Usage = state.Usage{InputTokens: max(0, u.Input), OutputTokens: max(0, u.Output), CostNanoUSD: max(0, int64(u.Cost))}
	}
}

// takeReply sets the envelope that answers the call, and returns its error if it is one.
func takeReply(a *Answer, reply *envelope.Envelope) error {
	a.Envelope = reply
	if reply.Type == envelope.TypeError {
		return envelope.ErrorOf(reply)
	}
	return nil
}
