package mesh_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// queue publishes a task as any NATS client may, on the subject of a priority.
func (r *durableRig) queue(priority string, task *envelope.Envelope) {
	r.t.Helper()
	msg := &nats.Msg{Subject: "aee.work." + priority + "." + task.To, Data: encode(r.t, task)}
	if _, err := r.js(r.nc).PublishMsg(ctxFor(r.t), msg); err != nil {
		r.t.Fatal(err)
	}
}

// taskEvents collects what the bus says of tasks, by id.
func taskEvents(t *testing.T, events chan *nats.Msg) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, msg := range drained(events) {
		e := parse(t, msg.Data)
		var p struct {
			Task  string
			Error struct {
				Code      envelope.Code
				Retryable bool
				BackoffMS int64 `json:"backoff_ms"`
			}
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		word := strings.TrimPrefix(e.Intent, "mesh.task.")
		if p.Error.Code != "" {
			word += fmt.Sprintf(" %s %t %t", p.Error.Code, p.Error.Retryable, p.Error.BackoffMS > 0)
		}
		out[p.Task] = append(out[p.Task], word)
	}
	return out
}

// Gap 18 of the traceability review: a durable task of a sender over its rate is put
// off, and the mesh is told. Others do not wait behind it.
func TestDurableTasksOverTheRateArePutOff(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	k := newKeys(t)
	signer := k.signer("ada", sign.HS256, "human.*")
	events := r.listen("bus.mesh.task")
	r.serve(r.lane(mesh.Config{Verifier: k.verifier(), Quotas: mesh.Quotas{
		Rate: 0.001, Burst: 3, UnknownRate: 0.001, UnknownBurst: 2, Known: []string{"agent.known"},
	}}), mesh.Agent{Handler: echo})
	client := r.client()
	senders := map[string][]*envelope.Envelope{}
	due := map[string]int{"agent.eve": 2, ada + " signed": 3, "agent.known": 3, ada: 2}
	for sender, burst := range due {
		from, _, proven := strings.Cut(sender, " signed")
		for range burst + 2 {
			task := newTask(reviewer, "code.review", `{}`)
			task.From = from
			if proven {
				signed(t, signer, durably(t, task))
			}
			r.queue("urgent", task)
			senders[sender] = append(senders[sender], task)
		}
	}
	told := map[string][]string{}
	hears := func(sender string) (done, off []*envelope.Envelope) {
		for _, task := range senders[sender] {
			switch words := strings.Join(told[task.ID], ", "); words {
			case "started, finished":
				done = append(done, task)
			case "retrying E_RATE_LIMITED true true":
				off = append(off, task)
			case "", "started":
			default:
				t.Errorf("a task of %s: %s", sender, words)
			}
		}
		return done, off
	}
	eventually(t, "all is told", func() bool {
		for id, words := range taskEvents(t, events) {
			told[id] = append(told[id], words...)
		}
		for sender, tasks := range senders {
			if done, off := hears(sender); len(done)+len(off) < len(tasks) {
				return false
			}
		}
		return true
	})
	var late *envelope.Envelope
	for sender, burst := range due {
		done, off := hears(sender)
		equal(t, sender, [2]int{len(done), len(off)}, [2]int{burst, 2})
		for _, task := range done {
			if _, err := r.result(client, task); err != nil {
				t.Error(err)
			}
		}
		for _, task := range off {
			if c := r.begun(task); c != nil {
				t.Errorf("a task of %s that was put off has a run: %s", sender, c.Doc.Status)
			}
			if sender == "agent.eve" {
				late = task
			}
		}
	}
	eventually(t, "what is done is off the queue", func() bool { return r.queued() == 8 })

	// A cancel is no task, and the live lane has a quota of its own.
	if out := r.command(r.lane(mesh.Config{Entity: "agent.eve"}), intents.CancelTask{ID: late.ID}); !out.Cancelled {
		t.Errorf("a cancel of a task that was put off: %+v", out)
	}
	live := newTask(reviewer, "code.review", `{}`)
	live.From = "agent.eve"
	equal(t, "live", r.request(live).Type, envelope.TypeResult)
}

// A task that was put off is done when its turn comes, and counted once.
func TestDurableTasksThatWerePutOffAreDone(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Quotas: mesh.Quotas{UnknownRate: 2, UnknownBurst: 1}}), mesh.Agent{Handler: echo})
	events := r.listen("bus.mesh.task")
	client := r.client()
	var tasks []*envelope.Envelope
	for range 6 {
		task := newTask(reviewer, "code.review", `{}`)
		r.queue("normal", task)
		tasks = append(tasks, task)
	}
	for _, task := range tasks {
		if _, err := r.result(client, task); err != nil {
			t.Error(err)
		}
	}
	var off int
	for id, words := range taskEvents(t, events) {
		n := 0
		for _, word := range words {
			if strings.HasPrefix(word, "retrying") {
				n++
			}
		}
		if n > 1 {
			t.Errorf("task %s was put off %d times", id, n)
		}
		off += n
	}
	if off == 0 {
		t.Error("no task was put off")
	}
}

// The sender of a task that is put off until its time is over hears of that.
func TestADurableTaskIsPutOffNoLongerThanItMayTake(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Quotas: mesh.Quotas{UnknownRate: 0.001, UnknownBurst: 1}}), mesh.Agent{Handler: echo})
	client := r.client()
	first, second := newTask(reviewer, "code.review", `{}`), requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":200}`)
	r.queue("normal", first)
	if _, err := r.result(client, first); err != nil {
		t.Fatal(err)
	}
	r.queue("normal", second)
	if _, err := r.result(client, second); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("result: %v", err)
	}
}

// Mutation M1 of the traceability review: what a sender may ask for is bounded on the
// durable lane as on the live one.
func TestDurablePriorityIsCapped(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada", sign.HS256, ">")
	r := newDurableRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.lane(mesh.Config{Verifier: k.verifier(), Quotas: mesh.Quotas{Cap: envelope.PriorityHigh, UnknownCap: envelope.PriorityNormal, UrgentRate: 0.001}}), mesh.Agent{Handler: g})
	for _, c := range []struct {
		from   string
		signed bool
		asked  envelope.Priority // on the subject
		want   envelope.Priority
	}{
		{"agent.a", false, "urgent", "normal"}, {"agent.a", false, "low", "low"},
		{"agent.a", true, "urgent", "high"}, {"agent.a", true, "high", "normal"}, // the second within the second
		{"agent.b", true, "low", "low"}, {"agent.b", true, "high", "high"}, {"agent.b", true, "urgent", "normal"},
	} {
		task := newTask(reviewer, "code.review", `{}`)
		task.From = c.from
		if c.signed {
			signed(t, signer, durably(t, task))
		}
		r.queue(string(c.asked), task)
		equal(t, fmt.Sprintf("%+v", c), within(t, "a task", g.entered).Envelope.Priority, c.want)
		reply, err := r.result(r.client(), task)
		if err != nil || reply.Priority != c.want {
			t.Errorf("%+v: the reply is %v, %v", c, reply, err)
		}
	}
}

// Mutation M2 of the traceability review.
func TestDurableTimeoutIsCapped(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.MaxTimeout, d.DefaultTimeout = time.Hour, time.Minute }), mesh.Agent{Handler: g, Concurrency: 3})
	for requires, want := range map[string]time.Duration{`{"timeout_ms":86400000}`: time.Hour, `{"timeout_ms":120000}`: 2 * time.Minute, `{}`: time.Minute} {
		task := requiring(newTask(reviewer, "code.review", `{}`), requires)
		r.submit(r.client(), task)
		got := within(t, "the task", g.entered)
		equal(t, requires, got.Requires.Timeout, want)
		if latest := time.Now().Add(want + time.Minute); got.Deadline.After(latest) {
			t.Errorf("%s: the deadline is %v, long after %v", requires, got.Deadline, latest)
		}
	}
}

// Mutation M9b of the traceability review: the reserved intents are answered on the
// live lane only. The task's sender hears so, and the handler does not see it.
func TestReservedIntentsAreRefusedOnTheDurableLane(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	for _, intent := range []string{intents.StatusPing, intents.ContextFetch, "aee.of.my.own", "AEE.status.ping", "mesh.of.my.own"} {
		task := newTask(reviewer, intent, `{}`)
		r.queue("normal", task)
		if _, err := r.result(client, task); codeOf(err) != envelope.CodeIntentReserved {
			t.Errorf("%s: %v", intent, err)
		}
	}
	if len(g.entered) > 0 {
		t.Errorf("the handler was given %s", (<-g.entered).Envelope.Intent)
	}
}

// A run whose worker was lost is no new task: it goes on at once.
func TestARunThatWasLostIsNotPutOff(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: g})
	task := newTask(reviewer, "code.review", `{}`)
	r.queue("normal", task)
	within(t, "the task", g.entered)
	eventually(t, "its run is written", func() bool { return r.begun(task) != nil })
	nc.Close()

	strict := r.lane(mesh.Config{Quotas: mesh.Quotas{UnknownRate: 0.001, UnknownBurst: 1}})
	// Its sender has used up what this worker allows.
	r.serve(strict, mesh.Agent{Handler: echo})
	events := r.listen("bus.mesh.task")
	client := r.client()
	for range 2 {
		r.queue("normal", newTask(reviewer, "code.review", `{}`))
	}
	eventually(t, "a task is put off", func() bool {
		for _, words := range taskEvents(t, events) {
			if strings.HasPrefix(words[0], "retrying") {
				return true
			}
		}
		return false
	})
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
}

// Finding 4 of the security review: commands count, on both lanes. They have a quota of
// their own, so a sender that is over its quota of tasks can still end them.
func TestCommandsHaveAQuota(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{Quotas: mesh.Quotas{UnknownRate: 0.001, UnknownBurst: 1}}), mesh.Agent{Handler: willing{g}, Concurrency: 3})
	client := r.client()
	task, over := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	r.queue("normal", over)
	if out := r.command(client, intents.CancelTask{ID: task.ID}); !out.Cancelled {
		t.Errorf("a cancel of a sender that is over its quota of tasks: %+v", out)
	}
	_, err := client.Command(ctxFor(t), reviewer, intents.SteerTask{Target: target(over), Text: "be kind"})
	if codeOf(err) != envelope.CodeRateLimited || !strings.Contains(err.Error(), "commands a second") {
		t.Errorf("a command over the quota: %v", err)
	}
	// Of two that another sender puts into the queue, one waits.
	var steers []*envelope.Envelope
	for range 2 {
		steer := newTask(reviewer, intents.TaskSteer, `{"id":"`+over.ID+`","text":"be kind","durable":true}`)
		steer.From, steer.Priority = "agent.eve", envelope.PriorityUrgent
		r.queue("urgent", steer)
		steers = append(steers, steer)
	}
	answered := func() int { return len(r.replies(steers[0])) + len(r.replies(steers[1])) }
	eventually(t, "one is answered", func() bool { return answered() == 1 })
	last := newTask(reviewer, "code.review", `{}`) // comes after both
	last.From = "agent.last"
	r.queue("urgent", last)
	within(t, "the last task", g.entered)
	eventually(t, "the answered one is off the queue", func() bool { return r.queued() == 3 }) // the others: over, last
	equal(t, "commands that were answered", answered(), 1)
	g.open()
}

// The sender's quota of the queue counts its commands in whichever way the worker reads them:
// one allowance counts those that it overhears while all places are taken, and those that it draws.
func TestACommandCountsOverheardOrDrawn(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	begin := func(t *testing.T) (r *durableRig, g *gate, steer func(from string) (answered func() bool), task func(from string), stop func()) {
		r, g = newDurableRig(t), newGate(t)
		stop = r.serving(r.lane(mesh.Config{Quotas: mesh.Quotas{UnknownRate: 0.001, UnknownBurst: 1}}), mesh.Agent{Handler: g})
		steer = func(from string) func() bool {
			e := newTask(reviewer, intents.TaskSteer, `{"id":"01J0000000000000000000TASK","text":"be kind","durable":true}`)
			e.From, e.Priority = from, envelope.PriorityUrgent
			r.queue("urgent", e)
			return func() bool { return len(r.replies(e)) > 0 }
		}
		task = func(from string) {
			e := newTask(reviewer, "code.review", `{}`)
			e.From = from
			r.queue("urgent", e)
		}
		return r, g, steer, task, stop
	}
	t.Run("overheard, then drawn", func(t *testing.T) {
		t.Parallel()
		_, g, steer, task, stop := begin(t)
		task("agent.first")
		within(t, "the task that takes the place", g.entered)
		first, second, later := steer("agent.eve"), steer("agent.eve"), steer("agent.bob")
		eventually(t, "the last one is overheard", later)
		equal(t, "the first and the second are answered", [2]bool{first(), second()}, [2]bool{true, false})
		task("agent.last") // comes after both
		g.release <- struct{}{}
		within(t, "the last task", g.entered)
		g.open()
		stop()
		if second() {
			t.Error("a command over the quota was answered when it was drawn")
		}
	})
	t.Run("drawn, then overheard", func(t *testing.T) {
		t.Parallel()
		_, g, steer, task, stop := begin(t)
		first, second := steer("agent.eve"), steer("agent.eve")
		task("agent.last")
		within(t, "the task that takes the place", g.entered)
		eventually(t, "the first one is answered", first)
		eventually(t, "a later one is overheard", steer("agent.bob"))
		g.open()
		stop()
		if second() {
			t.Error("a command that is delayed was answered when it was overheard")
		}
	})
}
