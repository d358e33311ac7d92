package traffic

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/tree"
)

// While more messages are replayed than fit into the queue of live messages, no live message
// is missed, and each message is shown once.
func TestALongReplayLeavesRoomForLiveMessages(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	conn, peer := natstest.Conn(t, srv), natstest.Conn(t, srv)
	js, err := natsjs.New(conn)
	if err == nil {
		_, err = jetstream.Apply(t.Context(), js, jetstream.Options{Only: []string{jetstream.StreamBus}})
	}
	if err != nil {
		t.Fatal(err)
	}
	event := func(n int) []byte {
		e := envelope.New(envelope.TypeEvent, "agent.a", "bus.ops", "ops.done", json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))
		data, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const stored = watchQueue + 500
	for n := range stored {
		if err := peer.Publish("bus.ops", event(n)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "the events are stored", func() bool {
		s, err := js.Stream(t.Context(), jetstream.StreamBus)
		return err == nil && s.CachedInfo().State.Msgs == stored
	})

	var out strings.Builder
	app := &session.App{Term: term.New(&out, io.Discard, func(string) string { return "" })}
	w := &watcher{app: app, flags: &watchFlags{since: time.Hour}, seen: map[string]bool{}}
	live := make(chan *nats.Msg, watchQueue)
	patterns := []string{"bus.>", "_INBOX.>"}
	if heard, err := w.listen(t.Context(), conn, patterns, live); err != nil || len(heard) != len(patterns) {
		t.Fatal(heard, err)
	}
	if err := peer.Publish("bus.ops", event(stored)); err != nil { // is live, and stored while it is replayed
		t.Fatal(err)
	}
	if err := w.replay(t.Context(), conn, []string{"bus.>"}); err != nil {
		t.Fatal(err)
	}
	if err := peer.Publish("bus.ops", event(stored+1)); err != nil {
		t.Fatal(err)
	}
	for w.shown < stored+2 {
		select {
		case msg := <-live:
			w.message(time.Now(), msg.Subject, msg.Header, msg.Data, false)
		case <-time.After(time.Minute):
			t.Fatalf("%d messages are shown, want %d", w.shown, stored+2)
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines != stored+2 || len(live) > 0 {
		t.Errorf("%d lines, want %d; %d live messages are left", lines, stored+2, len(live))
	}
	if err := conn.LastError(); err != nil {
		t.Error(err)
	}
}

// An envelope that is larger than a server takes by default is shown, in both encodings.
func TestLargeEnvelopesAreShown(t *testing.T) {
	t.Parallel()
	var out, diagnostics strings.Builder
	app := &session.App{Term: term.New(&out, io.Discard, func(string) string { return "" }), Log: slog.New(slog.NewTextHandler(&diagnostics, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	w := &watcher{app: app, flags: &watchFlags{}, seen: map[string]bool{}}
	e := envelope.New(envelope.TypeEvent, "agent.a", "bus.ops", "ops.done", json.RawMessage(`{"text":"`+strings.Repeat("x", 2<<20)+`"}`))
	for kind, encode := range map[string]func([]byte) ([]byte, error){envelope.ContentJSON: e.AppendJSON, envelope.ContentCBOR: e.AppendCBOR} {
		data, err := encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.message(time.Now(), "bus.ops", nats.Header{"Content-Type": {kind}}, data, false)
	}
	if w.shown != 2 {
		t.Errorf("%d are shown: %s", w.shown, &diagnostics)
	}
	r := &treeReader{app: app, corr: e.Corr, builder: tree.New(e.Corr)}
	if data, err := e.AppendJSON(nil); err != nil {
		t.Fatal(err)
	} else if got, _ := r.take(time.Now(), data); got == nil {
		t.Errorf("not in the tree: %s", &diagnostics)
	}
}
