package mesh

import (
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// Admission decides whether an envelope becomes a task of the agent, and whether the
// agent can do it. There is one list of checks for each of the two questions, and both
// lanes go through them: a live task when it arrives, a durable task when it is drawn.
// The first check that fails says why.

// A check refuses a task with an error, or accepts it.
type check struct {
	refuses func(*Task) *envelope.Error
	alert   bool // the refusal is published on bus.mesh.alert
}

// admission are the checks of an envelope: its sender, addressee, lane and time. The last
// ones record it, so that it counts once.
var admission = []check{
	{refuses: checkSignature, alert: true},
	{refuses: checkAddressee},
	{refuses: checkType},
	{refuses: checkMeshAndLane, alert: true},
	{refuses: checkAge, alert: true},
	{refuses: checkQuota},
	{refuses: checkReplay, alert: true},
}

// admit makes the checks of admission. alert says that the refusal is to be published
// on bus.mesh.alert.
func (t *Task) admit() (problem *envelope.Error, alert bool) {
	for _, check := range admission {
		if problem := check.refuses(t); problem != nil {
			return problem, check.alert
		}
	}
	t.Envelope = capped(t.Envelope, t.priority)
	return nil, false
}

// stored returns when the task arrived in the mesh: on the live lane when this worker received it,
// on the durable lane when the server stored it.
func (t *Task) stored() time.Time {
	if t.run != nil {
		return t.run.hold.Stored
	}
	return t.queued
}

func checkSignature(t *Task) *envelope.Error {
	identity, err := t.host.node.cfg.Verifier.Verify(t.Envelope, t.stored())
	if err != nil {
		return peerError(err)
	}
	t.KeyID, t.signed = identity.KID, identity.Signed
	return nil
}

func checkAddressee(t *Task) *envelope.Error {
	if t.Envelope.To != t.host.Entity {
		return envelope.Errorf(envelope.CodeWrongRecipient, "this is %s; the envelope is addressed to another entity", t.host.Entity)
	}
	return nil
}

// checkType refuses all envelopes except tasks and, on the live lane, events.
func checkType(t *Task) *envelope.Error {
	if kind := t.Envelope.Type; kind != envelope.TypeTask && (kind != envelope.TypeEvent || t.run != nil) {
		return unexpectedType(kind)
	}
	return nil
}

func unexpectedType(t envelope.Type) *envelope.Error {
	return envelope.Errorf(envelope.CodeUnexpectedType, "this subject takes tasks, not envelopes of type %s", t)
}

// checkMeshAndLane refuses a task that was signed for another mesh, or for the other lane.
func checkMeshAndLane(t *Task) *envelope.Error {
	if t.Envelope.Type != envelope.TypeTask {
		return nil
	}
	return t.forHere(t.host.node.cfg.Prefix, t.run != nil, t.signed)
}

// checkAge refuses stale and replayed tasks. A durable task may have been stored for
// long: its time is checked when its run begins, and the run's record detects a
// replay.
func checkAge(t *Task) *envelope.Error {
	if t.run != nil {
		return nil
	}
	return t.host.node.fresh(t.Envelope, t.stored())
}

// checkQuota caps the priority, and refuses a live task beyond its sender's quota. A
// durable task is delayed, see deliveries.delayOverQuota.
func checkQuota(t *Task) (problem *envelope.Error) {
	quotas, priority := t.host.node.quotas, t.Envelope.Priority
	if t.run != nil {
		if p := envelope.Priority(t.run.hold.Priority); p.Rank() >= 0 {
			priority = p
		}
		priority = quotas.Cap(t.Envelope, priority, t.signed)
	} else if priority, problem = quotas.Admit(t.Envelope, t.signed, t.stored()); problem != nil {
		return problem
	}
	t.priority = priority
	return nil
}

// checkReplay asks the mesh's replay window about a live task. A durable one asks when its
// run begins.
func checkReplay(t *Task) *envelope.Error {
	n := t.host.node
	if t.run != nil || !n.asksSeen(t.Envelope, t.signed) {
		return nil
	}
	return n.freshInMesh(t.host, t.Envelope)
}

// A constraint refuses a task that the agent cannot do as it is asked for.
type constraint func(*Task) error

var (
	// constraints are checked for every task, also for one whose run has begun before.
	constraints = []constraint{(*Task).readRequires, checkDelegation, checkTree, checkApproval, checkIntentsLane}
	// atBegin are not checked for a task whose run has begun before.
	atBegin = []constraint{checkNotBefore, checkProvenance, checkResult, checkReferences, checkPayload}
)

// prepare reads what the task requires, sets its deadline, and returns why the agent
// cannot do it, nil if it can.
func (t *Task) prepare() error {
	_ = t.readRequires() // a refusal, too, needs the stream, the encoding and the deadline that the sender requires
	t.limit()
	for _, meets := range constraints {
		if err := meets(t); err != nil {
			return err
		}
	}
	if t.goesOn() {
		return nil
	}
	for _, meets := range atBegin {
		if err := meets(t); err != nil {
			return err
		}
	}
	return nil
}

// refusal returns the error of prepare in the form that is sent.
func (t *Task) refusal() *envelope.Error {
	if err := t.prepare(); err != nil {
		return peerError(err)
	}
	return nil
}

// goesOn reports whether the task's run has begun before.
func (t *Task) goesOn() bool { return t.run != nil && t.run.stored != nil }

// limit sets the task's deadline: on the live lane from now, on the durable lane from the time at
// which the server stored the task.
func (t *Task) limit() {
	h := t.host
	r := t.run
	if r == nil {
		timeout := t.Requires.Timeout
		if timeout == 0 {
			timeout = h.node.cfg.DefaultTimeout
		}
		timeout = min(timeout, h.node.cfg.MaxTimeout)
		if h.Timeout > 0 {
			timeout = min(timeout, h.Timeout)
		}
		t.Requires.Timeout, t.Deadline = timeout, t.queued.Add(timeout)
		return
	}
	t.Requires.Timeout = r.lane.deliveries.timeout(t.Requires)
	r.deadline = r.hold.Stored.Add(t.Requires.Timeout)
	if r.stored != nil && !r.stored.Mesh.Deadline.IsZero() {
		r.deadline = r.stored.Mesh.Deadline
	}
	t.Deadline = r.lane.clock.local(r.deadline)
}

// checkDelegation accepts a task that another agent has delegated, or refuses it.
func checkDelegation(t *Task) error {
	if err := t.acceptDelegation(); err != nil {
		return err
	}
	r, h := t.run, t.handed
	if h == nil || r == nil || r.stored != nil {
		return nil
	}
	r.stream.seq = h.Stream // the next stream envelope has the next number
	if !h.Deadline.IsZero() {
		r.deadline = earlier(r.deadline, h.Deadline)
	}
	t.Deadline = r.lane.clock.local(r.deadline)
	return nil
}

func checkApproval(t *Task) error {
	if t.Requires.HumanApproval {
		return envelope.Errorf(envelope.CodeRequires, "requires.human_approval: tasks cannot be approved on this worker")
	}
	return nil
}

// checkIntentsLane refuses a reserved intent on the durable lane.
func checkIntentsLane(t *Task) error {
	if t.run != nil && intents.Reserved(t.Envelope.Intent) {
		return envelope.Errorf(envelope.CodeIntentReserved, "intent %s is answered on the live lane only", t.Envelope.Intent)
	}
	return nil
}

// checkNotBefore refuses a live task with a requires.not_before in the future, unless the
// agent moves the task to its durable lane (see host.later).
func checkNotBefore(t *Task) error {
	at, err := readNotBefore(t.required(requireNotBefore))
	if err != nil {
		return err
	}
	if t.run == nil && at.After(t.queued) && !t.host.later(t) {
		return envelope.Errorf(envelope.CodeRequires, "requires.not_before: a live task cannot be scheduled; send it over the durable lane")
	}
	return nil
}

func checkPayload(t *Task) error {
	intent, _ := t.class()
	if intent != t.Envelope.Intent {
		return nil // the payload is in another form than that of the intent: Classify has read it, and the handler does
	}
	return t.host.validate(intent, intents.Task, t.Envelope.Payload)
}
