package soak

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// Role is the main function of a child process of a soak. args are "server CONFIG",
// "worker CONFIG", "receiver CONFIG" or "program ADDRESS". The first three write one line
// to stdout when they are ready; all end when ctx ends or stdin closes.
func Role(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("soak role: %q: it is server, worker, receiver or program, and what it needs", args)
	}
	switch args[0] {
	case "server":
		return serve(ctx, args[1], stdin, stdout)
	case "worker":
		return work(ctx, args[1], stdin, stdout)
	case "receiver":
		return receive(ctx, args[1], stdin, stdout)
	case "program":
		return serveProgram(ctx, args[1], stdin, stdout)
	}
	return fmt.Errorf("soak role %q: it is server, worker, receiver or program", args[0])
}

// serve runs a NATS server from a configuration file. Its warnings go to stderr, which is the
// log that the soak keeps.
func serve(ctx context.Context, conf string, stdin io.Reader, stdout io.Writer) error {
	srv, err := natsd.New(natsd.Config{ConfigFile: conf, JetStream: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	if err := srv.Start(ctx); err != nil {
		return err
	}
	defer srv.Close()
	if _, err := fmt.Fprintln(stdout, srv.ClientURL()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, stdin)
		cancel()
	}()
	<-ctx.Done()
	return nil
}
