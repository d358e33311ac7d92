package answers

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
)

// FromPlatform converts the reply of another platform to a task of entity's. A reply that
// is signed with a key trusted here is kept unchanged. Of any other reply only type
// and payload are used: the envelope is built here, from the task, and signed with the
// agent's key (nil: unsigned). So a peer cannot get an envelope of its own making
// signed, and its unsigned replies never look signed by it.
//
// It fails if the reply answers another task, or if its signature is wrong. If the reply cannot be
// signed here, because of a number that is no double, the error is E_OUTPUT_SCHEMA.
func (r *Reader) FromPlatform(entity string, task, env *envelope.Envelope, signer *sign.Signer, now time.Time) (*envelope.Envelope, error) {
	switch {
	case env.Type != envelope.TypeStream && !env.Type.Terminal():
		return nil, fmt.Errorf("an envelope of type %s is not a reply", env.Type)
	case env.From != entity, env.To != task.From, env.Intent != task.Intent, env.Corr != task.Corr, env.ReplyTo != task.ID:
		return nil, errors.New("it answers another task")
	case env.Requires != nil:
		return nil, errors.New("a reply requires nothing")
	}
	identity, err := r.Verifier.Verify(env, now)
	if err != nil {
		if code := fault.ForPeer(err).Code; code != envelope.CodeKeyUnknown && code != envelope.CodeSigRequired {
			return nil, err
		}
	}
	// The id becomes a Nats-Msg-Id. With a dot it may equal the Nats-Msg-Id of another
	// message, which the server would then drop as a duplicate (docs/nats-binding.md).
	if identity.Signed && !strings.Contains(env.ID, ".") {
		return env, nil
	}
	return own(entity, task, env.Type, env.Payload, signer)
}

// Failed returns the reply that ends a task of entity's with an error, signed with the agent's key
// (nil: unsigned).
func Failed(entity string, task *envelope.Envelope, problem *envelope.Error, signer *sign.Signer) (*envelope.Envelope, error) {
	return own(entity, task, envelope.TypeError, problem.Payload(), signer)
}

// own returns a reply to a task of entity's that is made here.
func own(entity string, task *envelope.Envelope, kind envelope.Type, payload json.RawMessage, signer *sign.Signer) (*envelope.Envelope, error) {
	reply := task.Reply(kind, payload)
	reply.From = entity
	if signer == nil {
		return reply, nil
	}
	if err := signer.Sign(reply); errors.Is(err, envelope.ErrNumber) {
		return nil, fault.Output(err)
	} else if err != nil {
		return nil, err
	}
	return reply, nil
}
