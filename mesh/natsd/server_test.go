package natsd_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
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
	"github.com/nats-io/nkeys"
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
		Port: 70000, StoreDir: dir, SyncInterval: -1, Token: "t", MaxPayload: -1, Name: "a b", LameDuck: -1,
		Users: []natsd.User{{Name: "u"}}, Nkeys: []natsd.NkeyUser{{Public: "SUAsecret"}},
		Websocket: &natsd.Websocket{}, TLS: &natsd.TLS{CertFile: "c"},
	})
	want := `nats server configuration: port 70000: must be 1 to 65535, or -1 for a random one
store directory, sync interval and domain need jetstream
sync interval -1ns: must not be negative
max payload -1: must not be negative
lame duck -1ns: must not be negative
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

func TestConfigFileWithFieldsOnTop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	conf := "port: 4\nmax_payload: 2048\nserver_name: from_file\njetstream { store_dir: '" + filepath.ToSlash(dir) + "', sync_interval: always }\nauthorization { user: a, password: b }\n"
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{ConfigFile: file, Port: natsd.RandomPort, Name: "from_field"})
	if always, _ := srv.SyncClass(); !always || srv.Name() != "from_field" || srv.StoreDir() != dir {
		t.Errorf("always %v, name %s, store %s", always, srv.Name(), srv.StoreDir())
	}
	if _, err := nats.Connect(srv.ClientURL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without the file's password: %v", err)
	}
	if nc := natstest.Conn(t, srv, nats.UserInfo("a", "b")); nc.MaxPayload() != 2048 {
		t.Errorf("max payload %d", nc.MaxPayload())
	}
	missing, err := natsd.New(natsd.Config{ConfigFile: filepath.Join(dir, "no.conf")})
	if err != nil {
		t.Fatal(err)
	}
	if err := missing.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no.conf") {
		t.Errorf("missing file: %v", err)
	}
}

func TestUsersNkeysAndPermissions(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{
		Users: []natsd.User{
			{Name: "client", Password: "c"},
			{Name: "worker", Password: "w", Permissions: &natsd.Permissions{
				Subscribe:      natsd.Subjects{Allow: []string{"agent.x"}},
				AllowResponses: &natsd.AllowResponses{Max: 2},
			}},
		},
		Nkeys: []natsd.NkeyUser{{Public: public}},
	})
	natstest.Conn(t, srv, nats.Nkey(public, user.Sign))
	if _, err := nats.Connect(srv.ClientURL(), nats.UserInfo("client", "wrong")); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("wrong password: %v", err)
	}

	refused := make(chan error, 8)
	worker := natstest.Conn(t, srv, nats.UserInfo("worker", "w"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if _, err := worker.Subscribe("agent.x", func(m *nats.Msg) {
		for range 3 { // one more than is allowed
			_ = m.Respond([]byte("answer"))
		}
		_ = worker.Publish("bus.x", nil)
	}); err != nil {
		t.Fatal(err)
	}
	if err := worker.Flush(); err != nil {
		t.Fatal(err)
	}
	client := natstest.Conn(t, srv, nats.UserInfo("client", "c"))
	if msg, err := client.Request("agent.x", nil, 10*time.Second); err != nil || string(msg.Data) != "answer" {
		t.Errorf("request: %v, %v", msg, err)
	}
	for _, subject := range []string{"_INBOX.", "bus.x"} {
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
				t.Errorf("refused with %v, want a violation on %s", err, subject)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("publishing to %s was not refused", subject)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Token: "s3cret"})
	natstest.Conn(t, srv, nats.Token("s3cret"))
	if _, err := nats.Connect(srv.ClientURL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without the token: %v", err)
	}
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	srv := natstest.Run(t, natsd.Config{
		TLS:       &natsd.TLS{CertFile: cert, KeyFile: key, CAFile: cert, Verify: true},
		Websocket: &natsd.Websocket{Port: natsd.RandomPort, TLS: &natsd.TLS{CertFile: cert, KeyFile: key}},
	})
	if !strings.HasPrefix(srv.ClientURL(), "tls://") || !strings.HasPrefix(srv.WebsocketURL(), "wss://") {
		t.Errorf("urls %s and %s", srv.ClientURL(), srv.WebsocketURL())
	}
	natstest.Conn(t, srv, nats.RootCAs(cert), nats.ClientCert(cert, key))
	if nc, err := nats.Connect(srv.ClientURL(), nats.RootCAs(cert), nats.MaxReconnects(0)); err == nil {
		nc.Close()
		t.Error("connected without a client certificate")
	}
	pemBytes, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pemBytes)
	ws, err := nats.Connect(srv.WebsocketURL(), nats.Secure(&tls.Config{RootCAs: pool}))
	if err != nil {
		t.Fatal(err)
	}
	ws.Close()
}

func TestWebsocketAndMonitoringAndMaxPayload(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{MaxPayload: 4096, MonitorPort: natsd.RandomPort, Websocket: &natsd.Websocket{Port: natsd.RandomPort, NoTLS: true}})
	nc, err := nats.Connect(srv.WebsocketURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.MaxPayload() != 4096 {
		t.Errorf("max payload %d", nc.MaxPayload())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(srv.MonitorURL() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %s", resp.Status)
	}
	cfg := srv.Config()
	if cfg.Port <= 0 || cfg.MonitorPort <= 0 || cfg.Websocket.Port <= 0 {
		t.Errorf("random ports are not resolved: %+v", cfg)
	}
}

func TestURLsOfAllAddressesAreReachable(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Host: "0.0.0.0"})
	if !strings.HasPrefix(srv.ClientURL(), "nats://127.0.0.1:") {
		t.Errorf("url %s", srv.ClientURL())
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

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, lameDuck := range []time.Duration{0, 50 * time.Millisecond} {
		var out syncBuffer
		srv, err := natsd.New(natsd.Config{Port: natsd.RandomPort, LameDuck: lameDuck, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(ctx) }()
		select {
		case <-srv.Ready():
		case err := <-ended:
			t.Fatalf("Run ended: %v", err)
		case <-time.After(20 * time.Second):
			t.Fatal("the server did not start")
		}
		lame := make(chan struct{}, 1)
		nc, err := nats.Connect(srv.ClientURL(), nats.NoReconnect(), nats.LameDuckModeHandler(func(*nats.Conn) { lame <- struct{}{} }))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Run did not end")
		}
		if lameDuck > 0 {
			select {
			case <-lame:
			case <-time.After(20 * time.Second):
				t.Error("the client was not told of lame duck mode")
			}
		}
		nc.Close()
		if !strings.Contains(out.String(), `level=INFO msg="nats server" text="Listening for client connections on`) {
			t.Errorf("log:\n%s", out.String())
		}
	}
}

func TestRunEndsWithClose(t *testing.T) {
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
	if err := srv.Run(t.Context()); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("Run of a closed server: %v", err)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// selfSigned writes a certificate for 127.0.0.1 that is its own authority, for
// servers and clients.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
