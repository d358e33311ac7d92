package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// maxPinged bounds how many agents are asked at once, and how many are tried that this user may
// not ask.
const maxPinged = 20

// maxWaits bounds the time to ask all agents, in waits for one of them: only a mesh with many
// agents that do not answer takes as long.
const maxWaits = 4

// agents discovers agents and checks those that it finds; ok is false if not
// all were found.
func (d *doctor) agents(ctx context.Context) (found []mesh.Instance, ok bool) {
	node, err := d.node()
	if err != nil {
		d.tell("agents", "fail", "", "%s", outcome.Text(err))
		return nil, false
	}
	found, err = workers.Discover(ctx, node, "", time.Second)
	if err != nil {
		d.tell("agents", d.lacks(), outcome.Hint(err), "%s", outcome.Text(err))
		return nil, false
	}
	entities := slices.Sorted(maps.Keys(workers.TakersOf(found)))
	d.tell("agents", "ok", "", "entities: %d, workers: %d", len(entities), len(found))
	unsigned, err := mesh.New(d.conn, mesh.Config{Prefix: d.subjects.Prefix(), Logger: d.app.Log, Entity: node.Entity(), Verifier: sign.Verifier{Mode: sign.Off}})
	if err != nil {
		d.tell("agents", "fail", "", "%s", outcome.Text(err))
		return nil, false
	}
	as := func(entity string) *mesh.Node {
		if d.app.Sign.Kid == session.SignAuto && !workers.WantSignatures(found, entity) {
			return unsigned // the agent may not know the signing key yet
		}
		return node
	}
	asked, began := 0, time.Now()
	for asked < len(entities) && ctx.Err() == nil && len(d.unasked) < maxPinged && time.Since(began) < maxWaits*d.app.Conn.Wait() {
		turn := entities[asked:min(asked+maxPinged-len(d.unasked), len(entities))]
		asked += len(turn)
		answers := make([]answer, len(turn))
		var all sync.WaitGroup
		for i, entity := range turn {
			all.Go(func() { answers[i] = d.ask(ctx, as(entity), entity) })
		}
		all.Wait()
		for i := range answers {
			d.answered(&answers[i])
		}
	}
	d.tellClocks()
	left, more := len(entities)-asked, ""
	switch {
	case left > 0 && len(d.unasked) >= maxPinged:
		more = fmt.Sprintf("; %d more were not tried", left)
	case left > 0:
		d.tell("agents", "warn", "Give it longer with --timeout.", "%d of %d agents were asked: many do not answer", asked, len(entities))
	}
	if len(d.unasked) > 0 {
		d.tell("agents", "ok", "A worker needs no answer of them. An operator's user may ask all.", "not asked, because this user may not send to them: %s%s", strings.Join(d.unasked, ", "), more)
	}
	return found, true
}

// answer is what an agent says of its clock and its health.
type answer struct {
	entity string
	asked  time.Time
	took   time.Duration
	pong   intents.PingResult
	health *intents.HealthResult // nil if it did not tell
	err    error                 // of the ping
}

// agent asks an agent for its clock and its health, and reports them.
func (d *doctor) agent(ctx context.Context, node *mesh.Node, entity string) {
	a := d.ask(ctx, node, entity)
	d.answered(&a)
}

// ask asks an agent for its clock and its health. It may be called from several goroutines.
func (d *doctor) ask(ctx context.Context, node *mesh.Node, entity string) answer {
	turn, cancel := context.WithTimeout(ctx, d.app.Conn.Wait())
	a := answer{entity: entity, asked: time.Now()}
	a.err = workers.Ask(turn, node, entity, intents.StatusPing, &a.pong)
	cancel()
	a.took = time.Since(a.asked)
	if a.err != nil {
		return a
	}
	turn, cancel = context.WithTimeout(ctx, d.app.Conn.Wait())
	defer cancel()
	var health intents.HealthResult
	if _, err := node.Query(turn, entity, intents.StatusHealth, struct{}{}, &health); err == nil { // else it is running, as it has answered a ping
		a.health = &health
	}
	return a
}

// answered reports what an agent has answered.
func (d *doctor) answered(a *answer) {
	if d.role == roleWorker && workers.MayNotAsk(a.err) {
		d.unasked = append(d.unasked, a.entity)
		return
	}
	if errors.Is(a.err, &envelope.Error{Code: envelope.CodeSigRequired}) {
		d.tell("agent", "ok", "", "%s answers, and wants signatures", a.entity)
		return
	}
	if a.err != nil {
		d.tell("agent", "warn", "", "%s does not answer a ping: %s", a.entity, outcome.Text(a.err))
		return
	}
	if at, err := time.Parse(time.RFC3339, a.pong.TS); err == nil {
		skew := at.Sub(a.asked.Add(a.took / 2))
		if d.all || d.app.Term.JSON || skew.Abs() > mesh.DefaultSkew/5 {
			d.skew("clock", a.entity, skew, a.took)
		} else {
			d.clocked, d.apart = append(d.clocked, a.entity), max(d.apart, skew.Abs())
		}
	}
	d.health(a)
}
