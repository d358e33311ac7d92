// Command embedded is a Go program that hosts an agent: one document, and one
// tool, which is a Go function.
//
//	aeemesh up &
//	go run ./examples/embedded &
//	aeemesh send agent.word_counter '{"text": "one two three"}'
//
// It has no keys. If "aeemesh send" signs with a key of yours, add --sign none.
//
// Package agents/worker gives it the features of "aeemesh worker": durable tasks as soon as
// JetStream has the streams, draining, signatures, teams.
package main

import (
	"context"
	_ "embed" // the document
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

//go:embed agent.yaml
var document []byte

func main() {
	server := flag.String("nats", "", "`URL` of the server (default the one on this machine)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *server); err != nil {
		log.Fatal(err)
	}
}

// run serves the agent until ctx ends.
func run(ctx context.Context, server string) error {
	doc, err := aaif.Parse(document, aaif.Options{Name: "agent.yaml", Kind: aaif.KindAgent})
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{
		Agents: []worker.Agent{{Document: doc}},
		Tools:  []tool.Tool{tool.Func(tool.Definition{Name: "count_words", Description: "Counts the words of a text."}, countWords)},
		NATS:   natsconn.Config{URL: server},
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

type text struct {
	Text string `json:"text"`
}

type count struct {
	Words int `json:"words"`
}

func countWords(_ context.Context, in text) (count, error) {
	return count{len(strings.Fields(in.Text))}, nil
}
