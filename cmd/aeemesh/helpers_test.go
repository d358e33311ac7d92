package main

import (
	"context"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// Exit statuses.
const (
	exitOK     = outcome.OK
	exitFailed = outcome.Failed
	exitUsage  = outcome.Usage
)

// applyTopology makes the mesh's streams on a server of the tests.
func applyTopology(srv *natsd.Server) error {
	conn, err := nats.Connect("", srv.InProcess())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := natsjs.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = jetstream.Apply(ctx, js, jetstream.Options{})
	return err
}
