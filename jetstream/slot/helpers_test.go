package slot_test

import (
	"context"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// brief is the context of one of several attempts.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, srv *natsd.Server) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func start(t testing.TB) natsjs.JetStream {
	t.Helper()
	return connect(t, natstest.Run(t, natsd.Config{JetStream: true}))
}

// apply makes the bucket of slots, as package jetstream does.
func apply(t testing.TB, js natsjs.JetStream) {
	t.Helper()
	_, err := js.CreateKeyValue(testContext(t), natsjs.KeyValueConfig{Bucket: slot.Bucket, LimitMarkerTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
}
