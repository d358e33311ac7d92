package natsd_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConnectOverTCPAndInProcess(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Name: "one"})
	if srv.Name() != "one" || !strings.HasPrefix(srv.ClientURL(), "nats://127.0.0.1:") {
		t.Errorf("name %q, url %q", srv.Name(), srv.ClientURL())
	}
	tcp := natstest.Conn(t, srv)
	inproc, err := nats.Connect("", srv.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	defer inproc.Close()
	sub, err := tcp.SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := tcp.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := inproc.Publish("x", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	msg, err := sub.NextMsg(10 * time.Second)
	if err != nil || string(msg.Data) != "hello" {
		t.Errorf("got %v, %v", msg, err)
	}
}

func TestInProcessOnlyOpensNoPort(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{InProcessOnly: true})
	if srv.ClientURL() != "" {
		t.Errorf("url %q", srv.ClientURL())
	}
	if nc := natstest.Conn(t, srv); !nc.IsConnected() {
		t.Error("not connected")
	}
}

func TestNewReportsAllProblemsAndTouchesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	_, err := natsd.New(natsd.Config{
		Port: 70000, StoreDir: dir, SyncInterval: -1, Token: "t", MaxPayload: -1, Name: "a b",
		Users: []natsd.User{{Name: "u"}}, Nkeys: []natsd.NkeyUser{{Public: "SUAsecret"}},
		Websocket: &natsd.Websocket{}, TLS: &natsd.TLS{CertFile: "c"},
	})
	want := `nats server configuration: port 70000: must be 1 to 65535, or -1 for a random one
store directory, sync interval and domain need jetstream
sync interval -1ns: must not be negative
max payload -1: must not be negative
server name "a b": must have no spaces
tls: needs a certificate file and a key file
websocket: needs a port
token and users exclude one another
user 0: needs a name and a password
nkey user 0: needs a public user key, U…`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := natsd.New(natsd.Config{JetStream: true}); err == nil || !strings.Contains(err.Error(), "jetstream needs a store directory") {
		t.Errorf("jetstream without a store: %v", err)
	}
	if _, err := natsd.New(natsd.Config{Websocket: &natsd.Websocket{Port: -1}}); err == nil || !strings.Contains(err.Error(), "needs tls, or no_tls said explicitly") {
		t.Errorf("websocket without tls: %v", err)
	}
	if _, err := natsd.New(natsd.Config{JetStream: true, StoreDir: dir}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("New touched the disk: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for name, cfg := range map[string]natsd.Config{
		"listen for clients":    {Port: port},
		"listen for websockets": {Port: natsd.RandomPort, Websocket: &natsd.Websocket{Port: port, NoTLS: true}},
		"listen for monitoring": {Port: natsd.RandomPort, MonitorPort: port},
	} {
		srv, err := natsd.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = srv.Start(t.Context())
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), name+": ") || !strings.Contains(err.Error(), strconv.Itoa(port)) {
			t.Errorf("%s on a port in use: %v", name, err)
		}
		srv.Close()
	}
}

func TestOneServerPerStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := natstest.Run(t, natsd.Config{JetStream: true, StoreDir: dir})
	cfg := natsd.Config{Port: natsd.RandomPort, JetStream: true, StoreDir: dir}
	second, err := natsd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); !errors.Is(err, natsd.ErrStoreLocked) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("a second server on the store: %v", err)
	}
	first.Close()
	third, err := natsd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if err := third.Start(t.Context()); err != nil {
		t.Errorf("after the first server closed: %v", err)
	}
}

func TestStoreNotWritable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := t.TempDir()
	if err := os.Mkdir(filepath.Join(locked, "aeemesh.lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		file:   "start nats server: make store directory: mkdir " + file,
		locked: "start nats server: store directory is not writable: open " + locked,
	} {
		srv, err := natsd.New(natsd.Config{Port: natsd.RandomPort, JetStream: true, StoreDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("store %s: %v; want %s…", dir, err, want)
		}
	}
}

func TestRestartKeepsPortAndStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	reconnected := make(chan struct{}, 1)
	srv := natstest.Run(t, natsd.Config{JetStream: true, SyncAlways: true})
	nc := natstest.Conn(t, srv, nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	url := srv.ClientURL()
	srv = natstest.Restart(t, srv)
	if srv.ClientURL() != url {
		t.Errorf("restarted at %s, was %s", srv.ClientURL(), url)
	}
	select {
	case <-reconnected:
	case <-time.After(20 * time.Second):
		t.Fatal("the client did not reconnect")
	}
	stream, err := js.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(ctx, 1)
	if err != nil || string(msg.Data) != "kept" {
		t.Errorf("got %v, %v", msg, err)
	}
}

func TestSyncClass(t *testing.T) {
	t.Parallel()
	type class struct {
		always   bool
		interval time.Duration
	}
	for name, tt := range map[string]struct {
		cfg  natsd.Config
		want class
	}{
		"without jetstream": {natsd.Config{}, class{}},
		"default":           {natsd.Config{JetStream: true}, class{false, 2 * time.Minute}},
		"interval":          {natsd.Config{JetStream: true, SyncInterval: time.Second}, class{false, time.Second}},
		"always":            {natsd.Config{JetStream: true, SyncAlways: true}, class{true, 0}},
	} {
		always, interval := natstest.Run(t, tt.cfg).SyncClass()
		if got := (class{always, interval}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestStartTwiceAndCloseTwice(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	if err := srv.Start(t.Context()); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("second start: %v", err)
	}
	srv.Close()
	srv.Close()
	never, err := natsd.New(natsd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if never.ClientURL() != "" || never.Name() != "" {
		t.Error("a server that did not start has a URL or a name")
	}
	if _, err := nats.Connect("", never.InProcess()); err == nil {
		t.Error("connected to a server that did not start")
	}
	never.Close()
	if err := never.Start(t.Context()); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("start after close: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	fresh, err := natsd.New(natsd.Config{Port: natsd.RandomPort})
	if err != nil {
		t.Fatal(err)
	}
	if err := fresh.Start(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a context that has ended: %v", err)
	}
}

func TestTheLoggerGetsTheServersWords(t *testing.T) {
	t.Parallel()
	var out natstest.Buffer
	natstest.Run(t, natsd.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if !strings.Contains(out.String(), `level=INFO msg="nats server" text="Listening for client connections on`) {
		t.Errorf("log:\n%s", out.String())
	}
}

func TestCloseMayBeCalledAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	srv, err := natsd.New(natsd.Config{Port: natsd.RandomPort})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(srv.Close)
	}
	closers.Wait()
	if err := srv.Start(t.Context()); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("Start of a closed server: %v", err)
	}
}
