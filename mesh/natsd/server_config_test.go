package natsd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

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

// Users in the Config replace the file's, and nkeys its nkeys.
func TestUsersReplaceThoseOfTheConfigFile(t *testing.T) {
	t.Parallel()
	nkey := func() (public string, option nats.Option) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		if public, err = pair.PublicKey(); err != nil {
			t.Fatal(err)
		}
		return public, nats.Nkey(public, pair.Sign)
	}
	public, nkeyOfFile := nkey()
	other, nkeyOfField := nkey()
	userOfFile, userOfField := nats.UserInfo("a", "b"), nats.UserInfo("c", "d")
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte("authorization { users: [{user: a, password: b}, {nkey: "+public+"}] }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config   natsd.Config
		accepted []nats.Option
		refused  []nats.Option
	}{
		"none":  {natsd.Config{}, []nats.Option{userOfFile, nkeyOfFile}, []nats.Option{userOfField, nkeyOfField}},
		"users": {natsd.Config{Users: []natsd.User{{Name: "c", Password: "d"}}}, []nats.Option{userOfField, nkeyOfFile}, []nats.Option{userOfFile}},
		"nkeys": {natsd.Config{Nkeys: []natsd.NkeyUser{{Public: other}}}, []nats.Option{userOfFile, nkeyOfField}, []nats.Option{nkeyOfFile}},
	} {
		c.config.ConfigFile, c.config.Port = file, natsd.RandomPort
		srv := natstest.Run(t, c.config)
		for i, as := range c.accepted {
			natstest.Conn(t, srv, as)
			if i < len(c.refused) {
				if nc, err := nats.Connect(srv.ClientURL(), c.refused[i]); !errors.Is(err, nats.ErrAuthorization) {
					t.Errorf("%s: a client %d that is not among them: %v", name, i, err)
					nc.Close()
				}
			}
		}
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
