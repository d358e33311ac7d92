package jetstream_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Fault 4 of the operators' review: if there is not room for all streams, Apply creates
// none, and with smaller limits it creates all.
func TestApplyOnASmallDisk(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, MaxStore: 700 << 20})
	js := connect(t, srv)
	report, err := jetstream.Apply(testContext(t), js, jetstream.Options{})
	if !errors.Is(err, jetstream.ErrNoRoom) || err.Error() != "the server has room for 699 MiB more of storage, and 2200 MiB are needed: nothing was done: the server has not that much storage left" {
		t.Errorf("got %v", err)
	}
	if len(report) > 0 || len(configs(t, js)) > 0 {
		t.Errorf("made %q, there are %v", words(report), configs(t, js))
	}
	small := map[string]jetstream.Limits{}
	for _, s := range jetstream.Topology() {
		if s.Config.MaxBytes > 8<<20 {
			small[s.Name] = jetstream.Limits{MaxBytes: 8 << 20}
		}
	}
	if got := apply(t, js, jetstream.Options{Limits: small}); got[len(got)-1].Action != jetstream.ActionCreate {
		t.Errorf("got %q", words(got))
	}
	// A second mesh does not fit now.
	acme, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(testContext(t), js, jetstream.Options{Map: acme}); !errors.Is(err, jetstream.ErrNoRoom) {
		t.Errorf("got %v", err)
	}
}

// A stream that reserved all the room is made smaller, and the missing streams are
// created, in one Apply.
func TestApplyMakesRoomBeforeItNeedsIt(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, MaxStore: 300 << 20})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamWork}})
	opts := jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.StreamWork}, Limits: map[string]jetstream.Limits{
		jetstream.StreamBus: {MaxBytes: 200 << 20}, jetstream.StreamWork: {MaxBytes: 64 << 20}}}
	if got := words(apply(t, js, opts)); len(got) != 2 || !strings.HasPrefix(got[0], "update AEE_WORK: max_bytes") || got[1] != "create AEE_BUS" {
		t.Errorf("got %q", got)
	}
}

// Room that another client frees at the last moment is used.
func TestApplyUsesRoomThatOthersFree(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true, MaxStore: 300 << 20}))
	if _, err := js.CreateStream(testContext(t), natsjs.StreamConfig{Name: "OTHERS", MaxBytes: 200 << 20}); err != nil {
		t.Fatal(err)
	}
	refused := 0
	if _, err := js.Conn().Subscribe("$JS.EVENT.ADVISORY.API", func(m *nats.Msg) {
		if !strings.Contains(string(m.Data), "STREAM.CREATE.AEE_ROOM") {
			return
		}
		if refused++; refused == 12 { // Apply asks eleven times, waits, and asks again
			if err := js.DeleteStream(context.Background(), "OTHERS"); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	opts := jetstream.Options{Only: []string{jetstream.StreamBus}, Limits: map[string]jetstream.Limits{jetstream.StreamBus: {MaxBytes: 200 << 20}}}
	if got := words(apply(t, js, opts)); len(got) != 1 || got[0] != "create AEE_BUS" || len(configs(t, js)) != 1 {
		t.Errorf("%q, and there are %d streams", got, len(configs(t, js)))
	}
}

// An account has limits of its own.
func TestApplyAsksTheAccountForRoom(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte(`
		jetstream { max_file_store: 10G }
		accounts {
			small { jetstream { max_file: 500M }, users: [{ user: s, password: s }] }
			few { jetstream { max_file: 5G, max_streams: 3 }, users: [{ user: f, password: f }] }
			narrow { jetstream { max_file: 500M }, users: [{ user: n, password: n, permissions: { publish: { deny: ["$JS.API.INFO", "$JS.API.STREAM.DELETE.>"] } } }] }
		}`), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort, JetStream: true, StoreDir: t.TempDir()})
	for user, want := range map[string]string{
		"s": "the account has room for 476 MiB more of storage, and 2200 MiB are needed: nothing was done",
		"f": "the account may have 3 streams and has 0, and 18 are to be made: nothing was done",
		"n": "create ", // without permission to ask, the error is that of the stream that does not fit
	} {
		js, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo(user, user)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = jetstream.Apply(testContext(t), js, jetstream.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), want) || user != "n" && !errors.Is(err, jetstream.ErrNoRoom) {
			t.Errorf("%s: %v", user, err)
		}
		if made := configs(t, js); user != "n" && len(made) > 0 || made["AEE_ROOM"].Name != "" {
			t.Errorf("%s: there are %d streams", user, len(made))
		}
	}
}

// Several nodes apply at once, on a disk that is just large enough: the room probe of one
// must not make another fail.
func TestManyNodesApplyAtOnceOnAFullDisk(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, MaxStore: 2264 << 20})
	errs := make([]error, 8)
	var wait sync.WaitGroup
	for i := range errs {
		js := connect(t, srv)
		wait.Go(func() { _, errs[i] = jetstream.Apply(testContext(t), js, jetstream.Options{}) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	made := configs(t, connect(t, srv))
	if len(made) != len(jetstream.Topology()) {
		t.Errorf("there are %d streams", len(made))
	}
}

// The room that another process's probe holds for a moment is not missing, however often
// a probe meets one.
func TestRoomProbesOfOthersAreNoFullDisk(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := &meetsProbes{JetStream: connect(t, natstest.Run(t, natsd.Config{JetStream: true, MaxStore: 2264 << 20})), left: 24}
	if got := apply(t, js, jetstream.Options{}); len(got) != len(jetstream.Topology()) || js.left != 0 {
		t.Errorf("got %q, %d probes left", words(got), js.left)
	}
}

// meetsProbes finds the probe of another process as many times as left says. Meanwhile it waits
// longer for the server than a probe does: to a probe without an answer in time, there is room.
type meetsProbes struct {
	natsjs.JetStream
	left int
}

func (m *meetsProbes) CreateStream(ctx context.Context, cfg natsjs.StreamConfig) (natsjs.Stream, error) {
	if cfg.Name == "AEE_ROOM" && m.left > 0 {
		m.left--
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		other := cfg
		other.Description = "another process asks"
		if _, err := m.JetStream.CreateStream(ctx, other); err != nil {
			return nil, err
		}
	}
	return m.JetStream.CreateStream(ctx, cfg)
}

// A busy server may create the probe after its sender has stopped waiting: Apply deletes it
// all the same, because it reserves the room of the whole plan.
func TestARoomProbeWithoutAnAnswerIsDeleted(t *testing.T) {
	t.Parallel()
	js := &losesAnswer{JetStream: start(t)}
	if got := apply(t, js, jetstream.Options{}); len(got) != len(jetstream.Topology()) || js.lost != 1 {
		t.Errorf("got %q, %d answers lost", words(got), js.lost)
	}
	if probe, ok := configs(t, js)["AEE_ROOM"]; ok {
		t.Errorf("the probe is left, with %d bytes reserved", probe.MaxBytes)
	}
}

// losesAnswer loses the server's answer to the creation of a probe.
type losesAnswer struct {
	natsjs.JetStream
	lost int
}

func (l *losesAnswer) CreateStream(ctx context.Context, cfg natsjs.StreamConfig) (natsjs.Stream, error) {
	s, err := l.JetStream.CreateStream(ctx, cfg)
	if cfg.Name == "AEE_ROOM" && err == nil {
		l.lost++
		return nil, context.DeadlineExceeded
	}
	return s, err
}

// A server that removes its empty directory of streams while the first stream is created
// fails to create it; Apply tries again.
func TestApplyOutlastsADirectoryThatIsRemoved(t *testing.T) {
	t.Parallel()
	js := &failsToCreate{JetStream: start(t), name: jetstream.StreamBus, left: 2}
	if got := apply(t, js, jetstream.Options{}); len(got) != len(jetstream.Topology()) || js.left != 0 {
		t.Errorf("got %q, %d failures left", words(got), js.left)
	}
	js = &failsToCreate{JetStream: start(t), name: jetstream.StreamBus, left: 1000}
	var api *natsjs.APIError
	if _, err := jetstream.Apply(testContext(t), js, jetstream.Options{}); !errors.As(err, &api) || api.ErrorCode != 10049 {
		t.Errorf("where it does not pass: %v", err)
	}
}

// failsToCreate fails to create a stream as many times as left says.
type failsToCreate struct {
	natsjs.JetStream
	name string
	left int
}

func (f *failsToCreate) CreateStream(ctx context.Context, cfg natsjs.StreamConfig) (natsjs.Stream, error) {
	if cfg.Name == f.name && f.left > 0 {
		f.left--
		return nil, &natsjs.APIError{Code: 500, ErrorCode: 10049, Description: "error creating store for stream"}
	}
	return f.JetStream.CreateStream(ctx, cfg)
}
