package mesh

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// The reply subject of a NATS message is where a live task is answered. The subject on
// which replies to durable tasks are stored is another one: Map.Reply of envelope/subject.

// IsInbox reports whether workers answer on a reply subject, or on those below a prefix:
// its first token begins with "_", or it is one token alone and not one of the server's.
//
// A server does not hold the reply subject of a message to the permissions of its
// sender, and allow_responses lets the worker publish there whatever the subject is. So a
// sender could have a worker publish where the sender itself may not: to the record of a
// run in $KV.aee_state, to $JS.API, into another agent's queue, onto the bus. All that
// the meshes of an account have, whatever their prefix, all of JetStream, and most of what
// other programs listen to, has a first token and more, and none of these begins with "_".
func IsInbox(reply string) bool {
	return strings.HasPrefix(reply, "_") || reply != "" && reply[0] != '$' && !strings.Contains(reply, ".")
}

// fromInboxes drops messages that are to be answered elsewhere than on an inbox. They
// get no answer: there is no place for one.
func (h *host) fromInboxes(handle nats.MsgHandler) nats.MsgHandler {
	return func(msg *nats.Msg) {
		if msg.Reply == "" || IsInbox(msg.Reply) {
			handle(msg)
			return
		}
		h.counts.dropped.Add(1)
		h.node.tel.refused(h, "reply_subject")
		h.counts.noInbox.Do(func() {
			h.log.Warn("messages dropped whose reply subject is no inbox; this is the first", "subject", clip.Text(msg.Subject, 128), "reply", clip.Text(msg.Reply, 128))
		})
	}
}
