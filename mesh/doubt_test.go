package mesh_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// wellAnswered sends so many tasks that are answered that the next one has a
// reply subject that served before.
func wellAnswered(t *testing.T, client *mesh.Node) {
	t.Helper()
	for range 64 {
		if _, err := client.Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Who cannot read a task cannot name it either; its sender hears of it long
// before its deadline all the same.
func TestATaskThatNobodyCanReadIsRefusedOnAReplySubjectThatServedBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{Limits: envelope.Limits{MaxBytes: 2000}}), mesh.Agent{Handler: echo})
	client := r.node(mesh.Config{})
	wellAnswered(t, client)
	large := newTask(reviewer, "code.review", `{"text":"`+strings.Repeat("x", 3000)+`"}`)
	reply, err := client.Send(t.Context(), large, mesh.SendOptions{})
	if codeOf(err) != envelope.CodeTooLarge || reply == nil {
		t.Errorf("Send: %v", err)
	}
}

// The error about an unreadable answer says whose fault it is, whatever its reply
// subject served for before.
func TestAnAnswerThatNobodyCanReadEndsATask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"no envelope": {`{"text":"\ud800"}`, "invalid escape"},
		"captured":    {`{"stream":"WORK","seq":7}`, "a JetStream stream captures"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub, err := r.nc.Subscribe(reviewer, func(m *nats.Msg) {
				task := parse(t, m.Data)
				if string(task.Payload) == `{"last":true}` {
					m.Respond([]byte(c.body))
					return
				}
				m.Respond(encode(t, task.Reply(envelope.TypeResult, json.RawMessage(`{}`))))
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sub.Unsubscribe() })
			settle(t, r.nc)
			client := r.node(mesh.Config{})
			wellAnswered(t, client)
			_, err = client.Send(t.Context(), newTask(reviewer, "code.review", `{"last":true}`), mesh.SendOptions{})
			if err == nil || codeOf(err) == envelope.CodeTimeout || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Send: %v", err)
			}
		})
	}
}
