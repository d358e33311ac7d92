package mesh_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// A task that waited for a connection may begin after its sender has given up, because the agent counts
// its timeout from its arrival. A cancel follows it, unless the sender wants none. It also follows a task
// whose connection was lost since, because it may not have arrived, or later; a task whose connection is
// still there ends by its own timeout.
func TestATaskThatWaitedForAConnectionIsCancelled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent     bool // over a connection
		lost     bool // the connection at the beginning, before the task was sent or after that
		early    bool // there is a connection again before the deadline
		noCancel bool
		timeout  time.Duration
		none     bool // no cancel
	}{
		"no connection at the deadline": {timeout: 20 * time.Millisecond, lost: true},
		"another connection by then":    {timeout: 400 * time.Millisecond, lost: true, early: true},
		"the task may go on":            {timeout: 20 * time.Millisecond, lost: true, noCancel: true, none: true},
		"its connection is lost":        {timeout: 400 * time.Millisecond, sent: true, lost: true, early: true},
		"nothing is lost":               {timeout: 20 * time.Millisecond, sent: true, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			control, tasks := r.listen("aee.ctl.agent.silent"), r.listen("agent.silent")
			line, nc := r.cord(nats.ReconnectWait(time.Hour))
			client := r.nodeOn(nc, mesh.Config{Entity: ada})
			sever := func() {
				line.sever()
				eventually(t, "the connection is gone", func() bool { return !nc.IsConnected() })
			}
			if !c.sent {
				sever()
			}
			task := newTask("agent.silent", "code.review", `{}`)
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := client.Send(ctx, task, mesh.SendOptions{NoCancel: c.noCancel})
				ended <- err
			}()
			mend := func() {
				line.mend()
				if err := nc.ForceReconnect(); err != nil {
					t.Error(err)
				}
			}
			if c.sent {
				equal(t, "the task", parse(t, within(t, "the task", tasks).Data).ID, task.ID)
				if c.lost {
					sever()
					mend()
				}
			} else if c.early {
				eventually(t, "the task waits for a connection", func() bool {
					n, err := nc.Buffered()
					return n > 0 && err == nil
				})
				mend()
			}
			if err := within(t, "Send to return", ended); codeOf(err) != envelope.CodeTimeout {
				t.Errorf("Send: %v", err)
			}
			if c.lost && !c.early {
				mend()
			}
			eventually(t, "the connection is back", nc.IsConnected)
			if !c.sent {
				equal(t, "the task", parse(t, within(t, "the task", tasks).Data).ID, task.ID)
			}
			settle(t, nc)
			settle(t, r.nc)
			var cancelled []string
			for _, msg := range drained(control) {
				var cmd intents.CancelTask
				if e := parse(t, msg.Data); e.Intent != intents.TaskCancel || json.Unmarshal(e.Payload, &cmd) != nil {
					t.Errorf("got %s", e.Intent)
				}
				cancelled = append(cancelled, cmd.ID)
			}
			want := []string{task.ID}
			if c.none {
				want = nil
			}
			equal(t, "cancels", cancelled, want)
		})
	}
}
