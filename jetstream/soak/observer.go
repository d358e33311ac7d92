package soak

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// An observer reads everything that is stored about the tasks, as it is stored, and the
// replies as they are published. Only the end of a server interrupts its connection.
type observer struct {
	m     subject.Map
	views []*view // the first system, and the second one if there is one
	codec state.Codec
	calls *effects

	// settle is how long the observer waits between the end of a task and its judgement:
	// long enough for a zombie to resume.
	settle time.Duration

	mu       sync.Mutex
	tasks    map[string]*task           // tasks that are not judged yet, by id
	payloads map[string]json.RawMessage // of tasks of teams' members that are queued and have no record yet
	early    map[string][]reply         // replies to tasks that are unknown yet, perhaps of a team's member, by task id
	given    map[string]map[string]bool // the ids of members' tasks, by the id of the team's task
	judged   map[string]digest          // the terminal replies of judged tasks
	quiet    map[string]time.Time
	found    []Violation
	counts   Counts
	kept     []*task     // tasks that broke a rule
	moved    []time.Time // when records were written, for the recovery of servers
	ends     map[string]end
	back     []recovery
}

// Counts are the totals of a soak.
type Counts struct {
	Accepted  int `json:"accepted"`  // tasks
	Answered  int `json:"answered"`  //
	Errors    int `json:"errors"`    // replies of type error
	Published int `json:"published"` // terminal replies seen on the wire, repeated ones included
	Members   int `json:"members"`   // tasks that teams sent to agents
	Commands  int `json:"commands"`  // pause, resume, move, settle and cancel commands, and answers of people
	Obeyed    int `json:"obeyed"`    // those that were answered without an error
	Early     int `json:"early"`     // worker processes that started without the durable lane
	Writes    int `json:"writes"`    // revisions of records
	Calls     int `json:"calls"`     // effects
	Repeats   int `json:"repeats"`   // effects under a key that had one already
	Relocated int `json:"relocated"` // runs that moved to another worker within a system
	Departed  int `json:"departed"`  // runs that were captured for a transfer to the second system
	Returned  int `json:"returned"`  // those that were taken back and continued in the first system
	Moved     int `json:"moved"`     // those that ended in the second system and were answered in the first

	By     map[string]int `json:"by"`     // accepted tasks by agent
	Failed map[string]int `json:"failed"` // replies of type error, by code and message
	Heeded map[string]int `json:"heeded"` // successful commands by intent, and answers of people
}

// maxKept is the most tasks that broke a rule whose traces are kept.
const maxKept = 200

// An end is the moment at which a worker process lost its runs.
type end struct {
	kind Kind
	at   time.Time
}

// A recovery is one run that another worker resumed.
type recovery struct {
	kind Kind
	at   time.Time // of the end
	took time.Duration
}

func newObserver(m subject.Map, calls *effects, settle time.Duration) *observer {
	return &observer{m: m, calls: calls, settle: settle, tasks: map[string]*task{}, early: map[string][]reply{}, payloads: map[string]json.RawMessage{}, given: map[string]map[string]bool{}, counts: Counts{By: map[string]int{}, Heeded: map[string]int{}, Failed: map[string]int{}}, judged: map[string]digest{}, quiet: map[string]time.Time{}, ends: map[string]end{}}
}

// submitting records a task that a client is about to submit. The channel is closed when
// the task has its reply.
func (o *observer) submitting(id, entity string, effects []expected, cancelled bool) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	answered := make(chan struct{})
	o.tasks[id] = &task{ID: id, Entity: entity, Run: state.RunID(entity, id), Effects: effects, Cancelled: cancelled, Team: members[entity], answered: answered}
	return answered
}

// accepted records that a task's submission was acknowledged: from then on it must not be
// lost. No task is judged before that.
func (o *observer) accepted(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Accepted++
	if t := o.tasks[id]; t != nil {
		t.Accepted = time.Now()
		o.counts.By[t.Entity]++
	}
}

// asked records a task that a team sent to a person.
func (o *observer) asked(task *envelope.Envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gave(task)
}

// queued records what a member of a team is asked to do: the record of a task of one step
// does not say.
func (o *observer) queued(data []byte) {
	env, err := envelope.Parse(data)
	if err != nil || env.ReplyTo == "" || members[env.From] == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tasks[env.ID] == nil {
		o.payloads[env.ID] = env.Payload
	}
}

// gave records a task that a team sent to a member. o.mu is held.
func (o *observer) gave(task *envelope.Envelope) {
	if _, over := o.judged[task.ReplyTo]; over {
		return
	}
	if o.given[task.ReplyTo] == nil {
		o.given[task.ReplyTo] = map[string]bool{}
	}
	o.given[task.ReplyTo][task.ID] = true
}

// discover records the task of a member, which no client submitted, when its first record
// is read; it returns nil if the record is of no such task. o.mu is held.
func (o *observer) discover(cp *state.Checkpoint, run string, at time.Time) *task {
	if cp == nil {
		return nil
	}
	env, err := cp.ReadTask()
	if err != nil || env.ReplyTo == "" || members[env.From] == 0 {
		return nil
	}
	if cp.Mesh.Task == nil { // only the reply is stored
		env.Payload = o.payloads[env.ID]
	}
	delete(o.payloads, env.ID)
	o.gave(env)
	o.counts.Members++
	// A cancel of the team's task cancels it, too.
	t := &task{ID: env.ID, Entity: env.To, Run: run, Accepted: at, Effects: ordered(env), Cancelled: true, Member: true, Replies: o.early[env.ID]}
	delete(o.early, env.ID)
	o.tasks[env.ID] = t
	return t
}

// awaiting reports whether a task's run waits for an approval or an answer.
func (o *observer) awaiting(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tasks[id]
	return t != nil && (awaits(t.Writes) || awaits(t.There))
}

// paused fails unless a task's run is paused in the first system.
func (o *observer) paused(id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tasks[id]
	if t == nil || len(t.Writes) == 0 || t.Writes[len(t.Writes)-1].Epoch == 0 || t.Writes[len(t.Writes)-1].Status != string(aaif.RunPaused) {
		return errors.New("it is not paused")
	}
	return nil
}

// waits returns nil if a chain has done its first step, after which it waits, or is over.
func (o *observer) waits(id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, over := o.task(id)
	if over || t != nil && len(t.Writes) > 0 && len(t.Writes[len(t.Writes)-1].Done) > 0 {
		return nil
	}
	return errors.New("it has not begun")
}

func awaits(writes []write) bool {
	return len(writes) > 0 && writes[len(writes)-1].Status == string(aaif.RunAwaitingApproval)
}

// commanded counts a command, or the answer of a person.
func (o *observer) commanded(what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Commands++
	if err == nil {
		o.counts.Obeyed++
		o.counts.Heeded[what]++
	}
}

// task returns a task that is not judged yet, or nil; over reports whether it is judged.
// An id for which neither holds is not a task of the clients, but a queued command.
func (o *observer) task(id string) (t *task, over bool) {
	_, over = o.judged[id]
	return o.tasks[id], over
}

// lost records that a worker process has lost its runs.
func (o *observer) lost(owner string, e end) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends[owner] = e
}

// record records one revision of a run's record.
func (o *observer) record(v *view, msg natsjs.Msg, meta *natsjs.MsgMetadata) {
	if len(msg.Data()) == 0 {
		return // a deletion
	}
	w := write{Revision: meta.Sequence.Stream, At: meta.Timestamp}
	rec, reply, err := jetstream.ReadRecord(o.m, jetstream.Message{Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Seq: w.Revision, Time: w.At})
	if reply {
		defer o.stored(v, msg, meta)
		if rec.End == nil {
			return // a document says that the run has ended
		}
	}
	h, headErr := rec.Header()
	if err = cmp.Or(err, headErr); err != nil {
		o.note(Violation{Rule: RuleRecord, Detail: fmt.Sprintf("%s, revision %d: %v", msg.Subject(), w.Revision, err)})
		return
	}
	w.Epoch, w.Owner, w.Status, w.Over, w.Kind = h.Epoch, h.Owner, string(h.Status), state.Terminal(h.Status), string(h.Step)
	w.Running = !w.Over && !state.Parked(h.Status)
	var cp *state.Checkpoint
	if h.Object == nil {
		if cp, err = o.codec.Read(rec); err != nil {
			w.Problem = err.Error()
		} else {
			w.take(cp)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Writes++
	o.moved = append(o.moved, w.At)
	t, over := o.task(h.TaskID)
	if t == nil && !over && !v.second {
		if t = o.discover(cp, h.Run, w.At); t == nil {
			return
		}
	}
	if t == nil && v.second {
		o.found = append(o.found, Violation{Rule: RuleMoved, Task: h.TaskID, Run: h.Run, Detail: "written in the second system, of no task or after it was over: " + lastOf([]write{w})})
		return
	}
	if t == nil {
		o.found = append(o.found, Violation{Rule: RuleOrder, Task: h.TaskID, Run: h.Run, Detail: "written after it was over: " + lastOf([]write{w})})
		return
	}
	writes := &t.Writes
	if v.second {
		writes = &t.There
	}
	if n := len(*writes); n > 0 {
		before := (*writes)[n-1]
		if e, dead := o.ends[before.Owner]; dead && before.Running && w.Epoch > before.Epoch && before.At.Before(e.at) && w.At.After(e.at) {
			o.back = append(o.back, recovery{kind: e.kind, at: e.at, took: w.At.Sub(e.at)})
		}
	}
	t.Run = h.Run
	*writes = append(*writes, w)
	o.check(t)
}

// take copies what the model needs from a checkpoint.
func (w *write) take(cp *state.Checkpoint) {
	m := &cp.Mesh
	w.Name, w.Claims, w.Work, w.Redelivered = m.Step.Name, m.Claims, m.Work, m.Redelivered
	if m.Migration != nil && leads(m.Migration) {
		w.Phase = string(m.Migration.Phase)
	}
	w.HasReply, w.Reply = len(m.Reply) > 0, digestOf(m.Reply)
	w.Done = map[string]digest{}
	for _, e := range m.Effects {
		switch {
		case e.Status.Final():
			w.Done[e.Key] = digestOf([]byte(e.Status))
		case e.Status != state.EffectPending:
			w.Begun = append(w.Begun, e.Key)
		}
	}
	said := map[string]int{}
	for _, msg := range cp.Doc.Conversation {
		// The results of tools that ran concurrently are in the order of their calls, not
		// of their ends.
		who := fmt.Sprint(msg.Role, " ", msg.ToolCallID)
		said[who]++
		w.Done[fmt.Sprintf("message %d of %s", said[who], who)] = digestOf([]byte(msg.Content))
	}
	if m.Entity == ProgramEntity { // a program writes no intent: its claim counts as one
		w.Begun = append(w.Begun, programKey(cp.Doc.RunID))
	}
	if m.Entity != Entity {
		return
	}
	for i, r := range readProgress(m.Loop).Receipts {
		w.Done[fmt.Sprintf("step %d", i)] = digestOf(fmt.Append(nil, r))
	}
}

// reply records one reply, seen on the wire or read from the stream.
func (o *observer) reply(data []byte, r reply) {
	env, err := envelope.Parse(data)
	if err != nil {
		o.note(Violation{Rule: RuleSameReply, Detail: fmt.Sprintf("a reply that is no envelope: %v", err)})
		return
	}
	if env.Type == envelope.TypeStream {
		return
	}
	r.Digest, r.Type = digestOf(data), string(env.Type)
	if r.Stored {
		r.Body = env.Payload
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.Stored {
		o.counts.Published++
	}
	t, over := o.task(env.ReplyTo)
	if t == nil {
		if !over {
			o.early[env.ReplyTo] = append(o.early[env.ReplyTo], r)
			return
		}
		if was := o.judged[env.ReplyTo]; was != r.Digest {
			o.found = append(o.found, Violation{Rule: RuleSameReply, Task: env.ReplyTo, Detail: "another reply, after it was over"})
		} else if r.Stored {
			o.found = append(o.found, Violation{Rule: RuleOneReply, Task: env.ReplyTo, Detail: "stored again, after it was over"})
		}
		return
	}
	t.Replies = append(t.Replies, r)
	if r.Stored && t.answered != nil {
		close(t.answered)
		t.answered = nil
	}
	o.check(t)
}

func (o *observer) note(v Violation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found = append(o.found, v)
}

// check starts the settle time of a task that has ended.
func (o *observer) check(t *task) {
	if t.over() {
		o.quiet[t.ID] = time.Now()
	}
}

// failureIn returns the code and the message of an error reply.
func failureIn(body json.RawMessage) string {
	e := envelope.ErrorOf(&envelope.Envelope{Type: envelope.TypeError, Payload: body})
	return clip.Text(string(e.Code)+": "+e.Message, 200)
}

// judge judges the tasks whose settle time has passed, or at the end all tasks.
func (o *observer) judge(all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, t := range o.tasks {
		since, over := o.quiet[id]
		if !all && (!over || time.Since(since) < o.settle || t.Accepted.IsZero()) {
			continue
		}
		t.Calls, t.Children = o.calls.of(t.Run), o.given[id]
		delete(o.given, id)
		found := judge(t)
		o.found = append(o.found, found...)
		o.counts.Calls += len(t.Calls)
		seen := map[string]bool{}
		for _, c := range t.Calls {
			if seen[c.Key] {
				o.counts.Repeats++
			}
			seen[c.Key] = true
		}
		last, answered := t.terminal()
		if answered && !t.Member {
			o.counts.Answered++
			if last.Type == string(envelope.TypeError) {
				o.counts.Errors++
				o.counts.Failed[failureIn(last.Body)]++
			}
		}
		o.counts.moves(t)
		if len(found) > 0 && len(o.kept) < maxKept {
			o.kept = append(o.kept, t)
		}
		o.judged[id] = last.Digest
		o.calls.forget(t.Run)
		delete(o.tasks, id)
		delete(o.quiet, id)
	}
}
