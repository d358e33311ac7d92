package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// An author is an agent that writes in turns of words, as a model would: it
// streams them, commits each turn, calls a tool before the last one, and stops
// in the middle of a turn when it is asked to.
type author struct {
	name  string
	words chan struct{} // one receive lets one word go on
	told  chan string   // each word that was emitted, "name:word"
	tools chan chan struct{}
	begun chan *mesh.Run
}

const turns = 3

func newAuthor(name string) *author {
	return &author{name: name, words: make(chan struct{}, 1000), told: make(chan string, 1000), tools: make(chan chan struct{}, 10), begun: make(chan *mesh.Run, 10)}
}

// text is what a turn comes to, on each worker.
func text(turn int) string { return fmt.Sprintf("turn %d is one of %d. ", turn, turns) }

// speak lets n words go.
func (a *author) speak(n int) {
	for range n {
		a.words <- struct{}{}
	}
}

func (a *author) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	run := task.Run()
	a.begun <- run
	c := run.View()
	for turn := len(c.Doc.Conversation); turn < turns; turn++ {
		if turn == turns-1 {
			if err := a.tool(ctx, run, c); err != nil {
				return nil, err
			}
		}
		if err := a.turn(ctx, task, turn); err != nil {
			return nil, err
		}
		err := run.Commit(ctx, state.Step{Kind: state.StepModel}, func(c *state.Checkpoint) error {
			c.Doc.Conversation = append(c.Doc.Conversation, aaif.Message{Role: aaif.MessageAssistant, Content: text(turn)})
			c.Mesh.Told = ""
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return mustJSON(map[string]string{"by": a.name}), nil
}

// turn streams one turn from where the owner before has stopped.
func (a *author) turn(ctx context.Context, task *mesh.Task, turn int) error {
	run := task.Run()
	rest := strings.TrimPrefix(text(turn), run.SentText())
	for _, word := range strings.SplitAfter(rest, " ") {
		if word == "" {
			continue
		}
		select {
		case <-a.words:
		case <-run.StopRequested():
			if err := run.Commit(ctx, state.Step{Kind: state.StepPause}, nil); err != nil {
				return err
			}
			return a.turn(ctx, task, turn)
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := task.EmitText(word); err != nil {
			return err
		}
		a.told <- a.name + ":" + word
	}
	return nil
}

// tool makes one call, with an intent before and a receipt after.
func (a *author) tool(ctx context.Context, run *mesh.Run, c *state.Checkpoint) error {
	if len(c.Mesh.Effects) > 0 && c.Mesh.Effects[0].Status.Final() {
		return nil
	}
	effect := state.Effect{ID: "call-1", Tool: "look", Key: state.EffectKey(run.ID(), 1, 1), Status: state.EffectInFlight}
	set := func(status state.EffectStatus) func(*state.Checkpoint) error {
		return func(c *state.Checkpoint) error {
			effect.Status = status
			c.Mesh.Effects = []state.Effect{effect}
			return nil
		}
	}
	if err := run.Commit(ctx, state.Step{Kind: state.StepIntent, Name: "look"}, set(state.EffectInFlight)); err != nil {
		return err
	}
	called := make(chan struct{})
	a.tools <- called
	select {
	case <-called:
	case <-ctx.Done():
		return ctx.Err()
	}
	return run.Commit(ctx, state.Step{Kind: state.StepReceipt, Name: "look"}, set(state.EffectDone))
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// A movement is two workers of one agent, a task that the first one has, and a
// caller who listens.
type movement struct {
	*durableRig
	source, target   *author
	sourceID         string
	targetID         string
	sourceAt         *points
	targetAt         *points
	client           *mesh.Node
	task             *envelope.Envelope
	heard            *hearing
	sourceNC         *nats.Conn
	targetNC         *nats.Conn
	sourceConfig     mesh.Config
	targetConfig     mesh.Config
	targetCommitment func(*mesh.Durable)
	targetHandler    mesh.Handler // nil: target
}

// hearing is what the caller is told.
type hearing struct {
	mu    sync.Mutex
	text  string
	seqs  []string
	reply *envelope.Envelope
	err   error
	done  chan struct{}
}

func (h *hearing) hear(e *envelope.Envelope) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var p struct {
		Text    string
		Seq     int
		Restart bool
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return err
	}
	if p.Restart {
		return errors.New("the text began anew")
	}
	h.text += p.Text
	h.seqs = append(h.seqs, fmt.Sprint(p.Seq))
	return nil
}

func (h *hearing) so() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text
}

func (r *durableRig) instance(nc *nats.Conn, node *mesh.Node, known ...string) string {
	r.t.Helper()
	var id string
	eventually(r.t, "the worker is discovered", func() bool {
		found, err := node.Discover(ctxFor(r.t), reviewer, time.Second)
		if err != nil {
			return false
		}
		for _, i := range found {
			if !slices.Contains(known, i.Info.ID) {
				id = i.Info.ID
			}
		}
		return id != ""
	})
	return id
}

func newMovement(t *testing.T, change ...func(*movement)) *movement {
	t.Helper()
	r := newDurableRig(t)
	m := &movement{durableRig: r, source: newAuthor("source"), target: newAuthor("target"), sourceAt: newPoints(t), targetAt: newPoints(t)}
	for _, f := range change {
		f(m)
	}
	m.sourceNC, m.targetNC = natstest.Conn(t, r.srv), natstest.Conn(t, r.srv)
	m.sourceConfig.Drain = time.Millisecond
	r.serve(r.laneOn(m.sourceNC, m.sourceConfig, observing(m.sourceAt)), mesh.Agent{Handler: m.source})
	m.client = r.client()
	m.sourceID = r.instance(r.nc, m.client)
	m.task = requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	m.heard = &hearing{done: make(chan struct{})}
	go func() {
		defer close(m.heard.done)
		_, m.heard.reply, m.heard.err = m.client.Perform(ctxFor(t), m.task, mesh.SubmitOptions{}, mesh.ResultOptions{OnStream: m.heard.hear})
	}()
	within(t, "the run to begin", m.source.begun)
	m.join()
	return m
}

// endingLeases is for a test that waits until the lease of a message ends.
func endingLeases(m *movement) { m.shortLeases() }

// join serves the target.
func (m *movement) join() {
	m.t.Helper()
	change := []func(*mesh.Durable){observing(m.targetAt)}
	if m.targetCommitment != nil {
		change = append(change, m.targetCommitment)
	}
	cfg := m.targetConfig
	cfg.Drain = time.Millisecond
	agent := mesh.Agent{Handler: m.target}
	if m.targetHandler != nil {
		agent.Handler = m.targetHandler
	}
	m.serve(m.laneOn(m.targetNC, cfg, change...), agent)
	m.targetID = m.instance(m.nc, m.client, m.sourceID)
}

func (m *movement) move(to string, change ...func(*intents.MigrateTask)) intents.CommandResult {
	m.t.Helper()
	cmd := intents.MigrateTask{Target: intents.Target{ID: m.task.ID}, To: to}
	for _, f := range change {
		f(&cmd)
	}
	result, err := m.client.Command(ctxFor(m.t), reviewer, cmd)
	if err != nil {
		m.t.Fatalf("migrate: %v", err)
	}
	if !result.Migrating {
		m.t.Fatalf("migrate: %+v", result)
	}
	return result
}

// whole is all that the caller is to hear.
func whole() string {
	var s string
	for turn := range turns {
		s += text(turn)
	}
	return s
}

// words is how many words there are in a turn.
const wordsInTurn = 6

// finish lets both write to the end, and holds what the caller heard to what
// there was to hear.
func (m *movement) finish(by string) {
	m.t.Helper()
	m.source.speak(100)
	m.target.speak(100)
	go func() {
		for {
			select {
			case c := <-m.target.tools:
				close(c)
			case c := <-m.source.tools:
				close(c)
			case <-m.heard.done:
				return
			}
		}
	}()
	within(m.t, "the reply", m.heard.done)
	if m.heard.err != nil {
		m.t.Fatalf("the reply: %v", m.heard.err)
	}
	equal(m.t, "by", string(m.heard.reply.Payload), `{"by":"`+by+`"}`)
	equal(m.t, "text", m.heard.text, whole())
	for i, seq := range m.heard.seqs {
		if seq != fmt.Sprint(i+1) {
			m.t.Fatalf("numbers %v", m.heard.seqs)
		}
	}
	m.stored(m.task, m.heard.reply)
	m.drainedQueue()
	terminal := 0
	for _, e := range m.replies(m.task) {
		if e.Type != envelope.TypeStream {
			terminal++
		}
	}
	equal(m.t, "terminal replies", terminal, 1)
	c := m.record(m.task)
	equal(m.t, "status", c.Doc.Status, aaif.RunCompleted)
	var all []string
	for _, msg := range c.Doc.Conversation {
		all = append(all, msg.Content)
	}
	equal(m.t, "conversation", strings.Join(all, ""), whole())
}

func (m *movement) phase() state.Phase {
	if c := m.record(m.task); c.Mesh.Migration != nil {
		return c.Mesh.Migration.Phase
	}
	return ""
}
