package mesh

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// The holder of a live task is the worker that took it and has not answered it. A sender
// does not know the holder: the server chooses a worker of the queue group. A holder that
// has a task for nameAfter sends its name to the reply subject, if the sender marked that
// subject as one on which it expects more than answers. So the sender can watch the holder
// (internal/holders), and need not wait for the deadline when the holder dies.

// nameAfter is how long a worker has a task before it names itself. Most tasks are
// answered earlier, and so cost no second message.
const nameAfter = 100 * time.Millisecond

// nameHolder sends the name of this worker to the task's sender, unless the terminal
// envelope has been sent.
func (h *host) nameHolder(t *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return
	}
	t.named = true
	back := h.node.prober.BackAfter().Milliseconds()
	h.tellHolder(t, fmt.Sprintf("%s %s %d %s", h.Entity, h.id, back, h.node.conn.ConnectedServerId()))
}

// unnameHolder withdraws the name before another agent gets the task. After that this
// worker may stop, and the sender must not conclude that its task is lost.
func (h *host) unnameHolder(t *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.named {
		h.tellHolder(t, holders.None)
	}
}

func (h *host) tellHolder(t *Task, holder string) {
	_, id := t.originalTask()
	if err := h.node.sender.Publish(t.reply, nil, nats.Header{wire.HeaderHolder: {holder}, wire.HeaderTask: {id}}); err != nil {
		h.log.Debug("holder not sent to the task's sender", "id", t.Envelope.ID, "err", err)
	}
}
