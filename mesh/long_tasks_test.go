package mesh

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// meeting ends when all have joined.
type meeting struct {
	mu      sync.Mutex
	missing int
	full    chan struct{}
}

func (m *meeting) join(ctx context.Context) error {
	m.mu.Lock()
	if m.missing--; m.missing == 0 {
		close(m.full)
	}
	m.mu.Unlock()
	select {
	case <-m.full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Tasks that need one another's company must get it, whatever went before.
func TestLongTasksRunAtOnceAfterBriefOnes(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	node, err := New(natstest.Conn(t, srv), Config{})
	if err != nil {
		t.Fatal(err)
	}
	const concurrency = 4
	var round atomic.Pointer[meeting]
	ready := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- node.Serve(ctx, Agent{Entity: "agent.meeting", Concurrency: concurrency, Ready: func() { close(ready) },
			Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
				if task.Envelope.Intent == "brief" {
					return nil, nil
				}
				return nil, round.Load().join(ctx)
			})})
	}()
	<-ready
	send := func(intent string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := node.Send(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.meeting", intent, nil), client.SendOptions{})
		return err
	}
	for range 200 {
		if err := send("brief"); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		round.Store(&meeting{missing: concurrency, full: make(chan struct{})})
		errs := make(chan error)
		for range concurrency {
			go func() { errs <- send("long") }()
		}
		for range concurrency {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
