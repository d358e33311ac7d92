package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// listAgents is a command that connects, with some variables set.
func listAgents(t *testing.T, env map[string]string, args ...string) (code int, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	env["XDG_CONFIG_HOME"] = t.TempDir()
	code = run(t.Context(), append(args, "agents", "list", "--wait", "10ms", "--timeout", "3s"), strings.NewReader(""), &out, &words,
		func(name string) string { return env[name] })
	return code, words.String()
}

// certificates writes a CA, and a certificate of its for servers and clients.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	caCert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, caCert, caCert, &caKey.PublicKey, caKey)
	must(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, caCert, &leafKey.PublicKey, caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(err)
	return write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER)
}

func TestConnectsWithTLSAndClientCertificates(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ca, cert, key := certificates(t)
	srv := natstest.Run(t, natsd.Config{TLS: &natsd.TLS{CertFile: cert, KeyFile: key, CAFile: ca, Verify: true}})
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want int
		says string
	}{
		{"flags", map[string]string{}, []string{"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key}, exitOK, "no agent answers"},
		{"environment", map[string]string{"NATS_CA": ca, "NATS_CERT": cert, "NATS_KEY": key}, nil, exitOK, "no agent answers"},
		{"no CA", map[string]string{}, []string{"--tls-cert", cert, "--tls-key", key}, exitFailed, "certificate"},
		{"no client certificate", map[string]string{}, []string{"--tls-ca", ca}, exitFailed, "error: "},
		{"no key", map[string]string{}, []string{"--tls-ca", ca, "--tls-cert", cert}, exitFailed, "go together"},
		{"no such file", map[string]string{}, []string{"--tls-ca", "nowhere.pem"}, outcome.NotThere, "nowhere.pem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stderr := listAgents(t, tt.env, append([]string{"--nats", srv.ClientURL()}, tt.args...)...)
			if code != tt.want || !strings.Contains(stderr, tt.says) {
				t.Errorf("exit %d, want %d; stderr must have %q:\n%s", code, tt.want, tt.says, stderr)
			}
		})
	}
}

func TestConnectsWithAnNkey(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	file := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{Nkeys: []natsd.NkeyUser{{Public: public}}})
	if code, stderr := listAgents(t, map[string]string{"NATS_URL": srv.ClientURL(), "NATS_NKEY": file}); code != exitOK {
		t.Errorf("exit %d: %s", code, stderr)
	}
	code, stderr := listAgents(t, map[string]string{"NATS_URL": srv.ClientURL()})
	if code != outcome.NotWanted || !strings.Contains(stderr, "Authorization") {
		t.Errorf("without the nkey: exit %d: %s", code, stderr)
	}
	// A flag is not spoiled by a variable of another kind.
	if code, stderr := listAgents(t, map[string]string{"NATS_URL": srv.ClientURL(), "NATS_TOKEN": "x"}, "--nkey", file); code != exitOK {
		t.Errorf("flag beside a variable: exit %d: %s", code, stderr)
	}
	if strings.Contains(stderr, string(seed)) {
		t.Error("the seed is printed")
	}
}

// What Ctrl-C ends says so, and not what its child processes died of.
func TestInterruptedMeasurements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"bench"}, {"bench", "durable"}, {"bench", "tree"}, {"bench", "kills"}, {"bench", "migrate"}, {"soak", "--dir", t.TempDir()}} {
		var out, words bytes.Buffer
		code := run(ctx, args, strings.NewReader(""), &out, &words, func(string) string { return "" })
		if code != exitFailed || !strings.Contains(words.String(), "error: interrupted\n") {
			t.Errorf("%v: exit %d: %s", args, code, words.String())
		}
	}
}

func TestInterruptedWhileConnecting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, words bytes.Buffer
	code := run(ctx, []string{"--nats", "nats://127.0.0.1:1", "agents", "list", "--json"}, strings.NewReader(""), &out, &words, func(string) string { return "" })
	if code != exitFailed || !strings.Contains(words.String(), "interrupted") || strings.Contains(words.String(), "hint") || !strings.Contains(out.String(), `"code":"E_INTERRUPTED"`) {
		t.Errorf("exit %d: %s%s", code, words.String(), out.String())
	}
}

// writerFunc is a function as an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// What doctor has not checked when it is interrupted has not failed.
func TestInterruptedDoctor(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	ctx, cancel := context.WithCancel(t.Context())
	var out, words bytes.Buffer
	stdout := writerFunc(func(p []byte) (int, error) {
		cancel() // at the first line
		return out.Write(p)
	})
	code := run(ctx, []string{"--nats", srv.ClientURL(), "doctor", "--json"}, strings.NewReader(""), stdout, &words, func(string) string { return "" })
	if code != exitFailed || words.String() != "error: interrupted\n" || strings.Contains(out.String(), `"fail"`) ||
		!strings.HasPrefix(out.String(), `{"check":"connection","outcome":"ok"`) || !strings.Contains(out.String(), `"code":"E_INTERRUPTED"`) {
		t.Errorf("exit %d: %s%s", code, words.String(), out.String())
	}
}

// The server's lists of connections say which command each is of: not "aeemesh list".
func TestConnectionsHaveTheNamesOfTheirCommands(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{MonitorPort: natsd.RandomPort})
	if code, words := listAgents(t, map[string]string{"NATS_URL": srv.ClientURL()}); code != exitOK {
		t.Fatal(code, words)
	}
	natstest.Eventually(t, "the closed connection is listed", func() bool {
		resp, err := http.Get(srv.MonitorURL() + "/connz?state=all")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		return err == nil && bytes.Contains(all, []byte(`"aeemesh agents list"`))
	})
}
