package mesh

import (
	"cmp"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
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

// admission admits and prepares a task before it begins.
type admission struct{ *Task }

// admissionChecks check an envelope: its sender, addressee, lane and time. The last checks record
// the envelope, so that it counts once.
var admissionChecks = []check{
	{refuses: checkSignature, alert: true},
	{refuses: checkAddressee},
	{refuses: checkType},
	{refuses: checkMeshAndLane, alert: true},
	{refuses: checkID},
	{refuses: checkAge, alert: true},
	{refuses: checkQuota},
	{refuses: checkReplay, alert: true},
}

// admit runs admissionChecks. alert reports whether the refusal must be published on
// bus.mesh.alert.
func (a admission) admit() (problem *envelope.Error, alert bool) {
	for _, check := range admissionChecks {
		if problem := check.refuses(a.Task); problem != nil {
			return problem, check.alert
		}
	}
	a.Envelope = capped(a.Envelope, a.priority)
	return nil, false
}

// stored returns when the task arrived in the mesh: on the live lane when this worker received it,
// on the durable lane when the server stored it.
func (a admission) stored() time.Time {
	if a.run != nil {
		return a.run.storedAt()
	}
	return a.queued
}

func checkSignature(t *Task) *envelope.Error {
	identity, err := t.host.node.cfg.Verifier.Verify(t.Envelope, admission{t}.stored())
	if err != nil {
		return fault.ForPeer(err)
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

// checkID refuses a durable task whose id does not fit into the subject of its reply.
func checkID(t *Task) *envelope.Error {
	if id := t.Envelope.ID; t.run != nil && len(subject.Escape(id)) > subject.MaxID {
		return longID()
	}
	return nil
}

func longID() *envelope.Error {
	return envelope.Errorf(envelope.CodeTooLarge, "the id has more than %d bytes as part of a subject, which is too much on the durable lane", subject.MaxID)
}

// checkAge refuses stale and replayed tasks. A durable task may have been stored for
// long: its time is checked when its run begins, and the run's record detects a
// replay.
func checkAge(t *Task) *envelope.Error {
	if t.run != nil {
		return nil
	}
	return t.host.node.fresh(t.Envelope, admission{t}.stored())
}

// checkQuota caps the priority, and refuses a live task beyond its sender's quota. A
// durable task is delayed, see deliveries.delayOverQuota.
func checkQuota(t *Task) (problem *envelope.Error) {
	quotas, priority := t.host.node.quotas, t.Envelope.Priority
	if t.run != nil {
		if t.priority.Rank() >= 0 {
			priority = t.priority
		}
		priority = quotas.Cap(t.Envelope, priority, t.signed)
	} else if priority, problem = quotas.Admit(t.Envelope, t.signed, (admission{t}).stored()); problem != nil {
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
func (a admission) prepare() error {
	_ = a.readRequires() // a refusal too is sent with the stream, encoding and deadline that the sender requires
	a.limit()
	for _, meets := range constraints {
		if err := meets(a.Task); err != nil {
			return err
		}
	}
	if a.run != nil && a.run.goesOn() {
		return nil
	}
	for _, meets := range atBegin {
		if err := meets(a.Task); err != nil {
			return err
		}
	}
	return nil
}

// refusal returns the error of prepare in the form that is sent.
func (a admission) refusal() *envelope.Error {
	if err := a.prepare(); err != nil {
		return fault.ForPeer(err)
	}
	return nil
}

// limit sets the task's deadline: on the live lane from now, on the durable lane from the time at
// which the server stored the task.
func (a admission) limit() {
	if a.run != nil {
		a.run.limit()
		return
	}
	h, timeout := a.host, a.Requires.Timeout
	timeout = cmp.Or(timeout, h.node.cfg.DefaultTimeout)
	timeout = min(timeout, h.node.cfg.MaxTimeout)
	if h.Timeout > 0 {
		timeout = min(timeout, h.Timeout)
	}
	a.Requires.Timeout, a.Deadline = timeout, a.queued.Add(timeout)
}

// checkDelegation accepts a task that another agent has delegated, or refuses it.
func checkDelegation(t *Task) error {
	if err := t.acceptDelegation(); err != nil {
		return err
	}
	if t.handed != nil && t.run != nil {
		t.run.limit()
	}
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
	at, err := requires.ReadNotBefore(t.required(requires.NotBefore))
	if err != nil {
		return err
	}
	if t.run == nil && at.After(t.queued) && !t.host.later(t) {
		return envelope.Errorf(envelope.CodeRequires, "requires.not_before: a live task cannot be scheduled; send it over the durable lane")
	}
	return nil
}

// checkResult refuses a task that requires a format or evidence that this agent's results cannot have.
func checkResult(t *Task) error {
	intent, _ := t.class()
	return t.host.payloads.CanGive(&t.Requires, t.Envelope.Intent, intent)
}

func checkPayload(t *Task) error {
	intent, _ := t.class()
	if intent != t.Envelope.Intent {
		return nil // the payload is in another form than that of the intent: Classify has read it, and the handler does
	}
	return t.host.payloads.Validate(intent, intents.Task, t.Envelope.Payload)
}
