package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// The names of the systems of "bench migrate".
const (
	sourceSystem = "source"
	targetSystem = "target"
)

// moveSubject is where workers tell of their runs.
const moveSubject = "bench.moved"

// The kinds of reports.
const (
	moveBegun = "begun" // from the handler's begin until its first step was stored
	moveLeft  = "left"  // from the last step until it was stored
)

// moveReport is what a worker tells of a run, by the machine's clock.
type moveReport struct {
	Run   string    `json:"run"`
	Kind  string    `json:"kind"`
	PID   int       `json:"pid"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// moveResult is the result of a run that has moved.
type moveResult struct {
	Messages int    `json:"messages"`
	Digest   string `json:"digest"`
}

// The messages of the source's last step, and of the target's first.
var (
	lastMessage  = aaif.Message{Role: aaif.MessageUser, Content: "go"}
	firstMessage = aaif.Message{Role: aaif.MessageAssistant, Content: "here"}
)

// conversation makes messages with so many bytes of text.
func conversation(n int) (all []aaif.Message) {
	const each = 4096
	for i := 0; n > 0; i++ {
		seed := sha256.Sum256(fmt.Append(nil, i))
		text := strings.Repeat(hex.EncodeToString(seed[:]), each/64)
		text = text[:min(n, each)]
		n -= len(text)
		role := aaif.MessageUser
		if i%2 == 1 {
			role = aaif.MessageAssistant
		}
		all = append(all, aaif.Message{Role: role, Content: text})
	}
	return all
}

func resultOf(all []aaif.Message) moveResult {
	h := sha256.New()
	for _, m := range all {
		fmt.Fprintln(h, m.Role, m.Content)
	}
	return moveResult{len(all), hex.EncodeToString(h.Sum(nil))}
}

// moveKeys returns the key of a system's workers, and the keys that the system trusts:
// its own, and the target also the source's. They come from fixed seeds, because the
// bench protects nothing.
func moveKeys(system string) (*sign.Signer, *sign.Ring, error) {
	ring := &sign.Ring{}
	signer, err := sign.NewSigner("bench-"+sourceSystem, sign.Ed25519, bytes.Repeat([]byte("from"), 8))
	if err == nil {
		err = ring.Put(sign.Local, signer.Key(benchAgent))
	}
	if err == nil && system == targetSystem {
		if signer, err = sign.NewSigner("bench-"+targetSystem, sign.Ed25519, bytes.Repeat([]byte("into"), 8)); err == nil {
			err = ring.Put(sign.Local, signer.Key(benchAgent))
		}
	}
	return signer, ring, err
}

// moveLane is the lane of a system's processes. Its codec takes larger documents than the
// default.
func moveLane(js natsjs.JetStream, platform string) *mesh.Durable {
	d := benchLane(js)
	d.Codec = state.Codec{MaxBytes: 2 * maxMoved}
	d.Platform, d.Operators = platform, []string{benchClient}
	return d
}

// moveLog returns the log of a process.
func moveLog(logs bool) *slog.Logger {
	if !logs {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func newBenchMigrateWorkCommand(stdout io.Writer) *cobra.Command {
	var platform, remote, ca string
	var logs bool
	cmd := connectedCommand("work", func(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error {
		ctx = untilStdinCloses(ctx)
		cfg := nodeConfig(benchAgent, moveLane(js, platform))
		cfg.Logger = moveLog(logs)
		if platform != "" { // runs that leave are signed, others need no key
			signer, ring, err := moveKeys(platform)
			if err != nil {
				return err
			}
			cfg.Signer, cfg.Verifier = signer, sign.Verifier{Ring: ring}
		}
		if remote != "" {
			pem, err := os.ReadFile(ca)
			if err != nil {
				return err
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(pem)
			cfg.Durable.Remotes = func(to string) (*handoff.Client, error) {
				if to != remote {
					return nil, fmt.Errorf("no run goes to %s", to)
				}
				return handoff.NewClient(to, handoff.ClientOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}})
			}
		}
		node, err := mesh.New(conn, cfg)
		if err != nil {
			return err
		}
		tell := func(r moveReport) {
			r.PID = os.Getpid()
			publish(conn, moveSubject, r)
		}
		return node.Serve(ctx, mesh.Agent{Entity: benchAgent, Handler: moveHandler(tell), Concurrency: 4, Ready: func() { fmt.Fprintln(stdout, "ready") }})
	})
	f := cmd.Flags()
	f.StringVar(&platform, "platform", "", "")
	f.StringVar(&remote, "remote", "", "")
	f.StringVar(&ca, "ca", "", "")
	f.BoolVar(&logs, "logs", false, "")
	return cmd
}

// moveHandler has a conversation of so many bytes, works until the run moves, and ends it
// where it has moved.
func moveHandler(tell func(moveReport)) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
		began, run := time.Now(), t.Run()
		if run == nil {
			return nil, errors.New("bench migrate: its tasks are durable")
		}
		var in struct {
			Bytes int `json:"bytes"`
		}
		if err := json.Unmarshal(t.Input(), &in); err != nil {
			return nil, err
		}
		say := func(add ...aaif.Message) error {
			return run.Commit(ctx, state.Step{Kind: state.StepHandler, Name: "step"}, func(c *state.Checkpoint) error {
				c.Doc.Conversation = append(c.Doc.Conversation, add...)
				return nil
			})
		}
		if !run.Restored() {
			if err := say(conversation(in.Bytes)...); err != nil {
				return nil, err
			}
			tell(moveReport{Run: run.ID(), Kind: moveBegun, From: began, Until: time.Now()})
			select {
			case <-run.StopRequested():
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			last := time.Now()
			err := say(lastMessage)
			if errors.Is(err, mesh.ErrParked) {
				tell(moveReport{Run: run.ID(), Kind: moveLeft, From: last, Until: time.Now()})
			}
			if err == nil {
				err = errors.New("bench migrate: the run was asked to move, and did not")
			}
			return nil, err
		}
		if err := say(firstMessage); err != nil {
			return nil, err
		}
		tell(moveReport{Run: run.ID(), Kind: moveBegun, From: began, Until: time.Now()})
		return json.Marshal(resultOf(run.View().Doc.Conversation))
	})
}

func newBenchMigrateReceiveCommand(stdout io.Writer) *cobra.Command {
	var cert, key string
	var logs bool
	cmd := connectedCommand("receive", func(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error {
		ctx = untilStdinCloses(ctx)
		_, ring, err := moveKeys(targetSystem)
		if err != nil {
			return err
		}
		node, err := mesh.New(conn, mesh.Config{Entity: "service.handoff", Heartbeat: -1, Logger: moveLog(logs), Durable: moveLane(js, targetSystem), Verifier: sign.Verifier{Ring: ring}})
		if err != nil {
			return err
		}
		receiver, err := node.Receiver(mesh.ReceiverOptions{Platform: targetSystem, Share: 8 << 30, Handoffs: jetstream.NewHandoffs(jetstream.Gather(js), subject.Map{})})
		if err != nil {
			return err
		}
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: handoff.Handler(receiver, handoff.HandlerOptions{}), ReadHeaderTimeout: 10 * time.Second,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}
		fmt.Fprintln(stdout, "https://"+listener.Addr().String())
		stop := context.AfterFunc(ctx, func() { srv.Close() })
		defer stop()
		if err := srv.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	f := cmd.Flags()
	f.StringVar(&cert, "cert", "", "")
	f.StringVar(&key, "key", "", "")
	f.BoolVar(&logs, "logs", false, "")
	return cmd
}
