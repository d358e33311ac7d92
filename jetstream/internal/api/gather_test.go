package api

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Who is told that the connection was lost gets his bytes back: he may write other ones into
// them, and those are not published in his name, neither while his message waits for others to be
// published, nor while it is published itself.
func TestTheBytesOfASenderThatIsToldOfALostConnectionAreItsOwn(t *testing.T) {
	t.Parallel()
	for name, publishing := range map[string]bool{"it waits": false, "it is published": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true})
			g := Gather(plain).(*gathered)
			g.publishing.Lock() // the test is a sender that publishes slowly
			first := make(chan error, 1)
			go func() {
				_, err := g.PublishMsg(t.Context(), &nats.Msg{Subject: "s.first"})
				first <- err
			}()
			g.awaitQueued(t, 1)
			told := make(chan error, 1)
			data := []byte("of A")
			go func() {
				_, err := g.PublishMsg(t.Context(), &nats.Msg{Subject: "s.a", Data: data})
				copy(data, "of B") // as soon as it is free
				told <- err
			}()
			g.awaitQueued(t, 2)
			var batch []*nats.Msg
			if publishing {
				batch = g.takeQueue()
			}
			if err := plain.Conn().ForceReconnect(); err != nil {
				t.Fatal(err)
			}
			if !publishing {
				if err := <-told; !errors.Is(err, nats.ErrDisconnected) {
					t.Errorf("A is told %v", err)
				}
			}
			select {
			case err := <-told:
				t.Errorf("A has its bytes back while they are read, and %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			natstest.Eventually(t, "the connection", plain.Conn().IsConnected)
			for _, m := range batch {
				if err := plain.Conn().PublishMsg(m); err != nil {
					t.Error(err)
				}
			}
			g.publishing.Unlock()
			if err := <-first; !errors.Is(err, nats.ErrDisconnected) {
				t.Errorf("the first sender is told %v", err)
			}
			if _, err := g.PublishMsg(t.Context(), &nats.Msg{Subject: "s.last"}); err != nil {
				t.Fatal(err)
			}
			have, err := Newest(t.Context(), plain, "S", "s.a")
			if strings.Contains(string(have.Data), "B") || publishing != (err == nil) {
				t.Errorf("stored for A: %q, %v", have.Data, err)
			}
		})
	}
}

func (g *gathered) awaitQueued(t *testing.T, n int) {
	natstest.Eventually(t, "the queued messages", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.queue) == n
	})
}

// takeQueue takes the queue, as flush does before it publishes it.
func (g *gathered) takeQueue() []*nats.Msg {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := g.queue
	g.queue = nil
	return batch
}

// A follower of a task's replies sees the reply subject of each reply's publisher. It cannot guess
// the next one, to which it could redirect the acknowledgement of its own message.
func TestTheReplySubjectOfAMessageCannotBeGuessed(t *testing.T) {
	t.Parallel()
	g := Gather(stream(t, natsjs.StreamConfig{Name: "S"})).(*gathered)
	seen := map[string]bool{}
	for range 100 {
		m := &nats.Msg{Subject: "x"}
		if _, _, err := g.enqueue(m, make(chan published, 1)); err != nil {
			t.Fatal(err)
		}
		token := strings.TrimPrefix(m.Reply, g.inbox)
		if len(token) < 8 || seen[token[:8]] {
			t.Fatalf("%s is like another", m.Reply)
		}
		seen[token[:8]] = true
	}
	g.takeQueue()
}
