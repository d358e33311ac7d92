package natsconn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// connect connects within the test's patience and closes at its end.
func connect(t *testing.T, c natsconn.Config) (*nats.Conn, error) {
	t.Helper()
	nc, err := natsconn.Connect(t.Context(), c)
	if err == nil {
		t.Cleanup(nc.Close)
		if err := nc.FlushTimeout(natstest.Patience); err != nil {
			t.Errorf("flush: %v", err)
		}
	}
	return nc, err
}

// connectOnce gives up after one attempt.
func connectOnce(t *testing.T, c natsconn.Config) (*nats.Conn, error) {
	t.Helper()
	ctx, giveUp := context.WithTimeout(t.Context(), natstest.Patience)
	defer giveUp()
	c.Wait, c.OnStatus = -1, func(s natsconn.Status) {
		if s.State == "error" {
			giveUp()
		}
	}
	conn, err := natsconn.Connect(ctx, c)
	if err == nil {
		t.Cleanup(conn.Close)
	}
	return conn, err
}

func TestConnectWithEachKindOfCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	seedFile := filepath.Join(dir, "user.nk")
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	ca := newAuthority(t, dir)
	serverCert, serverKey := ca.issue("server")
	clientCert, clientKey := ca.issue("client")
	oldCert, oldKey := ca.issue("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	otherCert, otherKey := ca.issue("other", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} })
	callerCert, callerKey := ca.issue("caller", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	users := natsd.Config{Users: []natsd.User{{Name: "ada", Password: "secret"}}}
	for name, c := range map[string]struct {
		server natsd.Config
		client natsconn.Config
		want   string // "" for success, else what the error says
		secret string // what it must not say
	}{
		"nobody asked":              {natsd.Config{}, natsconn.Config{}, "", ""},
		"password":                  {users, natsconn.Config{User: "ada", Password: "secret"}, "", ""},
		"wrong password":            {users, natsconn.Config{User: "ada", Password: "sesame"}, "check the user, token, credentials or context", "sesame"},
		"no password":               {users, natsconn.Config{}, "check the user, token, credentials or context", ""},
		"token":                     {natsd.Config{Token: "t0ken"}, natsconn.Config{Token: "t0ken"}, "", ""},
		"wrong token":               {natsd.Config{Token: "t0ken"}, natsconn.Config{Token: "other"}, "check the user, token, credentials or context", "other "},
		"nkey":                      {natsd.Config{Nkeys: []natsd.NkeyUser{{Public: public}}}, natsconn.Config{NKey: seedFile}, "", ""},
		"no nkey file":              {natsd.Config{}, natsconn.Config{NKey: filepath.Join(dir, "none.nk")}, "nkey: ", ""},
		"no creds file":             {natsd.Config{}, natsconn.Config{Creds: filepath.Join(dir, "none.creds")}, "creds: ", ""},
		"two kinds":                 {natsd.Config{}, natsconn.Config{Token: "a", User: "b"}, "give one of user and password, token, creds or nkey, not several", ""},
		"half a certificate":        {natsd.Config{}, natsconn.Config{Cert: clientCert}, "a client certificate and its key go together: give both", ""},
		"no CA file":                {natsd.Config{}, natsconn.Config{CA: filepath.Join(dir, "none.pem")}, "CA: ", ""},
		"TLS":                       {natsd.Config{TLS: &natsd.TLS{CertFile: serverCert, KeyFile: serverKey}}, natsconn.Config{CA: ca.file}, "", ""},
		"TLS without the CA":        {natsd.Config{TLS: &natsd.TLS{CertFile: serverCert, KeyFile: serverKey}}, natsconn.Config{}, "signed it with --tls-ca", ""},
		"TLS, expired":              {natsd.Config{TLS: &natsd.TLS{CertFile: oldCert, KeyFile: oldKey}}, natsconn.Config{CA: ca.file}, "the server's certificate has expired", ""},
		"TLS, another name":         {natsd.Config{TLS: &natsd.TLS{CertFile: otherCert, KeyFile: otherKey}}, natsconn.Config{CA: ca.file}, ": use the name that it is for", ""},
		"TLS, a client's":           {natsd.Config{TLS: &natsd.TLS{CertFile: callerCert, KeyFile: callerKey}}, natsconn.Config{CA: ca.file}, ": the server needs another one", ""},
		"mTLS of an expired client": {natsd.Config{TLS: &natsd.TLS{CertFile: serverCert, KeyFile: serverKey, CAFile: ca.file, Verify: true}}, natsconn.Config{CA: ca.file, Cert: oldCert, Key: oldKey, Wait: time.Second}, "--tls-cert has expired", ""},
		"mTLS":                      {natsd.Config{TLS: &natsd.TLS{CertFile: serverCert, KeyFile: serverKey, CAFile: ca.file, Verify: true}}, natsconn.Config{CA: ca.file, Cert: clientCert, Key: clientKey}, "", ""},
		"mTLS without certificates": {natsd.Config{TLS: &natsd.TLS{CertFile: serverCert, KeyFile: serverKey, CAFile: ca.file, Verify: true}}, natsconn.Config{CA: ca.file, Wait: time.Second}, "--tls-cert", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, c.server)
			c.client.URL = srv.ClientURL()
			if c.client.Wait == 0 {
				c.client.Wait = time.Hour // what another try does not mend is said at once
			}
			_, err := connect(t, c.client)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "connect to NATS") {
				t.Fatalf("got %v", err)
			}
			if c.secret != "" && strings.Contains(err.Error(), c.secret) {
				t.Errorf("the secret is in the error: %v", err)
			}
		})
	}
}

// A server at its max_connections closes the connection during the TLS handshake. With a client
// certificate the error does not say that one is missing.
func TestConnectToAFullServerWithAClientCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	serverCert, serverKey := ca.issue("server")
	clientCert, clientKey := ca.issue("client")
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte("max_connections: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort, TLS: &natsd.TLS{CertFile: serverCert, KeyFile: serverKey, CAFile: ca.file, Verify: true}})
	c := natsconn.Config{URL: srv.ClientURL(), CA: ca.file, Cert: clientCert, Key: clientKey, Wait: natstest.Patience}
	if _, err := connect(t, c); err != nil {
		t.Fatal(err)
	}
	if _, err := connectOnce(t, c); err == nil || !strings.Contains(err.Error(), "max_connections") || strings.Contains(err.Error(), "name one") {
		t.Errorf("got %v", err)
	}
}

func TestConnectSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := natsconn.Connect(t.Context(), natsconn.Config{Cert: "x", Token: "a", User: "b", CA: "/no/such"})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v", err)
	}
}

// What cannot become right is said at once, not tried again for as long as Wait; and no text of a
// URL is quoted, which may be a part of a password.
func TestConnectTriesNothingThatCannotWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "garbage")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]natsconn.Config{
		"server 1: it is not nats://HOST:PORT":               {URL: "nats://"},
		"server 2: it is not nats://HOST:PORT":               {URL: "nats://127.0.0.1,127.0.0.1:99999"},
		"server 3: it is not nats://HOST:PORT":               {URL: "127.0.0.1:4222, [::1]:4222, exa%20mple"},
		"server 1: it is not nats://HOST:PORT\nserver 2":     {URL: "nats://ada:secret:x,se@:1"},
		"a password as %XX (@ as %40)":                       {URL: "nats://ada:secret/#%w@127.0.0.1:1"},
		"ws and wss cannot be in one list":                   {URL: "nats://127.0.0.1:1,wss://127.0.0.1:2"},
		`server 1: "https" is none of nats, tls, ws and wss`: {URL: "https://secret.example.com"},
		"has no user's JWT":                                  {Creds: file},
		"is a directory":                                     {Creds: dir},
		"has no certificate in PEM":                          {CA: file},
	} {
		c.Wait = -1 // for ever
		c.OnStatus = func(s natsconn.Status) { t.Errorf("%+v: %+v", c, s) }
		conn, err := natsconn.Connect(t.Context(), c)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

func TestConnectSaysThatAServerDoesNotBeginWithTLS(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	_, err := connectOnce(t, natsconn.Config{URL: srv.ClientURL(), TLSFirst: true})
	if err == nil || !strings.Contains(err.Error(), "leave out --tls-first") || strings.Contains(err.Error(), "client certificate") {
		t.Errorf("got %v", err)
	}
}

func TestConnectWaitsForAServerThatComesLate(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	url := srv.ClientURL()
	srv.Close()
	tried := make(chan natsconn.Status, 100)
	connected := make(chan error, 1)
	go func() {
		_, err := connect(t, natsconn.Config{URL: url, Wait: natstest.Patience, OnStatus: func(s natsconn.Status) { tried <- s }})
		connected <- err
	}()
	first := natstest.Within(t, "the first try", tried)
	if first.State != "error" || !errors.Is(first.Err, nats.ErrNoServers) {
		t.Errorf("the first try: %+v", first)
	}
	natstest.Restart(t, srv)
	if err := natstest.Within(t, "the connection", connected); err != nil {
		t.Error(err)
	}
}

func TestConnectGivesUpInTime(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	srv.Close()
	for name, c := range map[string]natsconn.Config{
		"its own":      {URL: srv.ClientURL(), Wait: 50 * time.Millisecond},
		"the caller's": {URL: strings.Replace(srv.ClientURL(), "://", "://ada:secret@", 1)},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := natsconn.Connect(ctx, c)
		cancel()
		if !errors.Is(err, nats.ErrNoServers) || !strings.Contains(err.Error(), `"aeemesh up" starts one`) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConnectionTellsWhatHappensToIt(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	var mu sync.Mutex
	var states []string
	var left string // the server of the connection that was lost
	log := &natstest.Buffer{}
	nc, err := natsconn.Connect(t.Context(), natsconn.Config{
		URL: "nats://127.0.0.1:1," + strings.Replace(srv.ClientURL(), "://", "://ada:secret@", 1), InboxPrefix: "_INBOX_ada.", Logger: slog.New(slog.NewTextHandler(log, nil)),
		OnStatus: func(s natsconn.Status) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, s.State)
			if s.State == "disconnected" {
				left = s.URL
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(nc.NewInbox(), "_INBOX_ada.") {
		t.Errorf("inbox %s", nc.NewInbox())
	}
	natstest.Restart(t, srv)
	told := func(want string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range states {
				if s == want {
					return true
				}
			}
			return false
		}
	}
	natstest.Eventually(t, "it reconnects", told("reconnected"))
	nc.Close()
	natstest.Eventually(t, "it is closed", told("closed"))
	mu.Lock()
	if want := []string{"connected", "disconnected", "reconnected", "closed"}; !slices.Equal(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
	if want := strings.TrimPrefix(srv.ClientURL(), "nats://"); !strings.HasSuffix(left, want) || strings.Contains(left, ",") || strings.Contains(left, "secret") {
		t.Errorf("disconnected from %q, want %q", left, want)
	}
	mu.Unlock()
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "reconnected") {
		t.Errorf("log:\n%s", log)
	}
}

// authority makes certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = a.newKey()
	a.file = a.write("ca.pem", "CERTIFICATE", a.sign(a.cert, a.key))
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) sign(cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *authority) write(name, kind string, der []byte) string {
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

func (a *authority) issue(name string, changes ...func(*x509.Certificate)) (certFile, keyFile string) {
	a.t.Helper()
	key := a.newKey()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, change := range changes {
		change(cert)
	}
	der := a.sign(cert, key)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", raw)
}
