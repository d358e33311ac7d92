package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) {
	natstest.VerifyMain(natstest.AtOnce(m, 16))
}

const patience = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// brief is the context of one of several attempts: a request that reached a server as it
// died is not answered by the next server.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, srv *natsd.Server, opts ...nats.Option) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, srv, opts...))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func start(t testing.TB) natsjs.JetStream {
	t.Helper()
	return connect(t, natstest.Run(t, natsd.Config{JetStream: true}))
}

func apply(t testing.TB, js natsjs.JetStream, opts jetstream.Options) []jetstream.Change {
	t.Helper()
	report, err := jetstream.Apply(testContext(t), js, opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// applyInCluster is apply that tries again: on a busy machine the cluster may have no
// leader for a moment, or its leader may consider a server as gone.
func applyInCluster(t testing.TB, js natsjs.JetStream, opts jetstream.Options) {
	t.Helper()
	var err error
	defer func() {
		if err != nil {
			t.Logf("at last: %v", err)
		}
	}()
	waitFor(t, "the cluster to place the streams", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = jetstream.Apply(ctx, js, opts)
		return err == nil
	})
}

func prefix(t testing.TB, p string) subject.Map {
	t.Helper()
	m, err := subject.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func words(report []jetstream.Change) []string {
	var out []string
	for _, c := range report {
		out = append(out, c.String())
	}
	return out
}
