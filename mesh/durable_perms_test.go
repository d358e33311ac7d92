package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
	"github.com/aeemesh/aeemesh/state"
)

func both(t *testing.T, a perms.Permissions, errA error, b perms.Permissions, errB error) perms.Permissions {
	t.Helper()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	a.Publish, a.Subscribe = append(a.Publish, b.Publish...), append(a.Subscribe, b.Subscribe...)
	return a
}

// permitted is a mesh whose workers and clients may do what is printed for them
// and nothing else, with a wire that hears what they do. Whatever is refused
// fails the test.
type permitted struct {
	*durableRig
	worker, client, caller *wire
}

func newPermitted(t *testing.T, worker, client, caller perms.Permissions, m subject.Map) *permitted {
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "worker", Password: "w", Permissions: serverPermissions(worker)},
		{Name: "client", Password: "c", Permissions: serverPermissions(client)},
		{Name: "lead", Password: "l", Permissions: serverPermissions(caller)},
		{Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}, m: m}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: m, Entities: []string{reviewer, lead}}); err != nil {
		t.Fatal(err)
	}
	return &permitted{r, newWire(), newWire(), newWire()}
}

func (p *permitted) user(name string, w *wire) *nats.Conn {
	return natstest.Conn(p.t, p.srv, nats.UserInfo(name, name[:1]), nats.CustomInboxPrefix("_INBOX_"+name), w.option(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.t.Errorf("%s: %v", name, err) }))
}

// pause holds the consumers of the reviewer's tasks, or lets them go on.
func (p *permitted) pause(until time.Time) {
	p.t.Helper()
	specs, err := jetstream.Consumers(p.m, reviewer, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	js := p.js(p.nc)
	for _, spec := range specs {
		if _, err := js.PauseConsumer(ctxFor(p.t), spec.StreamName(p.m), spec.Config.Durable, until); err != nil {
			p.t.Fatal(err)
		}
	}
}

// handler does what a task's payload names.
func (p *permitted) handler(held chan<- *mesh.Task, goOn <-chan struct{}, s *stepper) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var order struct{ Do string }
		if err := json.Unmarshal(task.Envelope.Payload, &order); err != nil {
			return nil, err
		}
		switch order.Do {
		case "fail":
			return nil, envelope.Errorf(envelope.CodeUnavailable, "no luck")
		case "step":
			return s.Handle(ctx, task)
		case "ask":
			if err := task.Turn(ctx, 1); err != nil {
				return nil, err
			}
			return asking{people: []string{bob}}.Handle(ctx, task)
		case "hold", "crash":
			if order.Do == "crash" && task.Run().View().Mesh.Loop != nil {
				break // this is the worker after
			}
			if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
				c.Mesh.Loop = json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`) // an object
				return nil
			}); err != nil {
				return nil, err
			}
			held <- task
			if order.Do == "crash" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			<-goOn
		}
		return streamFive(ctx, task)
	})
}

// fenced makes a durable lane ask for nothing that its user is not permitted.
func fenced(d *mesh.Durable) {
	d.Create = false
	d.OwnEntitiesOnly()
}

// works has everything done once that needs a permission of the durable lane.
func (p *permitted) works() {
	t, r := p.t, p.durableRig
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // there is much to do
	t.Cleanup(cancel)
	admin := r.laneOn(r.nc, mesh.Config{Prefix: r.m.Prefix(), Entity: ada})
	held, goOn, s := make(chan *mesh.Task, 1), make(chan struct{}), newStepper(t, 1)
	work := func(nc *nats.Conn) *worker {
		counters := counter.New(r.js(nc), r.m)
		return r.serve(r.laneOn(nc, mesh.Config{Prefix: r.m.Prefix(), Drain: time.Millisecond, Counters: counters}, fenced, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond }),
			mesh.Agent{Concurrency: 2, MeshConcurrency: 1, Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond}, Handler: p.handler(held, goOn, s)})
	}
	client := r.laneOn(p.user("client", p.client), mesh.Config{Prefix: r.m.Prefix(), Entity: ada}, fenced)
	task := func(do string) *envelope.Envelope {
		return requiring(newTask(reviewer, "code.review", fmt.Sprintf(`{"do":%q}`, do)), `{"stream":true}`)
	}
	first := p.user("worker", p.worker)
	// "aeemesh worker" looks first whether the streams are there.
	stores := []string{jetstream.StreamWork, jetstream.BucketState}
	if _, err := jetstream.Plan(ctx, r.js(first), jetstream.Options{Map: r.m, Only: stores}); err != nil {
		t.Fatalf("a worker that begins: %v", err)
	}
	work(first)
	for _, priority := range []envelope.Priority{envelope.PriorityUrgent, envelope.PriorityHigh, envelope.PriorityNormal, envelope.PriorityLow} {
		echo := task("echo")
		echo.Priority = priority
		if _, _, err := client.Perform(ctx, echo, mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
			t.Fatalf("a task with a stream: %v", err)
		}
	}
	if _, _, err := client.Perform(ctx, task("fail"), mesh.SubmitOptions{}, mesh.ResultOptions{}); codeOf(err) != envelope.CodeUnavailable {
		t.Fatalf("a task that fails: %v", err)
	}
	stepped, dropped := task("step"), task("echo")
	for _, later := range []struct {
		task  *envelope.Envelope
		after time.Duration
	}{{stepped, time.Second}, {dropped, time.Hour}} {
		if _, err := client.Submit(ctx, later.task, mesh.SubmitOptions{After: later.after}); err != nil {
			t.Fatalf("a delayed task: %v", err)
		}
	}
	if r, err := client.Submit(ctx, dropped, mesh.SubmitOptions{After: time.Hour}); err != nil || !r.Duplicate {
		t.Fatalf("a delayed task again: %+v, %v", r, err)
	}
	if out, err := client.Command(ctx, reviewer, intents.CancelTask{ID: dropped.ID}); err != nil {
		t.Fatalf("cancel a delayed task: %+v, %v", out, err)
	}
	within(t, "the delayed task", s.entered)
	for _, cmd := range []intents.Command{intents.PauseTask{Target: target(stepped)}, intents.ResumeTask{Target: target(stepped)}} {
		if _, err := client.Command(ctx, reviewer, cmd); err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
		if _, pause := cmd.(intents.PauseTask); pause {
			s.next <- struct{}{}
			<-s.outcome
			p.drained()
		}
	}
	if _, err := client.Result(ctx, reviewer, stepped.ID, mesh.ResultOptions{Follow: true}); err != nil {
		t.Fatalf("paused and resumed: %v", err)
	}
	answer := func() {
		var ask *mesh.PersonTask
		eventually(t, "bob is asked", func() bool {
			asks, err := r.laneOn(r.nc, mesh.Config{Prefix: r.m.Prefix(), Entity: bob}).PersonTasks(ctx, bob)
			for _, a := range asks {
				if a.State == mesh.AskOpen {
					ask = a
				}
			}
			return err == nil && ask != nil
		})
		if err := admin.AnswerPersonTask(ctx, ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))); err != nil {
			t.Fatal(err)
		}
	}
	asked := task("ask")
	r.submit(client, asked)
	answer()
	if _, err := r.result(client, asked); err != nil {
		t.Fatalf("a task that asks a person: %v", err)
	}

	// The only slot is taken, so that another worker waits for one with the live
	// tasks that it gets, and says so. Some of them may come to the first one.
	hold := task("hold")
	r.submit(client, hold)
	within(t, "the task that is held", held)
	second := p.user("worker", p.worker)
	work(second)
	const most = 64
	got, sent := make(chan error, most), 0
	eventually(t, "a worker says that it wants a slot", func() bool {
		if sent < most {
			sent++
			go func() {
				_, err := client.Send(ctx, task("echo"), mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return nil }})
				got <- err
			}()
		}
		return p.worker.did("acme.aee.ctl." + reviewer)
	})
	close(goOn)
	for range sent {
		if err := within(t, "a live task", got); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.result(client, hold); err != nil {
		t.Fatal(err)
	}
	// Another agent calls this one over its durable lane.
	calls := p.user("lead", p.caller)
	r.serve(r.laneOn(calls, mesh.Config{Prefix: r.m.Prefix(), Counters: counter.New(r.js(calls), r.m)}, fenced), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: reviewer, Key: "k"}, nil)})
	for _, do := range []string{"echo", "ask"} { // which asks a person in its turn
		led := newTask(lead, "code.review", fmt.Sprintf(`{"do":%q}`, do))
		r.submit(admin, led)
		if do == "ask" {
			answer()
		}
		if _, err := r.result(admin, led); err != nil {
			t.Fatalf("a task that calls: %v", err)
		}
	}

	// The workers die, one in the middle of a task, and its message is gone. A new
	// one comes, finds tasks that wait, and finds the run too.
	acks := r.listen("$JS.ACK.AEE_WORK_acme.normal-" + subject.Escape(reviewer) + ".>")
	crash := task("crash")
	seq := r.submit(client, crash).Seq
	within(t, "the task to crash in", held)
	ack := r.leased(acks, seq)
	first.Close()
	second.Close()
	if _, err := r.nc.Request(ack, []byte("+ACK"), patience); err != nil {
		t.Fatal(err)
	}
	p.pause(time.Now().Add(time.Hour))
	waiting, due := task("echo"), task("echo")
	r.submit(client, waiting)
	if _, err := client.Submit(ctx, due, mesh.SubmitOptions{After: time.Second}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a task is due", func() bool { return p.pending("due-") > 0 })
	third := p.user("worker", p.worker)
	work(third)
	p.pause(time.Time{})
	for _, task := range []*envelope.Envelope{waiting, due, crash} {
		if _, err := r.result(client, task); err != nil {
			t.Fatal(err)
		}
	}
	p.drained()

	eventually(t, "a worker looks how full the stores are", func() bool {
		return p.worker.did("$JS.API.STREAM.INFO.OBJ_" + jetstream.ObjectsState + "_acme")
	})

	// A slot goes while it is held.
	if err := r.nc.Publish("$KV.aee_slots_acme."+subject.Escape(reviewer)+".0", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slot's holder looks for it", func() bool {
		return p.worker.did("$JS.API.DIRECT.GET.KV_aee_slots_acme.$KV.aee_slots_acme." + subject.Escape(reviewer) + ".0")
	})
}

// pending is how many messages a consumer of the reviewer has to hand out.
func (p *permitted) pending(prefix string) (n uint64) {
	p.t.Helper()
	specs, err := jetstream.Consumers(p.m, reviewer, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, spec := range specs {
		if strings.HasPrefix(spec.Config.Durable, prefix) {
			c, err := p.js(p.nc).Consumer(ctxFor(p.t), spec.StreamName(p.m), spec.Config.Durable)
			if err != nil {
				p.t.Fatal(err)
			}
			n += c.CachedInfo().NumPending
		}
	}
	return n
}

// drained waits until no message of a task is left.
func (p *permitted) drained() {
	p.t.Helper()
	eventually(p.t, "the work queue is empty", func() bool {
		s, err := p.js(p.nc).Stream(ctxFor(p.t), jetstream.StreamWork+p.m.Suffix())
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
}

// did is what a user was allowed, and what it then did.
type did struct {
	all  perms.Permissions
	wire *wire
}

type needy struct {
	name  string
	lines perms.Permissions // each of them is to be needed by one of the users
	users []did
}

func (n needy) of(f func(did) string) string {
	for _, d := range n.users {
		if what := f(d); what != "" {
			return what
		}
	}
	return ""
}

// What is printed for the durable lane suffices: nothing that a worker, its
// clients and its callers do is refused. And no line of it is too many: each
// allows something that was done and that no other line allows, which the
// server would have refused without it.
func TestPermissionsForTheDurableLaneSufficeAndNoneIsTooMany(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	m, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	live, errA := perms.Worker(m, reviewer, "_INBOX_client", "_INBOX_worker")
	lane, errB := perms.DurableWorker(m, reviewer, "_INBOX_worker")
	asks, errC := perms.PeopleCall(m)
	lane = both(t, lane, errB, asks, errC)
	worker := both(t, live, errA, lane, errB)
	sender, errA := perms.Client(m, "_INBOX_client", reviewer)
	submitter, errB := perms.DurableClient(m, reviewer)
	delays, errC := perms.Delay(m, reviewer)
	client := both(t, both(t, sender, errA, submitter, errB), nil, delays, errC)
	submitter = both(t, submitter, nil, delays, nil)
	own, errA := perms.Worker(m, lead, "_INBOX_client", "_INBOX_worker")
	ownLane, errB := perms.DurableWorker(m, lead, "_INBOX_lead")
	caller := both(t, own, errA, ownLane, errB)
	caller = both(t, caller, nil, sender, nil)
	caller = both(t, caller, nil, submitter, nil)
	p := newPermitted(t, worker, client, caller, m)
	p.works()
	if t.Failed() {
		return
	}
	for _, user := range []needy{
		{"worker", lane, []did{{worker, p.worker}, {caller, p.caller}}},
		{"client", submitter, []did{{client, p.client}, {caller, p.caller}}},
	} {
		for _, line := range user.lines.Publish {
			if what := user.of(func(d did) string { publish, _ := d.wire.needs(d.all); return publish[line] }); what == "" {
				t.Errorf("%s: nothing needs to publish to %s", user.name, line)
			} else {
				t.Logf("%s: without %s it may not publish to %s", user.name, line, what)
			}
		}
		for _, line := range user.lines.Subscribe {
			if what := user.of(func(d did) string { _, subscribe := d.wire.needs(d.all); return subscribe[line] }); what == "" {
				t.Errorf("%s: nothing needs to subscribe to %s", user.name, line)
			}
		}
	}
}
