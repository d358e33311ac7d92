package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/mesh"
)

// programAgent returns an agent whose tasks a program runs, a child of the worker.
func programAgent(cfg workerConfig, owner func(string), log *slog.Logger) (*agents.Agent, error) {
	p, err := program.New(program.Config{Command: append(cfg.Self[:len(cfg.Self):len(cfg.Self)], "program", cfg.Effects), Logger: log})
	if err != nil {
		return nil, err
	}
	return &agents.Agent{Program: p, Agent: mesh.Agent{Entity: ProgramEntity, Handler: owned{p, owner}, Health: p.Health, Concurrency: cfg.Places, Queue: 4 * cfg.Places}}, nil
}

// programKey is the idempotency key of a run's only effect.
func programKey(run string) string { return run + ".program" }

// serveProgram is the program: it has one effect for each task, under the run's key, and
// passes the number of its attempt to the log.
func serveProgram(ctx context.Context, effects string, stdin io.Reader, stdout io.Writer) error {
	out := &lines{w: stdout}
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var task struct {
			ID      string `json:"id"`
			Durable struct {
				Run     string `json:"run"`
				Attempt uint64 `json:"attempt"`
			} `json:"durable"`
		}
		if err := json.Unmarshal(in.Bytes(), &task); err != nil {
			return err
		}
		go func() {
			receipt, err := cause(ctx, effects, call{Key: programKey(task.Durable.Run), Run: task.Durable.Run, Epoch: task.Durable.Attempt})
			if err != nil {
				fmt.Fprintf(out, `{"type":"error","reply_to":%q,"payload":{"code":"E_SOAK","message":%q}}`+"\n", task.ID, err.Error())
				return
			}
			fmt.Fprintf(out, `{"type":"result","reply_to":%q,"payload":{"receipts":[%d]}}`+"\n", task.ID, receipt)
		}()
	}
	return in.Err()
}
