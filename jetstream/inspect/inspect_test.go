package inspect_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/inspect"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, srv *natsd.Server, opts ...nats.Option) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, srv, opts...))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func apply(t *testing.T, js natsjs.JetStream) {
	t.Helper()
	if _, err := jetstream.Apply(testContext(t), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
}

func anything(string) bool { return true }

func TestInspect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, SyncAlways: true})
	js := connect(t, srv)
	r, err := inspect.JetStream(ctx, js, jetstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Off != "" || len(r.Streams) != len(jetstream.Topology()) || r.Streams[0].Action != jetstream.ActionCreate || r.Races != nil {
		t.Errorf("before: %+v", r)
	}
	if f := inspect.AskFsync(ctx, js.Conn(), anything); f.Class != inspect.FsyncUnknown || !strings.Contains(f.Why, "system account") {
		t.Errorf("fsync %+v", f)
	}
	apply(t, js)
	for _, cfg := range []natsjs.StreamConfig{
		{Name: "TASKS", Subjects: []string{"agent.*", "orders.>"}},
		{Name: "ASKED", Subjects: []string{"aee.ask.agent.x"}},
		{Name: "FINE", Subjects: []string{"service.x"}, NoAck: true},
	} {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = inspect.JetStream(ctx, js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	want := []inspect.Race{{"ASKED", []string{"aee.ask.agent.x"}}, {"TASKS", []string{"agent.*"}}}
	if !reflect.DeepEqual(r.Races, want) || r.Streams[0].Action != jetstream.ActionNone || r.Account.Streams != len(jetstream.Topology())+3 || r.Account.Limits.MaxStreams != -1 {
		t.Errorf("after: %+v", r)
	}
}

func TestJetStreamIsOff(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{}))
	report, err := inspect.JetStream(testContext(t), js, jetstream.Options{})
	if err != nil || !strings.Contains(report.Off, "jetstream is not available") {
		t.Errorf("report %+v, %v", report, err)
	}
}

func TestFsyncClassIsToldToTheSystemAccountAndOnTheMonitoringPort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	// JetStream is refused to users of SYS, so this test only examines the reply to the
	// request.
	conf := "accounts { SYS: { users: [ { user: sys, password: s } ] }, APP: { jetstream: enabled, users: [ { user: app, password: a } ] } }\nsystem_account: SYS\n"
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{ConfigFile: file, Port: natsd.RandomPort, MonitorPort: natsd.RandomPort, JetStream: true, Domain: "hub", SyncInterval: 7 * time.Second})
	app := connect(t, srv, nats.UserInfo("app", "a"))
	if f := inspect.AskFsync(testContext(t), app.Conn(), anything); f.Class != inspect.FsyncUnknown {
		t.Errorf("an ordinary account: %+v", f)
	}

	sys := natstest.Conn(t, srv, nats.UserInfo("sys", "s"))
	if f := inspect.AskFsync(testContext(t), sys, func(string) bool { return false }); f.Class != inspect.FsyncUnknown {
		t.Errorf("a user who may not ask: %+v", f)
	}
	if f := inspect.AskFsync(testContext(t), sys, anything); f != (inspect.Fsync{Class: inspect.FsyncInterval, Interval: 7 * time.Second, Why: "the server said so on the system account", Domain: "hub"}) {
		t.Errorf("the system account: %+v", f)
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Get(srv.MonitorURL() + "/jsz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := inspect.ParseJSZ(body); err != nil || f.Class != inspect.FsyncInterval || f.Interval != 7*time.Second || f.Domain != "hub" {
		t.Errorf("the monitoring port: %+v, %v", f, err)
	}
}

func TestParseJSZ(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]inspect.FsyncClass{
		`{"config":{"sync_interval":120000000000}}`:                    inspect.FsyncInterval,
		`{"config":{"sync_interval":120000000000,"sync_always":true}}`: inspect.FsyncAlways,
	} {
		if f, err := inspect.ParseJSZ([]byte(body)); err != nil || f.Class != want {
			t.Errorf("%s: %+v, %v", body, f, err)
		}
	}
	for _, body := range []string{`{"disabled":true}`, `{}`, `{"config":{}}`, `<html>`, ``} {
		if f, err := inspect.ParseJSZ([]byte(body)); err == nil || f.Class != inspect.FsyncUnknown {
			t.Errorf("%s: %+v, %v", body, f, err)
		}
	}
}

// A bucket that a domain lacks is not found: across a leaf node a write to it would have no answer.
func TestProbeAckInADomain(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Domain: "hub"})
	js, err := natsjs.NewWithDomain(natstest.Conn(t, srv), "hub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.ProbeAck(testContext(t), js, subject.Map{}, 3); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestProbeAck(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true}))
	if _, err := inspect.ProbeAck(testContext(t), js, subject.Map{}, 3); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("no bucket: %v", err)
	}
	apply(t, js)
	if took, err := inspect.ProbeAck(testContext(t), js, subject.Map{}, 9); err != nil || took <= 0 {
		t.Errorf("took %s, %v", took, err)
	}
}
