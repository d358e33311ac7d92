package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// newPair makes a key pair and tells its public half.
func newPair(t *testing.T, make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	pair, err := make()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public
}

func encodeClaims(t *testing.T, c interface {
	Encode(nkeys.KeyPair) (string, error)
}, by nkeys.KeyPair) string {
	t.Helper()
	token, err := c.Encode(by)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// operatorMode starts a server that trusts an operator's JWT, with one account,
// which may have JetStream, and returns a way to make users of it.
func operatorMode(t *testing.T) (srv *natsd.Server, user func(change func(*jwt.UserClaims)) (token, seed string)) {
	t.Helper()
	return operatorModeOf(t, jwt.OperatorLimits{JetStreamLimits: jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}})
}

// operatorModeOf is operatorMode with other limits of JetStream.
func operatorModeOf(t *testing.T, limits jwt.OperatorLimits) (srv *natsd.Server, user func(change func(*jwt.UserClaims)) (token, seed string)) {
	t.Helper()
	operator, operatorID := newPair(t, nkeys.CreateOperator)
	account, accountID := newPair(t, nkeys.CreateAccount)
	_, systemID := newPair(t, nkeys.CreateAccount)
	oc := jwt.NewOperatorClaims(operatorID)
	oc.SystemAccount = systemID
	preload := make(map[string]string)
	for _, id := range []string{accountID, systemID} {
		ac := jwt.NewAccountClaims(id)
		if id == accountID {
			ac.Limits.JetStreamLimits, ac.Limits.JetStreamTieredLimits = limits.JetStreamLimits, limits.JetStreamTieredLimits
		}
		preload[id] = encodeClaims(t, ac, operator)
	}
	conf := fmt.Sprintf("port: -1\noperator: %s\njetstream: {store_dir: %q}\nresolver: MEMORY\nresolver_preload: {\n", encodeClaims(t, oc, operator), t.TempDir())
	for id, token := range preload {
		conf += fmt.Sprintf("  %s: %s\n", id, token)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(conf+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return natstest.Run(t, natsd.Config{ConfigFile: file}), func(change func(*jwt.UserClaims)) (string, string) {
		pair, id := newPair(t, nkeys.CreateUser)
		uc := jwt.NewUserClaims(id)
		change(uc)
		seed, err := pair.Seed()
		if err != nil {
			t.Fatal(err)
		}
		return encodeClaims(t, uc, account), string(seed)
	}
}

func TestConnectsToAServerInOperatorMode(t *testing.T) {
	t.Parallel()
	srv, user := operatorMode(t)
	plain := func(*jwt.UserClaims) {}
	token, seed := user(plain)
	bearer, _ := user(func(c *jwt.UserClaims) { c.BearerToken = true })
	_, otherSeed := user(plain)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	creds, err := jwt.FormatUserConfig(token, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	file := write("user.creds", creds)
	withContext := func(name string, settings map[string]string) string {
		raw, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		return write(name+".json", raw)
	}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want int
	}{
		"--creds":                     {nil, []string{"--creds", file}, exitOK},
		"NATS_CREDS":                  {map[string]string{"NATS_CREDS": file}, nil, exitOK},
		"nothing":                     {nil, nil, outcome.NotWanted},
		"context with creds":          {nil, []string{"--context", withContext("creds", map[string]string{"creds": file})}, exitOK},
		"context with user_jwt":       {nil, []string{"--context", withContext("jwt", map[string]string{"user_jwt": token, "user_seed": seed})}, exitOK},
		"context with a bearer JWT":   {nil, []string{"--context", withContext("bearer", map[string]string{"user_jwt": bearer})}, exitOK},
		"context with another's seed": {nil, []string{"--context", withContext("other", map[string]string{"user_jwt": token, "user_seed": otherSeed})}, outcome.NotWanted},
		"context without the seed":    {nil, []string{"--context", withContext("seedless", map[string]string{"user_jwt": token})}, outcome.NotWanted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"NATS_URL": srv.ClientURL()}
			for k, v := range c.env {
				env[k] = v
			}
			code, stderr := listAgents(t, env, c.args...)
			if code != c.want || code == outcome.NotWanted && !strings.Contains(stderr, "Authorization") {
				t.Errorf("exit %d, want %d: %s", code, c.want, stderr)
			}
			if strings.Contains(stderr, seed) || strings.Contains(stderr, token) {
				t.Errorf("a secret is told: %s", stderr)
			}
		})
	}
}

// A SOCKS5 proxy without authentication, as far as nats.go needs one
// (RFC 1928).
func socksProxy(t *testing.T) (url string, used func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	served := make(chan struct{}, 64)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go proxySOCKS(c, served)
		}
	}()
	return "socks5://" + ln.Addr().String(), func() int { return len(served) }
}

// proxySOCKS serves one connection: greeting, one CONNECT, then bytes both ways.
func proxySOCKS(c net.Conn, served chan<- struct{}) {
	defer c.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil || head[0] != 5 {
		return
	}
	io.CopyN(io.Discard, c, int64(head[1])) // the methods on offer
	c.Write([]byte{5, 0})
	request := make([]byte, 4)
	if _, err := io.ReadFull(c, request); err != nil || request[1] != 1 {
		return
	}
	var host string
	switch request[3] {
	case 1:
		ip := make(net.IP, 4)
		io.ReadFull(c, ip)
		host = ip.String()
	case 3:
		n := make([]byte, 1)
		io.ReadFull(c, n)
		name := make([]byte, n[0])
		io.ReadFull(c, name)
		host = string(name)
	default:
		return
	}
	var port uint16
	if err := binary.Read(c, binary.BigEndian, &port); err != nil {
		return
	}
	to, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return
	}
	defer to.Close()
	c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	served <- struct{}{}
	go func() {
		io.Copy(to, c)
		to.Close()
	}()
	io.Copy(c, to)
}

func TestConnectsThroughASocksProxy(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	proxy, used := socksProxy(t)
	raw, err := json.Marshal(map[string]string{"url": srv.ClientURL(), "socks_proxy": proxy})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "socks.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stderr := listAgents(t, map[string]string{}, "--context", file); code != exitOK || used() == 0 {
		t.Errorf("exit %d, %d connections through the proxy: %s", code, used(), stderr)
	}
}

// The server refuses credentials that have expired as it refuses any others: the error says more.
func TestExpiredCredentialsAreNamed(t *testing.T) {
	t.Parallel()
	srv, user := operatorMode(t)
	for name, c := range map[string]struct {
		expires time.Time
		want    bool
	}{
		"expired": {time.Now().Add(-time.Hour), true},
		"unknown": {time.Now().Add(time.Hour), false}, // of another account
	} {
		token, seed := user(func(u *jwt.UserClaims) { u.Expires = c.expires.Unix() })
		if name == "unknown" {
			stranger, _ := newPair(t, nkeys.CreateAccount)
			u, err := jwt.DecodeUserClaims(token)
			if err != nil {
				t.Fatal(err)
			}
			u.IssuerAccount = ""
			token = encodeClaims(t, u, stranger)
		}
		text, err := jwt.FormatUserConfig(token, []byte(seed))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".creds")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"agents", "list", "--creds", file}, strings.NewReader(""), &out, &errs, func(key string) string {
			return map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir()}[key]
		})
		if code != outcome.NotWanted || strings.Contains(errs.String(), "the JWT of --creds has expired") != c.want {
			t.Errorf("%s: exit %d, %s", name, code, errs.String())
		}
	}
}

// An account may have limits for each number of replicas instead of one for all.
func TestStorageOfAnAccountWithTiers(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	srv, user := operatorModeOf(t, jwt.OperatorLimits{JetStreamTieredLimits: jwt.JetStreamTieredLimits{
		"R1": {DiskStorage: 4 * mib, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}, "R3": {DiskStorage: 8 * mib, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}}})
	token, seed := user(func(*jwt.UserClaims) {})
	text, err := jwt.FormatUserConfig(token, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	storage := func() (lines string) {
		var out, errs bytes.Buffer
		run(t.Context(), []string{"doctor", "--creds", file}, strings.NewReader(""), &out, &errs, func(key string) string {
			return map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir()}[key]
		})
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, " storage ") {
				lines += line
			}
		}
		return lines
	}
	if got, want := storage(), "ok   storage      0.0 KiB of 4.0 MiB that the account may store with R1\nok   storage      0.0 KiB of 8.0 MiB that the account may store with R3\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	js, err := natsjs.New(natstest.Conn(t, srv, nats.UserCredentials(file)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "FULL", Subjects: []string{"full"}}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = js.Publish(t.Context(), "full", make([]byte, mib/32))
	}
	if got := storage(); !strings.HasPrefix(got, "fail storage ") || !strings.Contains(got, "with R1: ") || !strings.Contains(got, "FULL") || !strings.Contains(got, "ok   storage      0.0 KiB of 8.0 MiB") {
		t.Errorf("full: %s", got)
	}
}
