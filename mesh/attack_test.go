package mesh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
	"github.com/aeemesh/aeemesh/state"
)

const (
	victim   = "agent.payroll"
	attacker = "agent.weather"
	private  = "PRIVATE" // stands in everything that is the victim's
)

// attack is a mesh in which an attacker holds the credentials of one agent's worker,
// with everything that can be printed for it, and another agent has something in
// every store.
type attack struct {
	*durableRig
	x       *nats.Conn
	allowed perms.Permissions
	admin   natsjs.JetStream
	ack     string // the subject of a lease of the victim's

	mu  sync.Mutex
	got []*nats.Msg
}

func newAttack(t *testing.T) *attack {
	t.Helper()
	var m subject.Map
	inbox := perms.InboxPrefix(attacker)
	p, errA := perms.Worker(m, attacker)
	for _, more := range []func() (perms.Permissions, error){
		func() (perms.Permissions, error) { return perms.DurableWorker(m, attacker, inbox) },
		func() (perms.Permissions, error) { return perms.Seen(m, attacker) },
		func() (perms.Permissions, error) { return perms.Journal(m, attacker) },
		func() (perms.Permissions, error) { return perms.PeopleCall(m) },
		func() (perms.Permissions, error) { return perms.Call(m, true, "agent.third") },
		func() (perms.Permissions, error) { return perms.DurableClient(m, "agent.third") },
	} {
		q, err := more()
		p = both(t, p, errA, q, err)
	}
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "x", Password: "x", Permissions: serverPermissions(p)}, {Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}}
	// The attacker's requests are before the admin's in the server's queue, and may be thousands.
	admin, err := natsjs.New(r.nc, natsjs.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	a := &attack{durableRig: r, allowed: p, admin: admin}
	if _, err := jetstream.Apply(t.Context(), a.admin, jetstream.Options{Map: m, Entities: []string{victim, attacker}}); err != nil {
		t.Fatal(err)
	}
	a.x = natstest.Conn(t, srv, nats.UserInfo("x", "x"), nats.CustomInboxPrefix(inbox), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	return a
}

// heard are the messages that the attacker got since the last call.
func (a *attack) heard() []*nats.Msg {
	settle(a.t, a.x)
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.got
	a.got = nil
	return got
}

func (a *attack) listen(subj string) {
	if _, err := a.x.Subscribe(subj, func(m *nats.Msg) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got = append(a.got, m)
	}); err != nil {
		a.t.Fatal(err)
	}
}

// furnish gives an entity something in every store.
func (a *attack) furnish(entity, word string) {
	t, ctx := a.t, a.t.Context()
	t.Helper()
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string, header nats.Header, data string) {
		t.Helper()
		_, err := a.admin.PublishMsg(ctx, &nats.Msg{Subject: name, Header: header, Data: []byte(data)})
		no(err)
	}
	states := jetstream.NewStates(a.admin, a.m)
	_, err := states.Put(ctx, state.ID{Entity: entity, Run: "small"}, 0, []byte(`{"word":"`+word+`"}`))
	no(err)
	_, err = states.Put(ctx, state.ID{Entity: entity, Run: "large"}, 0, []byte(`{"word":"`+strings.Repeat(word, 200<<10)+`"}`))
	no(err)
	_, err = jetstream.NewDead(a.admin, a.m).Put(ctx, jetstream.DeadLetter{Entity: entity, TaskID: "dead", Work: 1, Code: "E_TIMEOUT", Data: []byte(word)})
	no(err)
	queue := jetstream.NewQueue(a.admin, a.m)
	for _, id := range []string{"waits", "leased"} {
		_, err = queue.Submit(ctx, jetstream.Submission{Entity: entity, ID: id, Data: []byte(word)})
		no(err)
	}
	_, err = queue.Submit(ctx, jetstream.Submission{Entity: entity, ID: "later", Data: []byte(word), At: time.Now().Add(time.Hour)})
	no(err)
	to, err := a.m.Reply(entity, "task")
	no(err)
	put(to, nil, word)
	_, err = slot.NewStore(a.admin, a.m, time.Hour).Acquire(ctx, entity, 1, word, nil)
	no(err)
	_, err = seen.New(a.admin, a.m, 10*time.Minute).Claim(ctx, entity, "id", word)
	no(err)
	no(jetstream.NewRefutations(a.admin, a.m).Add(ctx, entity, "id", []byte(`"`+word+`"`)))
	no(jetstream.NewJournal(a.admin, a.m).Put(ctx, entity, "id", []byte(word)))
	_, err = counter.New(a.admin, a.m).Add(ctx, 5, entity, mesh.CountTasks, "corr")
	no(err)
	_, err = jetstream.NewKeys(a.admin, a.m).Create(ctx, "key-of-"+entity, []byte(word))
	no(err)
	put("$KV."+jetstream.BucketAgents+"."+subject.Escape(entity), nil, word)
	no(jetstream.NewInbox(a.admin, a.m).Put(ctx, "human.of-"+entity, "1", []byte(word)))
}

// effective is what the readers of the stores make of what is the victim's.
func (a *attack) effective() map[string]string {
	a.t.Helper()
	ctx, out := a.t.Context(), map[string]string{}
	note := func(name string, data []byte, err error) {
		if len(data) > 100 {
			data = append(data[:100:100], fmt.Sprint("… of ", len(data))...)
		}
		out[name] += fmt.Sprintf("%s %v", data, err)
	}
	states := jetstream.NewStates(a.admin, a.m)
	for _, run := range []string{"small", "large"} {
		rec, err := states.Get(ctx, state.ID{Entity: victim, Run: run})
		note("run "+run, rec.Data, err)
	}
	for _, of := range []string{victim, ""} { // of all entities
		for rec, err := range states.List(ctx, of) {
			if rec.ID.Entity == victim {
				note("listed "+of+rec.ID.Run, rec.Data, err)
			}
		}
		for l, err := range jetstream.NewDead(a.admin, a.m).List(ctx, of) {
			if l.Entity == victim {
				note("dead "+of+l.TaskID, l.Data, err)
			}
		}
	}
	retry, err := jetstream.NewDead(a.admin, a.m).Retrying(ctx, victim, "1", []byte("forged"))
	note("retry", fmt.Append(nil, retry), err)
	later, err := jetstream.NewQueue(a.admin, a.m).Scheduled(ctx, victim)
	for _, s := range later {
		note("scheduled "+s.ID, s.Data, err)
	}
	last, err := jetstream.NewReplies(a.admin, a.m).Last(ctx, victim, "task")
	note("reply", last.Data, err)
	by, err := seen.New(a.admin, a.m, 10*time.Minute).Claim(ctx, victim, "id", "attacker")
	if by != "attacker" {
		by = "another" // the id is taken
	}
	note("seen", []byte(by), err)
	refuted, err := jetstream.NewRefutations(a.admin, a.m).List(ctx, victim, "id")
	note("refuted", bytes.Join(refuted, nil), err)
	journal, err := jetstream.NewJournal(a.admin, a.m).Get(ctx, victim, "id")
	note("journal", journal, err)
	total, err := counter.New(a.admin, a.m).Add(ctx, 0, victim, mesh.CountTasks, "corr")
	note("counter", fmt.Append(nil, total), err)
	key, err := jetstream.NewKeys(a.admin, a.m).Get(ctx, "key-of-"+victim)
	note("key", key.Value, err)
	return out
}

// stored is everything that the streams hold which is not the attacker's own.
func (a *attack) stored() map[string]string {
	a.t.Helper()
	ctx, out := a.t.Context(), map[string]string{}
	names := a.admin.ListStreams(ctx)
	for info := range names.Info() {
		s, err := a.admin.Stream(ctx, info.Config.Name)
		if err != nil {
			a.t.Fatal(err)
		}
		config, err := json.Marshal(info.Config)
		if err != nil {
			a.t.Fatal(err)
		}
		out[info.Config.Name] = string(config)
		for seq := max(1, info.State.FirstSeq); seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if errors.Is(err, natsjs.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				a.t.Fatal(err)
			}
			subj := m.Header[natsjs.SubjectHeader] // the last one is the server's
			if a.own(subj[len(subj)-1]) {
				continue
			}
			data := m.Data
			if len(data) > 100 {
				data = fmt.Append(nil, len(data))
			}
			out[fmt.Sprintf("%s %d", info.Config.Name, seq)] = fmt.Sprintf("%v %s", m.Header, data)
		}
		consumers := s.ListConsumers(ctx)
		for c := range consumers.Info() {
			if !strings.Contains(c.Name, subject.Escape(attacker)) {
				config, err := json.Marshal(c.Config)
				if err != nil {
					a.t.Fatal(err)
				}
				out[info.Config.Name+" > "+c.Name] = fmt.Sprint(string(config), c.NumPending, c.NumAckPending)
			}
		}
	}
	if err := names.Err(); err != nil {
		a.t.Fatal(err)
	}
	return out
}

// own reports whether a subject names the attacker, or is of the agent that it may send
// tasks to.
func (a *attack) own(subj string) bool {
	return strings.Contains(subj, attacker) || strings.Contains(subj, subject.Escape(attacker)) || strings.HasSuffix(subj, ".agent.third") ||
		strings.HasPrefix(subj, "bus.mesh.") || strings.HasPrefix(subj, "human.") || strings.HasPrefix(subj, "aee.count.tree.")
}

// unharmed fails the test if the attacker has read or changed something.
func (a *attack) unharmed(what string, before, after map[string]string) {
	a.t.Helper()
	for _, m := range a.heard() {
		if bytes.Contains(m.Data, []byte(private)) || strings.Contains(fmt.Sprint(m.Header), private) {
			a.t.Errorf("%s: the attacker reads %s: %.200s", what, m.Subject, m.Data)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if after[k] != before[k] {
			a.t.Errorf("%s: %s was\n\t%s\nand is\n\t%s", what, k, before[k], after[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if _, was := before[k]; !was {
			a.t.Errorf("%s: there is a new %s:\n\t%s", what, k, after[k])
		}
	}
}

// requests are all that JetStream can be asked about a stream and its consumers.
func requests(stream string, consumers []string) (subjects []string) {
	patterns := []string{
		"$JS.API.STREAM.UPDATE.%s", "$JS.API.STREAM.INFO.%s", "$JS.API.STREAM.DELETE.%s", "$JS.API.STREAM.PURGE.%s", "$JS.API.STREAM.SNAPSHOT.%s",
		"$JS.API.STREAM.MSG.DELETE.%s", "$JS.API.STREAM.MSG.GET.%s", "$JS.API.CONSUMER.NAMES.%s", "$JS.API.CONSUMER.LIST.%s", "$JS.API.CONSUMER.CREATE.%s",
		"$JS.API.STREAM.PEER.REMOVE.%s", "$JS.API.STREAM.LEADER.STEPDOWN.%s", "$JS.API.DIRECT.GET.%s", "$JS.API.DIRECT.GET.%s.>", "$JS.API.STREAM.CREATE.%s", "$JS.API.STREAM.RESTORE.%s",
	}
	for _, p := range patterns {
		subjects = append(subjects, fmt.Sprintf(p, stream))
	}
	for _, c := range append(slices.Clone(consumers), "thief") {
		for _, p := range []string{
			"$JS.API.CONSUMER.INFO.%s.%s", "$JS.API.CONSUMER.DELETE.%s.%s", "$JS.API.CONSUMER.PAUSE.%s.%s", "$JS.API.CONSUMER.MSG.NEXT.%s.%s", "$JS.API.CONSUMER.RESET.%s.%s", "$JS.API.CONSUMER.UNPIN.%s.%s",
			"$JS.API.CONSUMER.LEADER.STEPDOWN.%s.%s", "$JS.API.CONSUMER.DURABLE.CREATE.%s.%s", "$JS.API.CONSUMER.CREATE.%s.%s",
		} {
			subjects = append(subjects, fmt.Sprintf(p, stream, c))
		}
		subjects = append(subjects, fmt.Sprintf("$JS.API.CONSUMER.CREATE.%s.%s.%s", stream, c, ">"))
	}
	return subjects
}

// An attacker with the credentials of an agent's worker, exactly as they are printed,
// reads nothing of another agent and changes nothing of it (findings 1, 5 and 17 of the
// security review): by every request that JetStream knows, by publishing to every
// subject that the other one has something on, by headers that make JetStream do more
// than store a message, and by subscriptions.
func TestAttackAWorkerReadsAndChangesNothingOfOthers(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	a := newAttack(t)
	a.furnish(victim, private)
	a.furnish(attacker, "own")
	ctx := t.Context()
	inbox := perms.InboxPrefix(attacker)
	a.listen(inbox + ".>")
	for _, subj := range []string{
		">", "*.>", "_INBOX.>", "$KV.>", "$O.>", "$JS.>", "aee.>", "bus.>", "human.>", victim, "agent.*", "agent.>",
		perms.InboxPrefix(victim) + ".>", "aee.ctl." + victim, "aee.reply." + victim + ".*", "aee.work.*." + victim, "$KV." + jetstream.BucketSlots + ".>", "$SRV.>",
	} {
		a.listen(subj)
	}
	a.heard()

	streams, consumers, subjects := []string{}, map[string][]string{}, map[string]bool{}
	for info := range a.admin.ListStreams(ctx).Info() {
		streams = append(streams, info.Config.Name)
		s, err := a.admin.Stream(ctx, info.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for c := range s.ConsumerNames(ctx).Name() {
			consumers[info.Config.Name] = append(consumers[info.Config.Name], c)
		}
		now, err := s.Info(ctx, natsjs.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		for subj := range now.State.Subjects {
			if !a.own(subj) {
				subjects[subj] = true
			}
		}
	}
	// A lease of the victim's: its acknowledgement takes a task away.
	held, err := a.admin.Consumer(ctx, jetstream.StreamWork, "normal-"+subject.Escape(victim))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := held.Fetch(1, natsjs.FetchPriorityGroup("topology-6"))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		a.ack = m.Reply()
	}
	if a.ack == "" || len(subjects) < 12 || len(streams) < 14 {
		t.Fatalf("there is too little to attack: lease %q, subjects %v, streams %v", a.ack, subjects, streams)
	}
	effective, stored := a.effective(), a.stored()

	bodies := [][]byte{nil, []byte(`{}`), []byte(`{"seq":1}`), []byte(`{"seq":2}`), []byte(`{"batch":10,"seq":1}`), []byte(`{"multi_last":[">"]}`),
		[]byte(`{"batch":10,"no_wait":true,"group":"topology-6"}`), []byte(`{"deliver_subject":"` + inbox + `.snapshot"}`), []byte(`{"subjects_filter":">"}`)}
	for subj := range subjects {
		bodies = append(bodies, []byte(`{"last_by_subj":"`+subj+`"}`), []byte(`{"seq":1,"next_by_subj":"`+subj+`","batch":9}`))
	}
	ask := func(subj string, body []byte) {
		if err := a.x.PublishRequest(subj, inbox+".answer", body); err != nil {
			t.Fatal(err)
		}
	}
	for _, stream := range streams {
		for _, subj := range requests(stream, consumers[stream]) {
			for _, body := range bodies {
				ask(subj, body)
			}
			for _, config := range []string{`"deliver_subject":"` + inbox + `.stolen"`, `"filter_subject":">"`, `"durable_name":"thief"`} {
				ask(subj, []byte(`{"stream_name":"`+stream+`","config":{"ack_policy":"none","deliver_policy":"all","replay_policy":"instant",`+config+`}}`))
			}
			ask(subj, []byte(`{"name":"`+stream+`","subjects":["nothing"],"retention":"limits","storage":"memory","max_msgs":1}`))
		}
	}
	for subj := range subjects {
		for _, stream := range streams {
			ask("$JS.API.DIRECT.GET."+stream+"."+subj, nil)
		}
	}
	ask("$JS.API.STREAM.CREATE.MIRROR", []byte(`{"name":"MIRROR","mirror":{"name":"KV_aee_state"},"storage":"memory","retention":"limits"}`))
	ask("$JS.API.ACCOUNT.PURGE.$G", nil)
	a.unharmed("asking JetStream", stored, a.stored())

	headers := []nats.Header{nil}
	for _, h := range []string{
		"Nats-Rollup: all", "Nats-Rollup: sub", "KV-Operation: DEL", "KV-Operation: PURGE", "Nats-TTL: 1s", "Nats-TTL: never", "Nats-Marker-Reason: MaxAge",
		"Nats-Incr: +1000", "Nats-Schedule: @at 2020-01-01T00:00:00Z", "Nats-Schedule: @every 1s", "Nats-Trace-Dest: " + inbox + ".trace",
	} {
		name, value, _ := strings.Cut(h, ": ")
		headers = append(headers, nats.Header{name: {value}})
	}
	for subj := range subjects {
		headers = append(headers, nats.Header{"Nats-Subject": {subj}, "Nats-Sequence": {"1"}}, nats.Header{"Nats-Schedule": {"@at 2020-01-01T00:00:00Z"}, "Nats-Schedule-Target": {subj}})
	}
	own := []string{}
	for _, line := range a.allowed.Publish { // everything that may be published to, as the attacker's own
		if strings.HasPrefix(line, "$JS.") || strings.HasPrefix(line, "$SRV.") || strings.HasPrefix(line, "human.") {
			continue
		}
		line = strings.ReplaceAll(line, "aee.work.*", "aee.work.normal")
		line = strings.ReplaceAll(line, "*", "small")
		own = append(own, strings.ReplaceAll(line, ">", "1.2"))
	}
	for _, subj := range append(slices.Sorted(maps.Keys(subjects)), own...) {
		for _, h := range headers {
			if err := a.x.PublishMsg(&nats.Msg{Subject: subj, Reply: inbox + ".answer", Header: h, Data: []byte("forged")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, word := range []string{"+ACK", "-NAK", "+TERM", "+NXT", "+WPI"} {
		ask(a.ack, []byte(word))
	}
	for _, subj := range []string{"aee.count.of." + subject.Escape(victim) + ".tasks.corr", "aee.ctl." + victim, victim, perms.InboxPrefix(victim) + ".1"} {
		if err := a.x.PublishMsg(&nats.Msg{Subject: subj, Header: nats.Header{"Nats-Incr": {"+1000"}}, Data: []byte("forged")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.x.Flush(); err != nil { // or the server may not have seen all of it
		t.Fatal(err)
	}
	a.unharmed("publishing", stored, a.stored())
	a.unharmed("publishing", effective, a.effective())
}

// targets are the subjects that the victim has something on, and two more that its worker
// reads.
func (a *attack) targets() map[string]bool {
	a.t.Helper()
	ctx := a.t.Context()
	targets := map[string]bool{"aee.work.normal." + victim: true, "aee.dead." + victim + ".=retry-1": true}
	for info := range a.admin.ListStreams(ctx).Info() {
		s, err := a.admin.Stream(ctx, info.Config.Name)
		if err != nil {
			a.t.Fatal(err)
		}
		now, err := s.Info(ctx, natsjs.WithSubjectFilter(">"))
		if err != nil {
			a.t.Fatal(err)
		}
		for subj := range now.State.Subjects {
			if !a.own(subj) && !strings.Contains(subj, ".C.") {
				targets[subj] = true
			}
		}
	}
	return targets
}

// unforged fails the test if the readers of the stores make something else of what is the
// victim's. What a bucket keeps one revision of may be lost, and is forged at no place.
func (a *attack) unforged(what string, before map[string]string) {
	a.t.Helper()
	after := a.effective()
	for name, is := range after {
		if lost := strings.Contains(is, "not found") || is == " <nil>"; lost && slices.Contains([]string{"journal", "key", "refuted"}, name) {
			after[name] = before[name]
		}
	}
	a.unharmed(what, before, after)
}

// A user may send the server's answers to any subject, since NATS permissions do not
// cover reply subjects. What comes there so is taken for nothing that the victim or its
// worker wrote: not an acknowledgement, and not a copy of a message that the attacker
// has written with every header that means something.
func TestAttackAnswersSentElsewhereAreNoMessages(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	a.furnish(victim, private)
	a.furnish(attacker, "own")
	ctx := t.Context()
	targets := a.targets()
	effective := a.effective()

	task, err := json.Marshal(newTask(victim, "payroll.run", `{"forged":true}`))
	if err != nil {
		t.Fatal(err)
	}
	// What is copied: a record, a letter, a tombstone and a permit of the attacker's own.
	mine := "$KV." + jetstream.BucketState + "." + attacker + ".small"
	letter := "aee.dead." + attacker + ".dead"
	info := "$JS.API.STREAM.INFO.AEE_WORK" // its answer is the same whatever is forged: asked once for each target
	for _, forged := range []nats.Header{
		{"KV-Operation": {"DEL"}},
		{"Nats-Marker-Reason": {"MaxAge"}},
		{"Aee-Status": {"completed"}, "Content-Type": {"application/json"}},
		{"Aee-Dead-Retry": {"1"}, "Aee-Dead-Digest": {fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("forged")))}},
	} {
		for _, copied := range []struct{ subject, stream string }{{mine, "KV_aee_state"}, {letter, jetstream.StreamDead}} {
			forged := maps.Clone(forged)
			forged["Nats-Expected-Stream"] = []string{copied.stream}
			if err := a.x.PublishMsg(&nats.Msg{Subject: copied.subject, Header: forged, Data: task}); err != nil {
				t.Fatal(err)
			}
			for target := range targets {
				for _, ask := range []string{"$JS.API.DIRECT.GET." + copied.stream + "." + copied.subject, info, mine} {
					if ask == "" {
						continue
					}
					if err := a.x.PublishRequest(ask, target, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			info = ""
			// The server answers in the order in which it is asked.
			for _, stream := range []string{"KV_aee_state.$KV.aee_state." + attacker + ".small", jetstream.StreamDead + ".aee.dead." + attacker + ".dead"} {
				if _, err := a.x.Request("$JS.API.DIRECT.GET."+stream, nil, patience); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := len(a.stored()); n == 0 {
		t.Fatal("nothing is stored")
	}
	a.unforged("answers", effective)

	// A worker of the victim's is handed none of it.
	ran := make(chan string, 100)
	node := a.laneOn(a.nc, mesh.Config{})
	w := a.serve(node, mesh.Agent{Entity: victim, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		ran <- task.Envelope.ID
		return json.RawMessage(`{}`), nil
	})})
	real := newTask(victim, "payroll.run", `{}`)
	client := a.laneOn(a.nc, mesh.Config{Entity: ada})
	if _, _, err := client.Perform(ctx, real, mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	within(t, "Serve to return", w.done)
	if id := <-ran; id != real.ID || len(ran) > 0 {
		t.Errorf("the victim ran task %s, and %d more", id, len(ran))
	}
}
