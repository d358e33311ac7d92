package traffic

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/tree"
	"github.com/aeemesh/aeemesh/state"
)

// An event is of a tree however its corr is spelled.
func TestATreeHasEventsInEverySpelling(t *testing.T) {
	t.Parallel()
	e := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", intents.TaskStarted, json.RawMessage(`{"task":"task-0001"}`))
	e.Corr = "corr-0001"
	plain, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, spelling := range []string{"corr-0001", `\u0063orr-0001`, "corr-0002"} {
		r := &treeReader{corr: "corr-0001", quick: inJSON("corr-0001"), builder: tree.New("corr-0001")}
		_, changed := r.take(time.Now(), []byte(strings.Replace(string(plain), `"corr-0001"`, `"`+spelling+`"`, 1)))
		if want := spelling != "corr-0002"; changed != want {
			t.Errorf("corr %s: taken %t, want %t", spelling, changed, want)
		}
	}
}

// An envelope with a wrong signature is not part of a tree: no event, and no stored answer. One
// without a signature, or by a key that is not known here, is.
func TestATreeHasNothingWithAWrongSignature(t *testing.T) {
	t.Parallel()
	signer, key, err := sign.NewKey("a", sign.Ed25519, "agent.a")
	if err != nil {
		t.Fatal(err)
	}
	stranger, _, err := sign.NewKey("b", sign.Ed25519, "agent.a")
	if err != nil {
		t.Fatal(err)
	}
	ring := &sign.Ring{}
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	revoked, key, err := sign.NewKey("c", sign.Ed25519, "agent.a")
	if err != nil {
		t.Fatal(err)
	}
	if key.Revoked = true; ring.Put(sign.Local, key) != nil {
		t.Fatal("the revoked key is not taken")
	}
	a := &session.App{Log: slog.New(slog.DiscardHandler)}
	for name, c := range map[string]struct {
		by     *sign.Signer
		change bool
		taken  bool
	}{
		"unsigned": {nil, false, true}, "signed": {signer, false, true}, "changed": {signer, true, false}, "an unknown key": {stranger, false, true},
		"a revoked key": {revoked, false, true},
	} {
		now := time.Now()
		made := func(e *envelope.Envelope) []byte {
			e.Corr = "corr-0001"
			if c.by != nil {
				if err := c.by.Sign(e); err != nil {
					t.Fatal(err)
				}
			}
			data, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.change {
				data = []byte(strings.Replace(string(data), "right", "wrong", 1))
			}
			return data
		}
		r := &treeReader{app: a, ring: ring, wanted: "corr-0001", quick: inJSON("corr-0001")}
		other := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", intents.TaskStarted, json.RawMessage(`{"task":"task-0001\"","instance":"right"}`))
		if _, changed := r.take(now, []byte(strings.Replace(string(made(other)), "corr-0001", "corr-0002", 1))); changed || r.warned {
			t.Errorf("%s: an event of another tree: taken: %v, warned: %v", name, changed, r.warned)
		}
		_, changed := r.take(now, made(envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", intents.TaskStarted, json.RawMessage(`{"task":"task-0001","instance":"right"}`))))
		if changed != c.taken || (r.builder != nil) != c.taken {
			t.Errorf("%s: the event is taken: %v", name, changed)
		}
		r.found("corr-0001", "")
		reply := envelope.New(envelope.TypeResult, "agent.a", "human.ada", "agent.ask", json.RawMessage(`{"text":"right"}`))
		reply.ReplyTo = "task-0001"
		r.add(nil, treeRecord{task: "task-0001", reply: &jetstream.Message{Time: now, Data: made(reply)}})
		if n := r.builder.Tree(now).Nodes; (len(n) == 1 && n[0].State == tree.Done) != c.taken {
			t.Errorf("%s: the answer is taken: %+v", name, n)
		}
	}
}

// The events of a tree are not looked for in all that was stored later, unless it may go
// on.
func TestATreeIsReadNoFurtherThanItsEnd(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	id := envelope.NewID()
	for name, c := range map[string]struct {
		corr, root string
		events     []string
		over       bool
	}{
		"done":                       {id, "", []string{intents.TaskStarted, intents.TaskFinished}, true},
		"working":                    {id, "", []string{intents.TaskStarted}, false},
		"may be retried":             {id, "", []string{intents.TaskStarted, intents.TaskFailed}, false},
		"none is known of":           {id, "", nil, false},
		"a task of it may come":      {"order-4711", "", []string{intents.TaskStarted, intents.TaskFinished}, false},
		"a task of such a corr":      {"order-4711", "task-0001", []string{intents.TaskStarted, intents.TaskFinished}, true},
		"a task of it that is there": {"order-4711", "task-0001", []string{intents.TaskStarted}, false},
	} {
		r := &treeReader{}
		r.found(c.corr, c.root)
		for i, intent := range c.events {
			e := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", intent, json.RawMessage(`{"task":"task-0001","sender":"human.ada"}`))
			e.Corr = c.corr
			data, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, changed := r.take(began.Add(time.Duration(i)*time.Second), data); !changed {
				t.Fatal(name, "the event is not taken")
			}
		}
		if r.over(began.Add(treeSilence)) {
			t.Errorf("%s: over at once", name)
		}
		if got := r.over(began.Add(treeSilence + 2*time.Second)); got != c.over {
			t.Errorf("%s: over %t", name, got)
		}
	}
}

// What was stored long before a task was made is not read for its tree, nor for a watch of
// its corr.
func TestNothingIsReadThatIsOlderThanTheTask(t *testing.T) {
	t.Parallel()
	made := time.Now().Truncate(time.Millisecond)
	id := envelope.NewID()
	hour := made.Add(-time.Hour)
	for name, c := range map[string]struct {
		got  time.Time
		want time.Duration // before the task
	}{
		"a tree":              {(&treeReader{flags: &TreeFlags{}, wanted: id}).since(), runs.ClockSlack},
		"a tree since 1h":     {(&treeReader{flags: &TreeFlags{since: time.Hour}, wanted: id}).since(), time.Hour},
		"a watch since 1h":    {notBefore(id, hour), runs.ClockSlack},
		"a watch since 1m":    {notBefore(id, made.Add(-time.Minute)), time.Minute},
		"a corr without time": {notBefore("team-job-1", hour), time.Hour},
	} {
		if d := c.got.Sub(made.Add(-c.want)); d < 0 || d > 10*time.Second {
			t.Errorf("%s: from %v on, %v off", name, c.got, d)
		}
	}
	if at := (&treeReader{flags: &TreeFlags{}, wanted: "team-job-1"}).since(); !at.IsZero() {
		t.Errorf("a tree without time: from %v on", at)
	}
}

// An id whose time has not come was made by a wrong clock, or by a sender that wants its tasks to be
// overlooked. It says as little as one without a time.
func TestAnIdOfTheFutureHidesNothing(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(-time.Hour)
	for _, ahead := range []time.Duration{time.Hour, 24 * time.Hour, 75 * 365 * 24 * time.Hour} {
		id := envelope.DeriveID("", time.Now().Add(ahead), "x")
		if at := (&treeReader{flags: &TreeFlags{}, wanted: id}).since(); !at.IsZero() {
			t.Errorf("a tree of an id that is %v ahead: from %v on", ahead, at)
		}
		if at := notBefore(id, hour); !at.Equal(hour) {
			t.Errorf("a watch of an id that is %v ahead: from %v on", ahead, at)
		}
	}
	if at := notBefore(envelope.DeriveID("", time.Now().Add(5*time.Minute), "x"), hour); at.Before(hour.Add(30 * time.Minute)) {
		t.Errorf("an id of a clock that is somewhat ahead: from %v on", at)
	}
}

// The record of a run says when its tree began, if its name does not.
func TestARunSaysWhenItsTreeBegan(t *testing.T) {
	t.Parallel()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err == nil {
		_, err = jetstream.Apply(t.Context(), js, jetstream.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	store := runs.NewStore(js, subject.Map{}, nil)
	put := func(entity, id, corr string) string {
		t.Helper()
		task := envelope.New(envelope.TypeTask, "human.ada", entity, "code.review", json.RawMessage(`{}`))
		task.ID, task.Corr = id, corr
		c := state.New(entity, id, "")
		if c.Mesh.Task, err = task.AppendJSON(nil); err != nil {
			t.Fatal(err)
		}
		data, err := state.Codec{}.Encode(c)
		if err == nil {
			_, err = store.Put(t.Context(), c.ID(), 0, data)
		}
		if err == nil {
			_, err = js.Publish(t.Context(), "$KV.aee_lanes."+subject.Escape(entity), []byte(entity))
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.Doc.RunID
	}
	at := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	corr := func(d time.Duration) string { return envelope.DeriveID("", at.Add(d), "x") }
	run := put("agent.one", "order-0001", corr(time.Hour))
	put("agent.one", "order-0002", corr(2*time.Hour))
	put("agent.two", "order-0002", corr(-time.Hour))
	other := put("agent.one", "order-0003", "my-corr-01")
	put("agent.one", "order-0004", corr(0))
	put("agent.two", "order-0004", "my-corr-02")
	put("agent.two", "order-0006", "my-corr-03")
	put("agent.one", "order-0006", corr(0))
	for name, want := range map[string]time.Time{
		run: at.Add(time.Hour), run[:8]: at.Add(time.Hour), "order-0001": at.Add(time.Hour), "order-0002": at.Add(-time.Hour),
		other: {}, "order-0004": {}, "order-0005": {}, "order-0006": {}, run[:7]: {}, "my-corr-01": {},
	} {
		if !want.IsZero() {
			want = want.Add(-runs.ClockSlack)
		}
		if got := beginning(t.Context(), store, name); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
