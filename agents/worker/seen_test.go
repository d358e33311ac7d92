package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// windowOf starts to use the mesh's replay window as a worker with --replay-scope auto does.
func windowOf(t *testing.T, js natsjs.JetStream, node mesh.Config) (cfg mesh.Config, log *natstest.Buffer) {
	t.Helper()
	log = &natstest.Buffer{}
	w, err := New(Config{Agents: []Agent{{As: "agent.one", Handler: mesh.HandlerFunc(nil)}}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); w.later.Wait() })
	cfg = node
	cfg.ReplayWindow = max(cfg.ReplayWindow, time.Minute)
	if err := w.useSeen(ctx, js, subject.Map{}, &cfg); err != nil {
		t.Fatal(err)
	}
	return cfg, log
}

// outageOf makes the streams and buckets of a server whose answers can be taken away.
func outageOf(t *testing.T, srv *natsd.Server) *natstest.Outage {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	return natstest.NewOutage(t, srv)
}

func claim(t *testing.T, cfg mesh.Config, by string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	return cfg.Seen.Claim(ctx, "agent.one", "an-id-of-a-task", by)
}

// A bucket that exists, and does not answer while the worker starts, is asked until it answers.
// Until then no id is taken for new: the worker that requires signatures refuses tasks.
func TestTheReplayWindowIsAskedUntilItAnswers(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	outage := outageOf(t, srv)
	outage.RefuseFirst(2)
	cfg, log := windowOf(t, outage.JetStream(t, natstest.Conn(t, srv)), mesh.Config{})
	if cfg.Seen == nil {
		t.Fatalf("ids are remembered by the process alone; the log is %s", log)
	}
	if holder, err := claim(t, cfg, "first"); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("before it has answered: holder %q, %v", holder, err)
	}
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log is %q", log)
	}
	natstest.Eventually(t, "the bucket is used", func() bool {
		holder, err := claim(t, cfg, "second")
		return err == nil && holder == "second"
	})
	outage.RefuseFirst(0)
	if holder, err := claim(t, cfg, "third"); err != nil || holder != "second" {
		t.Errorf("an id that was claimed: holder %q, %v", holder, err)
	}
	recordedSoon(t, cfg)
}

// recordedSoon fails the test if claims are not said to be recorded from a minute after the bucket was
// made, which is just now.
func recordedSoon(t *testing.T, cfg mesh.Config) {
	t.Helper()
	window, _ := cfg.Seen.(interface{ KeepsSince() time.Time })
	if window == nil {
		t.Fatal("claims are taken for recorded since always")
	}
	if d := time.Until(window.KeepsSince()); d < 10*time.Second || d > time.Minute {
		t.Errorf("claims are taken for recorded from in %v on", d)
	}
	if since := window.KeepsSince(); since == since.Round(0) {
		t.Errorf("from %v on by the wall clock, which may be set", since)
	}
}

// A worker that starts after the bucket was made knows as well as an earlier one that a task may have been
// moved to the queue without a record before that.
func TestAWorkerThatStartsLaterKnowsSinceWhenClaimsAreRecorded(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	cfg, _ := windowOf(t, outageOf(t, srv).JetStream(t, natstest.Conn(t, srv)), mesh.Config{Verifier: sign.Verifier{Mode: sign.Required}})
	recordedSoon(t, cfg)
	if d := time.Since(recordedSince(time.Hour)); d < 58*time.Minute || d > 60*time.Minute {
		t.Errorf("with an old bucket claims are taken for recorded for %v", d)
	}
}

// A worker that starts before the bucket exists remembers ids alone, also while JetStream does not
// answer, and uses the bucket as soon as it finds it.
func TestTheReplayWindowIsUsedWhenItComes(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	outage := natstest.NewOutage(t, srv)
	js := outage.JetStream(t, natstest.Conn(t, srv))
	cfg, log := windowOf(t, js, mesh.Config{Verifier: sign.Verifier{Mode: sign.Required}})
	if cfg.Seen == nil {
		t.Fatalf("ids are remembered by the process alone for ever; the log is %s", log)
	}
	outage.RefuseFirst(1)
	cfg.Seen.(*lateSeen).look(t.Context(), false)
	for _, by := range []string{"first", "second"} {
		if holder, err := claim(t, cfg, by); err != nil || holder != by {
			t.Errorf("without a bucket: holder %q, %v", holder, err)
		}
	}
	outage.RefuseFirst(0)
	applied, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), applied, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().ForceReconnect(); err != nil { // it asks after each reconnect
		t.Fatal(err)
	}
	natstest.Eventually(t, "the bucket is used", func() bool { return strings.Contains(log.String(), "from now on") })
	for _, by := range []string{"third", "fourth"} {
		if holder, err := claim(t, cfg, by); err != nil || holder != "third" {
			t.Errorf("with the bucket: holder %q, %v", holder, err)
		}
	}
	// Another worker may find it later.
	recordedSoon(t, cfg)
}

// A bucket that turns out to keep ids for a shorter time than the worker has to remember them proves
// too little where signatures are required: a worker that learns it at its start does not start.
func TestAReplayWindowThatIsFoundTooShort(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	outage := outageOf(t, srv)
	for _, mode := range []sign.Mode{sign.VerifyIfPresent, sign.Required} {
		outage.RefuseFirst(1)
		cfg, _ := windowOf(t, outage.JetStream(t, natstest.Conn(t, srv)), mesh.Config{ReplayWindow: time.Hour, Verifier: sign.Verifier{Mode: mode}})
		if cfg.Seen == nil {
			t.Fatal("ids are remembered by the process alone")
		}
		var short *WindowError
		natstest.Eventually(t, "the bucket has answered", func() bool {
			holder, err := claim(t, cfg, "first")
			return errors.As(err, &short) || err == nil && holder == "first"
		})
		if (short != nil) != (mode == sign.Required) {
			t.Errorf("signatures %v: %v", mode, short)
		}
	}
}

// A mesh without the bucket, without JetStream, or in which the worker may not ask for it, has no
// replay window: no task is refused.
func TestAMeshWithoutAReplayWindow(t *testing.T) {
	t.Parallel()
	const listened = "no JetStream, and a program that listens to all"
	for name, cfg := range map[string]natsd.Config{
		"no JetStream": {},
		listened:       {},
		"no bucket":    {JetStream: true},
		"no permission": {JetStream: true, Users: []natsd.User{{Name: "worker", Password: "secret", Permissions: &natsd.Permissions{
			Publish: natsd.Subjects{Deny: []string{"$JS.API.>"}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, cfg)
			if name == listened {
				nc := natstest.Conn(t, srv)
				if _, err := nc.Subscribe(">", func(*nats.Msg) {}); err != nil || nc.Flush() != nil {
					t.Fatal(err)
				}
			}
			js, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo("worker", "secret")))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			cfg, log := windowOf(t, js, mesh.Config{Verifier: sign.Verifier{Mode: sign.Required}})
			holder, err := claim(t, cfg, "first") // it is asked again
			if err != nil || holder != "first" || !strings.Contains(log.String(), "level=INFO") {
				t.Errorf("holder %q, %v after %v; the log is %s", holder, err, time.Since(began), log)
			}
		})
	}
}

// Only a program that subscribes to everything makes JetStream's silence mean nothing: one that gets
// the requests of the API alone may be JetStream on another server.
func TestOverheard(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	nc, listener := natstest.Conn(t, srv), natstest.Conn(t, srv)
	for _, c := range []struct {
		subj string
		want bool
	}{{"", false}, {"$JS.API.>", false}, {">", true}} {
		if c.subj != "" {
			if _, err := listener.Subscribe(c.subj, func(*nats.Msg) {}); err != nil || listener.Flush() != nil {
				t.Fatal(err)
			}
		}
		if got := overheard(t.Context(), nc); got != c.want {
			t.Errorf("with a subscriber of %q: %v", c.subj, got)
		}
	}
}
