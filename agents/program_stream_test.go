//go:build unix

package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// A durable task whose stream is not stored holds up no other task of its program: neither while
// its stream waits in memory, nor when there is more of it. What is stored is the beginning of
// the stream.
func TestAStreamThatIsNotStoredHoldsUpOnlyItsTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		words int
		whole bool // all of the stream is stored in the end
	}{
		"it waits":      {500, true},
		"there is more": {2000, false}, // than MaxLine
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			l, p := newLane(t), newProgram(t, "serve", func(c *program.Config) { c.StreamTimeout = 10 * time.Millisecond })
			l.host(&agents.Agent{Program: p, Agent: mesh.Agent{Entity: entity, Handler: p, Concurrency: 3}}, nil)
			until(t, "the agent answers", func() bool { _, err := l.client.Ping(t.Context(), entity); return err == nil })
			js := l.js(l.conn)
			if err := js.DeleteStream(t.Context(), jetstream.StreamReply); err != nil {
				t.Fatal(err)
			}
			var words strings.Builder
			for i := range c.words {
				fmt.Fprintf(&words, "w%d ", i)
			}
			task := l.task(entity, do("stream", words.String()), `{"stream":true}`)
			l.submit(task)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			until(t, "the program has streamed", func() bool {
				reply, err := l.client.Send(ctx, l.task(entity, do("streamed", ""), ""), mesh.SendOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return string(reply.Payload) == fmt.Sprintf(`{"words":%d}`, c.words)
			})
			if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			reply, err := l.client.Result(ctx, task.To, task.ID, mesh.ResultOptions{Follow: true, OnStream: func(e *envelope.Envelope) error {
				var said struct {
					Text    string
					Restart bool // the text so far: the first words were stored after later ones
				}
				err := json.Unmarshal(e.Payload, &said)
				if said.Restart {
					got.Reset()
				}
				got.WriteString(said.Text)
				return err
			}})
			if err != nil || string(reply.Payload) != fmt.Sprintf(`{"text":%q}`, words.String()) {
				t.Errorf("result %v, error %v", reply, err)
			}
			all := strings.ReplaceAll(words.String(), " ", "")
			if !strings.HasPrefix(all, got.String()) || got.Len() == 0 || c.whole != (got.Len() == len(all)) {
				t.Errorf("streamed %q", got.String())
			}
		})
	}
}
