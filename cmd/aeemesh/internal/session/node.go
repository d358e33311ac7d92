package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// Session is a connection with a node, for one command.
type Session struct {
	App  *App
	Conn *nats.Conn
	Node *mesh.Node
	tel  *Telemetry
	ring func() // stops watching shared keys; may be nil

	Verifier sign.Verifier

	once     sync.Once
	unsigned *mesh.Node // see UnsignedNode
}

// Options say what a command needs from its node.
type Options struct {
	Entity string // the sender; "": the default
	Long   bool   // a long-running command: all changes of the connection are printed, and it waits for a server that is down
	Signed bool   // the command has the signing flags
	Status func(natsconn.Status)
	Config func(*Session, *mesh.Config) error
	Tel    *Telemetry // started telemetry; nil: open starts it
}

// Open connects and makes the node. The caller must close the session.
func (a *App) Open(ctx context.Context, cmd *cobra.Command, o Options) (*Session, error) {
	if err := subject.ValidateEntity(o.Entity); o.Entity != "" && err != nil {
		return nil, outcome.Usagef(cmd, "--from: %w", err)
	}
	s := &Session{App: a}
	ok := false
	defer func() {
		if !ok {
			s.Close()
		}
	}()
	cfg := mesh.Config{Prefix: a.Conn.Prefix, Entity: o.Entity, Logger: a.Log, Version: a.Version}
	if o.Signed {
		signer, err := a.Signer(o.Entity)
		if err != nil {
			return nil, err
		}
		verifier, err := a.Verifier()
		if err != nil {
			return nil, err
		}
		cfg.Signer, cfg.Verifier, s.Verifier = signer, verifier, verifier
	}
	var err error
	if s.tel = o.Tel; s.tel == nil {
		if s.tel, err = a.StartTelemetry(ctx); err != nil {
			return nil, err
		}
	}
	cfg.TracerProvider, cfg.MeterProvider = s.tel.Tracer, s.tel.Meter
	status := o.Status
	if status == nil {
		if status = ConnectionStatus(a.Term, o.Long); !o.Long {
			status = quietAboutServices(status)
		}
	}
	a.speaker = o.Entity
	a.Conn.patient = o.Long
	if s.Conn, err = a.Connect(ctx, cmd, status); err != nil {
		return nil, err
	}
	if o.Signed && a.Sign.Shared {
		if s.ring, err = a.WatchSharedKeys(ctx, s.Conn, cfg.Verifier.Ring); err != nil {
			return nil, err
		}
	}
	if o.Config != nil {
		if err := o.Config(s, &cfg); err != nil {
			return nil, err
		}
	}
	if s.Node, err = mesh.New(s.Conn, cfg); err != nil {
		return nil, &outcome.UsageError{Err: err, Cmd: cmd}
	}
	ok = true
	return s, nil
}

// OpenWorker connects as a worker of an entity; status is told of the connection.
func (a *App) OpenWorker(ctx context.Context, cmd *cobra.Command, entity string, verifier sign.Verifier, status func(natsconn.Status)) (*Session, error) {
	s := &Session{App: a, Verifier: verifier}
	a.speaker, a.Conn.patient = entity, true
	var err error
	if s.Conn, err = a.Connect(ctx, cmd, status); err != nil {
		return nil, err
	}
	if a.Sign.Shared {
		if s.ring, err = a.WatchSharedKeys(ctx, s.Conn, verifier.Ring); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close flushes what is still to be sent and closes the connection.
func (s *Session) Close() {
	if s.ring != nil {
		s.ring()
	}
	if s.Conn != nil {
		if !s.Conn.IsClosed() {
			if err := s.Conn.FlushTimeout(2 * time.Second); err != nil && s.Conn.IsConnected() && !errors.Is(err, nats.ErrConnectionClosed) {
				s.App.Term.Warn("what was sent last may be lost: %s", outcome.Text(err))
			}
		}
		s.Conn.Close()
	}
	if s.tel != nil {
		s.tel.Stop()
	}
}

// UnsignedNode returns a node that signs nothing. It is made once.
func (s *Session) UnsignedNode() *mesh.Node {
	s.once.Do(func() {
		var err error
		s.unsigned, err = mesh.New(s.Conn, mesh.Config{Prefix: s.App.Conn.Prefix, Entity: s.Node.Entity(), Logger: s.App.Log, Version: s.App.Version, Verifier: s.Verifier})
		if err != nil { // it has the same settings as the session's own node
			s.unsigned = s.Node
		}
	})
	return s.unsigned
}

// Confirm calls publish, which publishes messages that get no answer, and checks that the server
// has received and not refused them.
func (s *Session) Confirm(publish func() error) error {
	since := denial.Now(s.Conn)
	if err := publish(); err != nil {
		return err
	}
	if err := s.Conn.FlushTimeout(s.App.Conn.Wait()); err != nil {
		return fmt.Errorf("the server did not confirm the message: %w", err)
	}
	refused, _ := since.Find(func(d denial.Denial) bool { return d.Op == denial.Publish })
	return refused.Err
}
