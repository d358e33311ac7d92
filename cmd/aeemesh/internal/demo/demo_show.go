package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/tree"
	"github.com/aeemesh/aeemesh/state"
)

// demoThinks is how long the worker that is killed may take to call its first
// tool. Its script thinks for a while after that.
const demoThinks = 5 * time.Second

// demoWatch shows what the bus tells of one task and all that come of it, and
// has one worker killed on the way.
type demoWatch struct {
	d      *demo
	node   *mesh.Node
	sub    *nats.Subscription
	events chan traffic.Sighting
	done   chan struct{}
	once   sync.Once

	victim string // the task of the worker that was killed
	err    error
}

func (d *demo) watch(ctx context.Context, s *session.Session, corr string) (*demoWatch, error) {
	w := &demoWatch{d: d, node: s.Node, events: make(chan traffic.Sighting, 1024), done: make(chan struct{})}
	var err error
	w.sub, err = s.Conn.Subscribe(subject.Map{}.AllBus(), func(msg *nats.Msg) {
		e, err := envelope.Parse(msg.Data)
		if err != nil || e.Corr != corr {
			return
		}
		select {
		case w.events <- traffic.Sighting{At: time.Now(), Subject: msg.Subject, Env: e}:
		default: // more than a person can read
		}
	})
	if err == nil {
		err = s.Conn.FlushTimeout(5 * time.Second)
	}
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		for seen := range w.events {
			w.show(ctx, seen)
		}
	}()
	return w, nil
}

func (w *demoWatch) show(ctx context.Context, s traffic.Sighting) {
	t := w.d.app.Term
	t.Say("   %s", traffic.SightingText(t.Words, s, false))
	if s.Env.From != demoVictim || s.Env.Intent != intents.TaskStarted || w.d.killed != 0 {
		return
	}
	var p struct {
		Task string `json:"task"`
	}
	_ = json.Unmarshal(s.Env.Payload, &p) // without it nothing more is shown of that task
	w.victim = p.Task
	w.awaitReceipt(ctx)
	if ctx.Err() == nil {
		w.err = w.d.kill(ctx, demoVictim)
	}
}

// awaitReceipt waits until a tool's receipt is in the victim's record, so that
// there is something that the next worker need not do again.
func (w *demoWatch) awaitReceipt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, demoThinks)
	defer cancel()
	for pause.For(ctx, 10*time.Millisecond) {
		cp, err := w.node.Run(ctx, demoVictim, w.victim)
		if err == nil && slices.ContainsFunc(cp.Mesh.Effects, func(e state.Effect) bool { return e.Status == state.EffectDone }) {
			return
		}
	}
}

// end waits for what is on its way, and ends the watch.
func (w *demoWatch) end() {
	w.once.Do(func() {
		_ = w.sub.Drain() // the connection goes too
		deadline := time.After(2 * time.Second)
		for w.sub.IsValid() {
			select {
			case <-deadline:
				return
			case <-time.After(time.Millisecond):
			}
		}
		close(w.events)
		<-w.done
	})
}

// demoReview is the team's result with what the swarm says of itself.
type demoReview struct {
	review.TeamReview
	Swarm struct {
		Votes []struct {
			Aliases []string `json:"aliases"`
		} `json:"votes"`
	} `json:"swarm"`
}

func (d *demo) showReview(reply *envelope.Envelope) error {
	t := d.app.Term
	var review demoReview
	if err := json.Unmarshal(reply.Payload, &review); err != nil {
		return fmt.Errorf("the result is no review: %w", err)
	}
	t.Heading("5. The result, signed by %s", reply.From)
	if t.JSON {
		return t.Object(review.TeamReview)
	}
	var rows [][]string
	for _, f := range review.Findings {
		rows = append(rows, []string{fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column), string(f.Severity), f.Rule, f.Message})
	}
	t.Table([]string{"where", "severity", "rule", "finding"}, rows)
	t.Say("   %s", term.Printable(review.Summary))
	for _, alias := range []string{"security", "style", "logic"} {
		if vote, ok := review.Said[alias]; ok {
			t.Say("   %-9s votes %s", alias, vote)
		}
	}
	return nil
}

// showRecovery shows the tree of tasks, and how often the killed one was begun.
func (d *demo) showRecovery(ctx context.Context, s *session.Session, corr, victim string) error {
	t := d.app.Term
	if !t.JSON {
		t.Heading("6. Who did what: aeemesh tree %s", corr)
		if err := traffic.ShowTree(d.app, ctx, d.cmd, corr, &traffic.TreeFlags{Fold: tree.DefaultFold}); err != nil {
			return err
		}
	}
	if victim == "" {
		return nil
	}
	cp, err := s.Node.Run(ctx, demoVictim, victim)
	if err != nil {
		return err
	}
	t.Heading("7. What the kill has cost: aeemesh runs show %.8s", cp.Doc.RunID)
	t.Say("   the run of %s had a second owner; process %d was the first", demoVictim, d.killed)
	for _, e := range cp.Mesh.Effects {
		by := "by the second"
		if e.Epoch == 1 {
			by = "by the first, and its receipt was there"
		}
		t.Say("   its call of %s was made %s, %s", e.Tool, times(e.Tries), by)
	}
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (d *demo) showCommands() {
	before := []string{}
	server, at := "-s "+d.srv.ClientURL()+" ", "--nats "+d.srv.ClientURL()+" "
	if !d.keep {
		server, at, before = "", "", []string{"aeemesh demo --keep --port 4222" + d.pathFlag()}
	}
	d.app.Term.Heading("8. Go on")
	d.app.Term.Steps("   with the nats CLI, and with aeemesh; the team takes unsigned tasks too", append(before,
		"nats "+server+"micro ls",
		"nats "+server+"sub 'bus.>'",
		"nats "+server+"req aee.ask."+demoLead+` '{"path":"."}' --timeout 1m`,
		"aeemesh "+at+"send "+demoLead+` '{"path":"."}' --durable --shared-keys`,
		"aeemesh "+at+"runs list",
	)...)
}

func (d *demo) pathFlag() string {
	if d.path == "" {
		return ""
	}
	return " --path " + plain.ShellWord(d.path)
}
