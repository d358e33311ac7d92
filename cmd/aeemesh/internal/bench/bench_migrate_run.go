package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// moveBench is one row of "bench migrate" while it is measured.
type moveBench struct {
	moveOptions
	roles   []*role
	conns   []*nats.Conn
	reports chan moveReport
	to      string // where runs move, as MigrateTask.To
}

// moveSystem is a server of "bench migrate".
type moveSystem struct {
	url  string
	node *mesh.Node
}

// maxMoved is the most bytes that one run may have: a transfer to another system is at
// most 64 MiB.
const maxMoved = 40_000_000

// movePatience is how long one step of a move may take, until the bench gives up.
const movePatience = 3 * time.Minute // 16 MB between systems take half a minute of two busy cores

// logged adds to the arguments of a role whether it logs.
func (b *moveBench) logged(args ...string) []string {
	if b.logs {
		args = append(args, "--logs")
	}
	return args
}

// start starts a process that says when it is ready.
func (b *moveBench) start(ctx context.Context, args ...string) error {
	r, _, err := startRole(ctx, "migrate", b.logged(args...)...)
	if err == nil {
		b.roles = append(b.roles, r)
	}
	return err
}

// stop ends all processes, the latest first.
func (b *moveBench) stop() {
	for _, c := range b.conns {
		c.Close()
	}
	for i := len(b.roles) - 1; i >= 0; i-- {
		b.roles[i].stop()
	}
}

// system starts a server, and hears what the workers there report.
func (b *moveBench) system(ctx context.Context, store, platform string) (*moveSystem, error) {
	server, url, err := startRole(ctx, "server", "--store", store)
	if err != nil {
		return nil, err
	}
	b.roles = append(b.roles, server)
	conn, js, err := connect(url)
	if err != nil {
		return nil, err
	}
	b.conns = append(b.conns, conn)
	// Large runs need more room than the topology's limits.
	limits := map[string]jetstream.Limits{}
	for _, name := range []string{jetstream.BucketState, jetstream.ObjectsState, jetstream.BucketHandoff} {
		limits[name] = jetstream.Limits{MaxBytes: -1}
	}
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{Limits: limits}); err != nil {
		return nil, err
	}
	if _, err := conn.Subscribe(moveSubject, func(msg *nats.Msg) {
		var r moveReport
		if json.Unmarshal(msg.Data, &r) == nil {
			b.reports <- r
		}
	}); err != nil {
		return nil, err
	}
	if err := conn.Flush(); err != nil {
		return nil, err
	}
	_, ring, err := moveKeys(platform)
	if err != nil {
		return nil, err
	}
	node, err := mesh.New(conn, mesh.Config{Entity: benchClient, Heartbeat: -1, Verifier: sign.Verifier{Ring: ring}, Durable: moveLane(js, platform)})
	return &moveSystem{url, node}, err
}

// move moves a new run with so many bytes, and checks that it has arrived and ended.
func (b *moveBench) move(ctx context.Context, at *moveSystem, n int) (moved, error) {
	var m moved
	ctx, cancel := context.WithTimeout(ctx, 5*movePatience)
	defer cancel()
	task := envelope.New(envelope.TypeTask, benchClient, benchAgent, "bench.migrate", json.RawMessage(fmt.Sprintf(`{"bytes":%d}`, n)))
	if _, err := at.node.Submit(ctx, task, mesh.SubmitOptions{}); err != nil {
		return m, err
	}
	id := state.RunID(benchAgent, task.ID)
	begun, err := b.next(ctx, id, "begins")
	if err != nil {
		return m, err
	}
	order := intents.MigrateTask{Target: intents.Target{Run: id}, To: b.to}
	if got, err := at.node.Command(ctx, benchAgent, order); err != nil {
		return m, err
	} else if !got.Migrating {
		return m, fmt.Errorf("the run does not move: it is %s", got.Status)
	}
	// The reports of two systems come in any order.
	var left, there moveReport
	for range 2 {
		r, err := b.next(ctx, id, "moves")
		if err != nil {
			return m, err
		}
		if r.Kind == moveLeft {
			left = r
		} else {
			there = r
		}
	}
	if begun.PID != left.PID || there.PID == left.PID || there.PID == 0 {
		return m, fmt.Errorf("run %s began on process %d, left %d and went on on %d", id, begun.PID, left.PID, there.PID)
	}
	m = moved{stop: left.Until.Sub(left.From), carry: there.From.Sub(left.Until), step: there.Until.Sub(there.From)}
	if m.carry < 0 { // the last report is made after the capture is stored, and the target may be quicker
		m.stop, m.carry = there.From.Sub(left.From), 0
	}
	reply, err := at.node.Result(ctx, benchAgent, task.ID, mesh.ResultOptions{Follow: true})
	if err != nil {
		return m, err
	}
	if reply.Type == envelope.TypeError {
		return m, envelope.ErrorOf(reply)
	}
	var got moveResult
	if err := json.Unmarshal(reply.Payload, &got); err != nil {
		return m, err
	}
	want := resultOf(append(conversation(n), lastMessage, firstMessage))
	if got != want {
		return m, fmt.Errorf("run %s came with %+v, and had %+v", id, got, want)
	}
	return m, nil
}

// next waits for the next report, which must be of a run.
func (b *moveBench) next(ctx context.Context, run, what string) (moveReport, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, movePatience, fmt.Errorf("waited for %v until run %s %s", movePatience, run, what))
	defer cancel()
	select {
	case r := <-b.reports:
		if r.Run != run {
			return r, fmt.Errorf("expected that run %s %s, and heard %+v", run, what, r)
		}
		return r, nil
	case <-ctx.Done():
		return moveReport{}, context.Cause(ctx)
	}
}
