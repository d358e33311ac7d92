package mesh

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
)

// The holder of a live task is the worker that took it and has not answered it. A sender
// does not know it: the server chooses a worker of the queue group. A holder that has a
// task for nameAfter names itself on the reply subject, if the sender marked that subject
// as one where it expects more than answers. So the sender can watch its holder
// (holder_watch.go), and need not wait for the deadline when the holder dies.

const (
	// HeaderHolder is on a message without a body to the reply subject of a live task: it
	// names the worker that has the task. [HeaderTask] is beside it.
	HeaderHolder = "Aee-Holder"
	// HeaderTask is the id of the task that a message without an envelope is about.
	HeaderTask = "Aee-Task"

	// nobodyHolds in place of a holder: the worker that named itself has handed the task
	// on, and its receiver may name itself.
	nobodyHolds = "-"
)

// nameAfter is how long a worker has a task before it names itself: most tasks are
// answered before, and cost no second message.
const nameAfter = 100 * time.Millisecond

// nameHolder tells the task's sender who has the task. Nothing comes after the terminal
// envelope.
func (h *host) nameHolder(t *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return
	}
	t.named = true
	back := h.node.backAfter().Milliseconds()
	h.tellHolder(t, fmt.Sprintf("%s %s %d %s", h.Entity, h.id, back, h.node.conn.ConnectedServerId()))
}

// unnameHolder takes the name back before another agent gets the task: this worker may
// stop, and the sender must not take that for the end of its task.
func (h *host) unnameHolder(t *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.named {
		h.tellHolder(t, nobodyHolds)
	}
}

func (h *host) tellHolder(t *Task, holder string) {
	_, id := t.answered()
	if err := h.node.publish(t.reply, nil, nats.Header{HeaderHolder: {holder}, HeaderTask: {id}}); err != nil {
		h.log.Debug("sender not told who has its task", "id", t.Envelope.ID, "err", err)
	}
}

// backAfter is how long after its connection was lost this process tries to connect again.
func (n *Node) backAfter() time.Duration {
	o := &n.conn.Opts
	if o.CustomReconnectDelayCB != nil {
		return o.CustomReconnectDelayCB(1)
	}
	return o.ReconnectWait + max(o.ReconnectJitter, o.ReconnectJitterTLS)
}

// holder is a worker that has named itself.
type holder struct {
	ping   string        // the subject that it alone answers; "": there is none
	back   time.Duration // see Node.backAfter
	server string        // that it is connected to, as the server calls itself
}

// maxBack bounds what a worker may say of itself.
const maxBack = 10 * time.Second

var instanceID = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// holderOf reads the message of a holder. It reports false for any other message. What is
// malformed names no holder.
func holderOf(msg *nats.Msg) (h holder, is bool) {
	if len(msg.Data) > 0 || len(msg.Header) == 0 || len(msg.Header[HeaderHolder]) == 0 {
		return holder{}, false
	}
	f := strings.Split(msg.Header.Get(HeaderHolder), " ")
	if len(f) != 4 || subject.ValidateEntity(f[0]) != nil || !instanceID.MatchString(f[1]) {
		return holder{}, true
	}
	ms, err := strconv.ParseUint(f[2], 10, 31)
	if err != nil {
		return holder{}, true
	}
	h.back, h.server = min(time.Duration(ms)*time.Millisecond, maxBack), f[3]
	h.ping, _ = micro.ControlSubject(micro.PingVerb, subject.ServiceName(f[0]), f[1])
	return h, true
}

// wantsHolder reports whether a task's sender is to learn who has the task.
func (t *Task) wantsHolder() bool { return t.run == nil && rpc.Marked(t.reply) }
