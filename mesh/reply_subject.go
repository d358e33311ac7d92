package mesh

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A live task is answered on the reply subject of its NATS message. Replies to durable
// tasks are stored on another subject: Map.Reply of envelope/subject.

// IsReplyInbox reports whether workers answer on a reply subject, or on the subjects below a
// prefix: its first token begins with "_", or it is a single token that does not begin
// with "$".
//
// The server does not check the reply subject of a message against the sender's
// permissions, and the worker may publish where the sender may not. So a
// sender could have a worker publish where the sender itself may not: to the record of a
// run in $KV.aee_state, to $JS.API, into another agent's queue, onto the bus. All
// subjects of meshes (with any prefix), of JetStream, and most of other programs have at
// least two tokens, and their first token does not begin with "_".
func IsReplyInbox(reply string) bool {
	return strings.HasPrefix(reply, "_") || reply != "" && reply[0] != '$' && !strings.Contains(reply, ".")
}

// requireInbox wraps a handler and drops messages whose reply subject is not a reply
// inbox. They are not answered, because an answer would have to go to that subject.
func (h *host) requireInbox(handle nats.MsgHandler) nats.MsgHandler {
	return func(msg *nats.Msg) {
		if msg.Reply == "" || IsReplyInbox(msg.Reply) {
			handle(msg)
			return
		}
		h.counts.dropped.Add(1)
		h.node.tel.Refused(h.Entity, "reply_subject")
		h.counts.noInbox.Do(func() {
			h.log.Warn("dropped the first message whose reply subject is not a reply inbox", "subject", clip.Text(msg.Subject, 128), "reply", clip.Text(msg.Reply, 128))
		})
	}
}
