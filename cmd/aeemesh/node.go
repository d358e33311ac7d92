package main

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
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// session is a connection with a node, for one command.
type session struct {
	app  *progApp
	conn *nats.Conn
	node *mesh.Node
	tel  *telemetryOf
	ring func() // stops watching shared keys; may be nil

	verifier sign.Verifier

	once     sync.Once
	unsigned *mesh.Node // see inquirer
}

// sessionOptions say what a command needs from its node.
type sessionOptions struct {
	entity string // the sender; "": the default
	long   bool   // a long-running command: all changes of the connection are printed, and it waits for a server that is down
	signed bool   // the command has the signing flags
	status func(natsconn.Status)
	config func(*session, *mesh.Config) error
	tel    *telemetryOf // started telemetry; nil: open starts it
}

// open connects and makes the node. The caller must close the session.
func (a *progApp) open(ctx context.Context, cmd *cobra.Command, o sessionOptions) (*session, error) {
	s := &session{app: a}
	ok := false
	defer func() {
		if !ok {
			s.close()
		}
	}()
	cfg := mesh.Config{Prefix: a.conn.prefix, Entity: o.entity, Logger: a.log, Version: a.version}
	if o.signed {
		signer, err := a.signer(o.entity)
		if err != nil {
			return nil, err
		}
		verifier, err := a.verifier()
		if err != nil {
			return nil, err
		}
		cfg.Signer, cfg.Verifier, s.verifier = signer, verifier, verifier
	}
	var err error
	if s.tel = o.tel; s.tel == nil {
		if s.tel, err = a.telemetry(ctx); err != nil {
			return nil, err
		}
	}
	cfg.TracerProvider, cfg.MeterProvider = s.tel.tracer, s.tel.meter
	status := o.status
	if status == nil {
		if status = connectionStatus(a.term, o.long); !o.long {
			status = quietAboutServices(status)
		}
	}
	a.speaker = o.entity
	a.conn.patient = o.long
	if s.conn, err = a.connect(ctx, cmd, status); err != nil {
		return nil, err
	}
	if o.signed && a.sign.shared {
		if s.ring, err = a.watchSharedKeys(ctx, s.conn, cfg.Verifier.Ring); err != nil {
			return nil, err
		}
	}
	if o.config != nil {
		if err := o.config(s, &cfg); err != nil {
			return nil, err
		}
	}
	if s.node, err = mesh.New(s.conn, cfg); err != nil {
		return nil, &outcome.UsageError{Err: err, Cmd: cmd}
	}
	ok = true
	return s, nil
}

// close flushes what is still to be sent and closes the connection.
func (s *session) close() {
	if s.ring != nil {
		s.ring()
	}
	if s.conn != nil {
		if !s.conn.IsClosed() {
			if err := s.conn.FlushTimeout(2 * time.Second); err != nil && s.conn.IsConnected() && !errors.Is(err, nats.ErrConnectionClosed) {
				s.app.term.Warn("what was sent last may be lost: %s", outcome.Text(err))
			}
		}
		s.conn.Close()
	}
	if s.tel != nil {
		s.tel.stop()
	}
}

// confirm makes sure that the server has received what was published without
// waiting for an answer, and has not refused it.
func (s *session) confirm() error {
	if err := s.conn.FlushTimeout(s.app.conn.wait()); err != nil {
		return fmt.Errorf("the server did not confirm the message: %w", err)
	}
	if err := s.conn.LastError(); err != nil && errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}
