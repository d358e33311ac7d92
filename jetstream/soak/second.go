package soak

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/state"
)

// The names of the systems.
const (
	firstSystem  = "first"
	secondSystem = "second"
)

// A second system is one that runs are transferred to: a server of its own, workers of
// the same agents with a key of their own, and a receiver of runs, which the workers of
// the first system reach over HTTPS through a proxy.
type second struct {
	servers  *servers
	workers  *workers
	receiver *workers // one process
	way      door     // from the first system's workers to the receiver
	release  func()   // releases the receiver's port
	ca       string   // the authority of the receiver's certificate, PEM

	conn *nats.Conn // of the observer
	js   natsjs.JetStream
}

// newSecond makes a second system with n workers. It starts nothing.
func newSecond(l *launcher, n int, sync string, cfg workerConfig) (*second, error) {
	s := &second{}
	cert, key, err := Certificate()
	if err != nil {
		return nil, err
	}
	port, release, err := natsd.HoldPort()
	if err != nil {
		return nil, err
	}
	s.release, s.ca = release, cert
	cfg.System = secondSystem
	s.servers, err = newServers(l, 1, sync, "m", 0)
	if err == nil {
		s.workers, err = newWorkers(l, "worker", "v", n, s.servers.addresses(), cfg)
	}
	if err == nil {
		cfg.Listen, cfg.CA, cfg.Key = address(port), cert, key
		s.receiver, err = newWorkers(l, "receiver", "r", 1, s.servers.addresses(), cfg)
	}
	if err == nil {
		s.way, err = newDoor([]string{address(port)})
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// url is the receiver's URL for the first system's workers.
func (s *second) url() string { return "https://" + s.way[0].Addr() }

func (s *second) start(ctx context.Context) error {
	if err := s.servers.startAll(ctx); err != nil {
		return err
	}
	return errors.Join(s.workers.startAll(ctx), s.receiver.startAll(ctx))
}

func (s *second) close() {
	if s.conn != nil {
		s.conn.Close()
	}
	for _, ws := range []*workers{s.receiver, s.workers} {
		if ws != nil {
			ws.close()
		}
	}
	s.way.close()
	if s.servers != nil {
		s.servers.close()
	}
	s.release()
}

// notQueued finds runs that the receiver has accepted but not queued for a worker.
func (s *soak) notQueued(ctx context.Context) (left []Violation) {
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	for rec, err := range jetstream.NewHandoffs(s.second.js, subject.Map{}).List(ctx, "") {
		var cp *state.Checkpoint
		if err == nil {
			cp, err = s.seen.codec.DecodeRecord(rec)
		}
		if err != nil {
			return append(left, Violation{Rule: RuleRecord, Detail: fmt.Sprintf("the handoffs: %v", err)})
		}
		if m := cp.Mesh.Migration; m.Phase == state.PhaseAccepted {
			left = append(left, Violation{Rule: RuleLeftOver, Task: cp.Mesh.TaskID, Run: cp.Doc.RunID, Detail: "accepted by the second system, and given to no worker"})
		}
	}
	return left
}

// Certificate makes a self-signed certificate for 127.0.0.1, PEM.
func Certificate() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "soak"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), nil
}
