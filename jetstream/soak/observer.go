package soak

import (
	"fmt"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

// An observer reads all that is stored about the tasks, as it is stored, and
// what is published beside it. Nothing breaks its connection but a server's end.
type observer struct {
	m     subject.Map
	views []*view // of the systems: the first, and the second if there is one
	codec state.Codec
	calls *effects

	// settle is how long a task rests, after it is over, before it is judged:
	// long enough for a zombie to wake up.
	settle time.Duration

	mu     sync.Mutex
	tasks  map[string]*task           // those that are not judged yet, by id
	early  map[string][]reply         // replies to what may be a member's task, by its id
	given  map[string]map[string]bool // the tasks of members, by the id of the team's
	judged map[string]digest          // the terminal replies of the others
	quiet  map[string]time.Time
	found  []Violation
	counts Counts
	kept   []*task     // those that broke a rule
	moved  []time.Time // when records were written, for the recovery of servers
	ends   map[string]end
	back   []recovery
}

// Counts are what a soak has seen.
type Counts struct {
	Accepted  int `json:"accepted"`  // tasks
	Answered  int `json:"answered"`  //
	Errors    int `json:"errors"`    // of the answers, those of type error
	Published int `json:"published"` // terminal replies that were seen on the wire, again or not
	Members   int `json:"members"`   // tasks that teams have given to agents
	Commands  int `json:"commands"`  // to pause, resume, move, settle and cancel, and answers of people
	Obeyed    int `json:"obeyed"`    // of them, those that were answered without an error
	Early     int `json:"early"`     // lives of workers that began without the durable lane
	Writes    int `json:"writes"`    // revisions of records
	Calls     int `json:"calls"`     // effects
	Repeats   int `json:"repeats"`   // of them, those under a key that had one
	Departed  int `json:"departed"`  // runs that stood still to go to the second system
	Returned  int `json:"returned"`  // of them, those that were taken back, and went on at home
	Moved     int `json:"moved"`     // of them, those that ended there, and were answered at home

	By     map[string]int `json:"by"`     // accepted tasks by agent
	Heeded map[string]int `json:"heeded"` // obeyed commands by intent, and answers of people
}

// maxKept bounds the traces that are kept of tasks that broke a rule.
const maxKept = 200

// An end is the moment in which a worker's life lost its runs.
type end struct {
	kind Kind
	at   time.Time
}

// A recovery is one run that somebody else went on with.
type recovery struct {
	kind Kind
	at   time.Time // of the end
	took time.Duration
}

func newObserver(m subject.Map, calls *effects, settle time.Duration) *observer {
	return &observer{m: m, calls: calls, settle: settle, tasks: map[string]*task{}, early: map[string][]reply{}, given: map[string]map[string]bool{}, counts: Counts{By: map[string]int{}, Heeded: map[string]int{}}, judged: map[string]digest{}, quiet: map[string]time.Time{}, ends: map[string]end{}}
}

// submitting notes what a client is about to submit. The channel is closed when
// the task has its reply.
func (o *observer) submitting(id, entity string, effects []expected, cancelled bool) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	answered := make(chan struct{})
	o.tasks[id] = &task{ID: id, Entity: entity, Run: state.RunID(entity, id), Effects: effects, Cancelled: cancelled, Team: members[entity], answered: answered}
	return answered
}

// accepted notes that a client was told that its task is stored: from here on it
// must not be lost. Until then no task is judged.
func (o *observer) accepted(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Accepted++
	if t := o.tasks[id]; t != nil {
		t.Accepted = time.Now()
		o.counts.By[t.Entity]++
	}
}

// asked notes a task that a team has given to a person.
func (o *observer) asked(task *envelope.Envelope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gave(task)
}

// gave notes a task that a team has given to a member. o.mu is held.
func (o *observer) gave(task *envelope.Envelope) {
	if _, over := o.judged[task.ReplyTo]; over {
		return
	}
	if o.given[task.ReplyTo] == nil {
		o.given[task.ReplyTo] = map[string]bool{}
	}
	o.given[task.ReplyTo][task.ID] = true
}

// discover notes the task of a member, which no client has submitted, when its
// record is seen for the first time; nil where it is none. o.mu is held.
func (o *observer) discover(cp *state.Checkpoint, run string, at time.Time) *task {
	if cp == nil || cp.Mesh.Task == nil {
		return nil
	}
	env, err := envelope.Parse(cp.Mesh.Task)
	if err != nil || env.ReplyTo == "" || members[env.From] == 0 {
		return nil
	}
	o.gave(env)
	o.counts.Members++
	// Whoever cancels the team's task cancels it.
	t := &task{ID: env.ID, Entity: env.To, Run: run, Accepted: at, Effects: ordered(env), Cancelled: true, Member: true, Replies: o.early[env.ID]}
	delete(o.early, env.ID)
	o.tasks[env.ID] = t
	return t
}

// awaiting reports whether a task's run waits for somebody.
func (o *observer) awaiting(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tasks[id]
	return t != nil && (awaits(t.Writes) || awaits(t.There))
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

// task is one that is not judged; nil if it is. over reports that it is: what is
// neither is no task of the clients, but a command that was queued.
func (o *observer) task(id string) (t *task, over bool) {
	_, over = o.judged[id]
	return o.tasks[id], over
}

// lost notes that a worker's life has lost its runs.
func (o *observer) lost(owner string, e end) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends[owner] = e
}

// record takes one revision of a run's record.
func (o *observer) record(v *view, msg natsjs.Msg, meta *natsjs.MsgMetadata) {
	if len(msg.Data()) == 0 {
		return // a deletion
	}
	w := write{Revision: meta.Sequence.Stream, At: meta.Timestamp}
	h, err := state.ReadHeader(msg.Data())
	if err != nil {
		o.note(Violation{Rule: RuleRecord, Detail: fmt.Sprintf("%s, revision %d: %v", msg.Subject(), w.Revision, err)})
		return
	}
	w.Epoch, w.Owner, w.Status, w.Over, w.Kind = h.Epoch, h.Owner, string(h.Status), state.Terminal(h.Status), string(h.Step)
	w.Running = !w.Over && !state.Parked(h.Status)
	var cp *state.Checkpoint
	if h.Object == nil {
		if cp, err = o.codec.Decode(msg.Data()); err != nil {
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

// take reads what the model needs from a checkpoint.
func (w *write) take(cp *state.Checkpoint) {
	m := &cp.Mesh
	w.Name, w.Claims = m.Step.Name, m.Claims
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
		// The results of tools that ran at once stand in the order of their calls,
		// whichever came first.
		who := fmt.Sprint(msg.Role, " ", msg.ToolCallID)
		said[who]++
		w.Done[fmt.Sprintf("message %d of %s", said[who], who)] = digestOf([]byte(msg.Content))
	}
	if m.Entity == ProgramEntity { // its claim is all that it says before
		w.Begun = append(w.Begun, programKey(cp.Doc.RunID))
	}
	if m.Entity != Entity {
		return
	}
	for i, r := range readProgress(m.Loop).Receipts {
		w.Done[fmt.Sprintf("step %d", i)] = digestOf(fmt.Append(nil, r))
	}
}

// reply takes one reply on its way, or from the stream.
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

// check lets a task that is over rest.
func (o *observer) check(t *task) {
	if t.over() {
		o.quiet[t.ID] = time.Now()
	}
}

// judge judges the tasks that have rested, or all, at the end.
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
