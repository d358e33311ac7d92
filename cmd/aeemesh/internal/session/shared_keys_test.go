package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// onMessage is a log that calls a function when a message is logged.
type onMessage struct {
	slog.Handler
	begins string
	call   func()
}

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.begins) {
		h.call()
	}
	return nil
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }

// A shared key that is deleted after the list of keys was read, and before they are followed, is not
// trusted, as one that is deleted later.
func TestASharedKeyThatIsDeletedBeforeItIsFollowed(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	a := &App{}
	js, m, err := a.Streams(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{Map: m}); err != nil {
		t.Fatal(err)
	}
	records, err := a.SharedKeys(conn)
	if err != nil {
		t.Fatal(err)
	}
	put := func(kid string, value []byte) {
		t.Helper()
		if _, err := records.Create(t.Context(), kid, value); err != nil {
			t.Fatal(err)
		}
	}
	share := func(kid string) {
		t.Helper()
		_, key, err := sign.NewKey(kid, sign.Ed25519, "human.ada")
		if err != nil {
			t.Fatal(err)
		}
		record, err := key.Record()
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		put(kid, value)
	}
	share("goes")
	share("stays")
	put("bad", []byte("no record"))
	a.Log = slog.New(onMessage{begins: "the shared record of a key cannot be read", call: func() { // after the list
		deletion := &nats.Msg{Subject: "$KV.aee_keys.goes", Header: nats.Header{"KV-Operation": {"DEL"}}}
		if _, err := js.PublishMsg(t.Context(), deletion); err != nil {
			t.Error(err)
		}
		share("last")
	}})
	ring := &sign.Ring{}
	stop, err := a.WatchSharedKeys(t.Context(), conn, ring)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	natstest.Eventually(t, "the keys are followed", func() bool { _, known := ring.Lookup("last"); return known })
	if _, known := ring.Lookup("stays"); !known {
		t.Error("a key that stays is not trusted")
	}
	if _, known := ring.Lookup("goes"); known {
		t.Error("a key that was deleted is trusted")
	}
}

// While JetStream is away, a worker with the printed permissions asks nothing that the server refuses,
// and knows that the bucket is not there.
func TestReadingSharedKeysNeedsThePrintedPermissionsOnly(t *testing.T) {
	t.Parallel()
	var m subject.Map
	const inbox = "_INBOX.agent=2Ex"
	p := perms.SharedKeys(m)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{{Name: "u", Password: "p", Permissions: &natsd.Permissions{
		Publish: natsd.Subjects{Allow: p.Publish}, Subscribe: natsd.Subjects{Allow: append(p.Subscribe, inbox+".>")},
	}}}})
	conn := natstest.Conn(t, srv, nats.UserInfo("u", "p"), nats.CustomInboxPrefix(inbox), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		t.Errorf("refused: %v", err)
	}))
	records, err := (&App{}).SharedKeys(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := records.List(t.Context()); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("the list of keys, without the bucket: %v", err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}
