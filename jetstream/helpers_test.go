package jetstream_test

import (
	"context"
	"strconv"
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

// lagging has direct gets of a subject answered by a replica that lags behind: for some times with
// what is stored now.
func lagging(t testing.TB, js natsjs.JetStream, name, subj string, times int) {
	t.Helper()
	stream, err := js.Stream(testContext(t), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false
	if stream, err = js.UpdateStream(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	last := func() *nats.Msg {
		m, err := stream.GetLastMsgForSubject(t.Context(), subj)
		if err != nil {
			return &nats.Msg{Header: nats.Header{"Status": {"404"}}}
		}
		answer := &nats.Msg{Header: nats.Header{}, Data: m.Data}
		for k, v := range m.Header {
			answer.Header[k] = v
		}
		answer.Header[natsjs.StreamHeader] = append(answer.Header[natsjs.StreamHeader], name)
		answer.Header[natsjs.SubjectHeader] = append(answer.Header[natsjs.SubjectHeader], subj)
		answer.Header[natsjs.SequenceHeader] = append(answer.Header[natsjs.SequenceHeader], strconv.FormatUint(m.Sequence, 10))
		answer.Header[natsjs.TimeStampHeaer] = append(answer.Header[natsjs.TimeStampHeaer], m.Time.UTC().Format(time.RFC3339Nano))
		return answer
	}
	old := last()
	sub, err := js.Conn().Subscribe("$JS.API.DIRECT.GET."+name+"."+subj, func(m *nats.Msg) {
		if times--; times >= 0 {
			_ = m.RespondMsg(&nats.Msg{Header: old.Header, Data: old.Data})
			return
		}
		_ = m.RespondMsg(last())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}
