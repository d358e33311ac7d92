package mesh

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// onAsk receives plain text on aee.ask.<entity> and converts it to a task. Nothing
// proves who sent the text, so a worker that requires signatures refuses it.
func (in *intake) onAsk(msg *nats.Msg) {
	from := "human.unknown"
	if name := msg.Header.Get(wire.HeaderFrom); name != "" {
		from = name
	}
	env := envelope.New(envelope.TypeTask, from, in.host.Entity, intents.AgentAsk, nil)
	t := &Task{Envelope: env, host: in.host, reply: msg.Reply, ask: true, queued: time.Now()}
	if msg.Reply == "" {
		in.host.counts.dropped.Add(1)
		return
	}
	if in.host.stopping.Load() {
		in.host.answer(t, drainingError(in.host.Entity))
		return
	}
	problem := in.question(env, msg.Data)
	if err := subject.ValidateEntity(from); err != nil {
		env.From = "human.unknown"
		problem = envelope.Errorf(envelope.CodeInvalidEnvelope, "header %s: %v", wire.HeaderFrom, err)
	}
	if problem == nil && in.host.node.cfg.Verifier.Mode == sign.Required {
		problem = envelope.Errorf(envelope.CodeSigRequired, "this worker requires signed envelopes, and plain text cannot be signed; send a task to %s", in.host.live)
	}
	if problem == nil {
		env.Priority, problem = in.host.node.quotas.Admit(env, false, t.queued)
	}
	if problem != nil {
		in.host.counts.refused.Add(1)
		in.host.service.Stats[service.Ask].Count(problem)
		in.host.answer(t, problem)
		return
	}
	wire.LogReceived(in.host.log, env)
	if raw, err := env.AppendJSON(nil); err == nil {
		in.host.node.journal.RememberReceived(in.host.Entity, env, raw, false)
	}
	in.host.accept(t, msg.Header)
}

// question sets the task's payload: the body itself if it is a valid JSON object and
// the agent has a DefaultIntent, else {"text": body}.
func (in *intake) question(env *envelope.Envelope, body []byte) *envelope.Error {
	if !utf8.Valid(body) {
		in.host.counts.malformed.Add(1)
		return envelope.Errorf(envelope.CodeEncoding, "the text is not valid UTF-8")
	}
	if limit := in.host.node.limits.MaxBytes; limit > 0 && len(body) > limit {
		return envelope.Errorf(envelope.CodeTooLarge, "%d bytes, the limit is %d", len(body), limit)
	}
	if in.host.DefaultIntent != "" && len(body) > 0 && body[0] == '{' {
		env.Payload = body
		if env.Validate() == nil {
			return nil
		}
	}
	env.Payload = append(envelope.AppendString([]byte(`{"text":`), string(body)), '}')
	return nil
}

// sendText answers plain text: with the text alone if the payload is {"text": …}, else
// with the payload's JSON. For an error it sends one line with the code and the message.
func (h *host) sendText(t *Task, e *envelope.Envelope, problem *envelope.Error) error {
	if e.Type == envelope.TypeStream {
		return nil
	}
	if problem != nil {
		return h.node.sender.Publish(t.reply, fmt.Appendf(nil, "error: %s: %s", problem.Code, problem.Message), nats.Header{
			micro.ErrorHeader:     {wire.HeaderText(problem.Message)},
			micro.ErrorCodeHeader: {wire.HeaderText(string(problem.Code))},
		})
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return fault.Output(err)
	}
	h.node.journal.RememberSent(h.Entity, e, raw, false)
	return h.node.sender.Publish(t.reply, wire.PlainText(e.Payload), t.replyHeader(e, nil))
}
