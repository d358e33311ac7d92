package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// memberCall is one call of a member, for the member's part of the work.
type memberCall struct {
	key     string                      // identifies the call within the run: "step/0"
	slot    int                         // the slot of its outcome
	member  int                         // the member's index in Plan.Members
	payload json.RawMessage             // the member's input, unless the document maps another
	timeout time.Duration               // the time until the context's deadline; 0: the call has no timeout of its own
	people  time.Time                   // the deadline of people, who may have longer; zero: the task's deadline
	share   int                         // people without timeout_seconds have this part of the time until then, one in share; 0: all of it
	silent  time.Duration               // timeout of each attempt of a member without timeout_seconds; 0: timeout
	plain   bool                        // the payload is sent unchanged: the document's mapping does not apply to this call
	merge   bool                        // the payload is a synthesizer's: it is not converted to the form of a template
	apart   bool                        // the document's mapping does not see the outputs of other members
	final   bool                        // the answer is the result of the whole task
	whole   bool                        // the run waits for the answer even if a stop was requested
	pause   func(context.Context) error // stops the run in the middle of the call; nil: a commit stops it
	on      []envelope.Reference        // results of others that the payload was made from
	schema  json.RawMessage             // what a person's answer must fit if the document has no result_schema; nil: anything
}

// ask calls a member for its part, with retries, and returns the outcome. A
// failure of the member is in the outcome; a returned error means that the run
// cannot go on here.
func (w *work) ask(ctx context.Context, a memberCall) (Outcome, error) {
	p := &w.plan.Members[a.member]
	out := Outcome{Slot: a.slot, Alias: p.Alias, Began: time.Now().UTC(), Key: a.key}
	out.Asked = out.Began
	end := func(problem *envelope.Error) (Outcome, error) {
		out.Err, out.Output = problem, nil
		out.MS = millis(time.Since(out.Began))
		w.publishStep(intents.RunStepFailed, &out, a, w.afterFailure(p, a))
		return out, nil
	}
	payload, err := w.input(ctx, p, a)
	if err != nil {
		if err := fatal(ctx, err); err != nil {
			return out, err
		}
		var mapping notObject
		if errors.As(err, &mapping) {
			return end(envelope.Errorf(envelope.CodeInternal, "the document maps %s to the input of %s, which must be an object", string(mapping), p.Alias))
		}
		return end(envelope.Errorf(envelope.CodeInternal, "what the document maps to the input of %s cannot be made: %w", p.Alias, err))
	}
	member, err := w.receiver(ctx, a.key, p, a)
	if err != nil {
		if err := fatal(ctx, err); err != nil {
			return out, err
		}
		return end(noReceiver(p, err))
	}
	at := post{participant: *p, member: member, key: a.key}
	for {
		out.Entity = at.member.Entity
		out.Tries++
		out.Asked = time.Now()
		problem := w.failedBefore(at.key, &out)
		known := problem != nil
		if !known {
			err := w.try(ctx, &at, a, payload, &out)
			if err == nil {
				out.MS = millis(time.Since(out.Began))
				w.publishStep(intents.RunStepFinished, &out, a, "")
				return out, nil
			}
			if err := fatal(ctx, err); err != nil {
				return out, err
			}
			problem = envelope.AsError(err)
			w.noteFailure(at.key, &out, problem)
		}
		if at.member.restored && problem.Retryable {
			at.member = w.defined(ctx, &at.participant, at.member)
		}
		again, wait := w.again(&at.participant, at.member, &out, problem)
		if !again || wait >= w.left() {
			// A member that has used up all of the swarm's time leaves no time for an escalation.
			// A person who had a share of it does.
			shared := a.share > 1 && subject.EntityType(at.member.Entity) == subject.TypeHuman
			spent := at.participant.Extras.TimeoutSeconds == 0 && !shared && a.timeout > 0 && time.Since(out.Asked) >= a.timeout*9/10
			ok, err := false, error(nil)
			if !spent {
				ok, err = w.escalate(ctx, &at, a, problem)
			}
			switch {
			case ok:
				out.Tries = 0
				continue
			case err == nil:
				return end(problem)
			}
			if err := fatal(ctx, err); err != nil {
				return out, err
			}
			return end(noReceiver(&at.participant, err))
		}
		if known { // the failure was published, and the delay is over
			wait = 0
		} else {
			failed := out
			failed.Err = problem
			w.publishStep(intents.RunStepFailed, &failed, a, intents.ThenRetry)
		}
		w.log.Info("a member is asked again", "id", w.task.Envelope.ID, "corr", w.task.Envelope.Corr, "step", p.Alias, "to", out.Entity, "try", out.Tries, "code", string(problem.Code))
		if !pause.For(ctx, wait) {
			return out, context.Cause(ctx)
		}
		at.member = w.another(ctx, at.key, &at.participant, at.member, &out, problem)
	}
}

// another returns the member for the next try of a live call. If the document
// names only a skill, and the chosen agent is not available any more, it is
// another agent with the skill. A durable call stays with its receiver, because
// the call is stored for it.
func (w *work) another(ctx context.Context, key string, p *Participant, member Member, out *Outcome, problem *envelope.Error) Member {
	if out.Durable || !p.bySkill() {
		return member
	}
	switch problem.Code {
	case envelope.CodeNoResponders, envelope.CodeUnavailable, envelope.CodeDraining, envelope.CodeBusy:
	default:
		return member
	}
	other, err := w.dir.Find(ctx, p.Ref)
	if err != nil {
		return member
	}
	w.mu.Lock()
	w.pos.Chosen = slices.DeleteFunc(w.pos.Chosen, func(c chosen) bool { return c.Key == key })
	w.mu.Unlock()
	w.choose(key, p, other)
	return other
}

// errSilent is the cause with which an attempt is cancelled at its timeout.
var errSilent = errors.New("the member's time is over")

// try makes one attempt of the call, within the member's timeout.
func (w *work) try(ctx context.Context, at *post, a memberCall, payload json.RawMessage, out *Outcome) error {
	if a.silent <= 0 || at.participant.Extras.TimeoutSeconds > 0 {
		return w.call(ctx, at, a, payload, out)
	}
	// The context gets a timer and no deadline: the member's task would inherit
	// the deadline, and it may wait for a person, which does not count as the
	// member's time.
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(a.silent, func() { cancel(errSilent) })
	defer timer.Stop()
	if halted := a.pause; halted != nil {
		a.pause = func(ctx context.Context) error { // while the run is to stop, the answer is not read
			timer.Stop()
			defer timer.Reset(a.silent)
			return halted(ctx)
		}
	}
	err := w.call(timed, at, a, payload, out)
	if err != nil && errors.Is(context.Cause(timed), errSilent) && fatal(ctx, err) == nil {
		return envelope.Errorf(envelope.CodeTimeout, "%s did not answer within %s", at.participant.Alias, a.silent)
	}
	return err
}

// call sends the task to the member and waits for its result.
func (w *work) call(ctx context.Context, at *post, a memberCall, payload json.RawMessage, out *Outcome) error {
	x := at.participant.Extras
	c := mesh.Call{To: at.member.Entity, Intent: x.Intent, Payload: payload, Key: at.key, FailFast: at.participant.bySkill()}
	if w.opts.Shape != nil && c.Intent == "" && !a.plain && !a.merge && subject.EntityType(c.To) != subject.TypeHuman {
		if intent, shaped, ok := w.opts.Shape(ctx, c.To, payload); ok {
			c.Intent, c.Payload = intent, shaped
		}
	}
	own := x.Timeout()
	if !a.people.IsZero() && subject.EntityType(c.To) == subject.TypeHuman {
		share := time.Duration(1)
		if own == 0 {
			share = time.Duration(max(a.share, 1))
		}
		c.Timeout = max(time.Until(a.people)/share, 1)
	}
	if own > 0 && (c.Timeout == 0 || own < c.Timeout) {
		c.Timeout = own
	}
	if out.Tries > 1 {
		c.Key = fmt.Sprintf("%s/try/%d", at.key, out.Tries)
	}
	if a.final {
		c.Requires = w.demands()
		if w.task.Streaming() {
			c.OnStream = func(e *envelope.Envelope) error { return w.task.Emit(e.Payload) }
		}
	}
	var err error
	if c.State, err = w.passedState(ctx, &at.participant); err != nil {
		return err
	}
	c.Requires = w.ofPerson(at, a, c.Requires)
	if c.Uninterrupted = a.whole; !mesh.PublishesTo(c.To) { // a person reads the task and cannot fetch the rest
		c.References = a.on
	}
	c.Begun = func(taskID string, durable bool) {
		out.TaskID, out.Durable = taskID, durable
		if len(at.before) > 0 && out.Tries == 1 {
			w.escalated(at, out, a, taskID)
		}
		w.publishStep(intents.RunStepStarted, out, a, "")
	}
	for {
		answer, err := w.task.Call(ctx, c)
		if answer != nil {
			out.TaskID, out.Durable = answer.TaskID, answer.Durable
			if began := answer.Began; !began.IsZero() { // the task was sent before, perhaps by another worker
				out.Asked = earlier(out.Asked, began)
				out.Began = earlier(out.Began, began.UTC())
			}
		}
		switch {
		case err == nil:
			out.Output, out.Usage = parts(answer.Envelope.Payload, a.final)
			out.Result = w.refer(answer.Envelope)
			return nil
		case errors.Is(err, mesh.ErrInterrupted):
			// The run must stop between two steps. This step continues when the run resumes.
			if err := w.pauseIn(ctx, a); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// pauseIn stops the run in the middle of a call, as requested. It returns nil if the request was
// withdrawn and the run continues.
func (w *work) pauseIn(ctx context.Context, a memberCall) error {
	if a.pause != nil {
		return a.pause(ctx)
	}
	return w.commit(ctx, state.Step{Kind: state.StepPause})
}

// refer returns a reference to a member's result, for tasks that are made from this result. Results
// of people and channels are fetched from this agent, which has received them.
func (w *work) refer(result *envelope.Envelope) *envelope.Reference {
	keeper := result.From
	if mesh.PublishesTo(keeper) {
		keeper = w.task.Envelope.To
	}
	ref, err := result.Refer(keeper)
	if err != nil {
		return nil // the envelope has no canonical form, because of a number in it
	}
	return &ref
}

// madeOf returns references to the results of several outcomes.
func madeOf(outcomes []Outcome) (refs []envelope.Reference) {
	for i := range outcomes {
		if o := &outcomes[i]; o.OK() && o.Result != nil && len(refs) < maxMadeOf {
			refs = append(refs, *o.Result)
		}
	}
	return refs
}

// maxMadeOf bounds the references of one task.
const maxMadeOf = 64

// demands returns the sender's requirements for the result, for the member whose answer becomes the
// result.
func (w *work) demands() map[string]json.RawMessage {
	all := w.task.Requires
	all.Timeout, all.HumanApproval, all.Stream = 0, false, false // the mesh passes these on
	var out map[string]json.RawMessage
	_ = json.Unmarshal(all.AppendJSON(nil), &out)
	return out
}

// again decides whether to retry after a failure, and when. A durable call is
// not retried here unless the step's max_retries says so: the member's own lane has
// retried it, as the member's document says.
func (w *work) again(p *Participant, member Member, out *Outcome, problem *envelope.Error) (bool, time.Duration) {
	policy := w.opts.Retries
	if policy == (mesh.RetryPolicy{}) {
		policy.Max = DefaultRetries
	}
	if member.Def != nil && member.Def.Agent.Runtime != nil {
		r := member.Def.Agent.Runtime
		if r.MaxRetries.IsSet() {
			policy.Max = int(min(r.MaxRetries.Int64(), 1<<10))
		}
		policy.Backoff = mesh.Backoff(r.RetryBackoff)
	}
	if out.Durable {
		policy.Max = 0
	}
	if n := p.Extras.MaxRetries; n != nil {
		policy.Max = *n
	}
	if b := p.Extras.RetryBackoff; b != "" {
		policy.Backoff = mesh.Backoff(b)
	}
	if !problem.Retryable || out.Tries > policy.Max {
		return false, 0
	}
	return true, policy.Pause(out.Tries, problem.Backoff())
}

// findPatience is how long a step of a live task waits until some agent answers
// for its reference, findPatienceDurable the same of a durable task. A durable
// run stays claimed while it waits, and may be retried later, as the team's
// document says.
const (
	findPatience        = 10 * time.Second
	findPatienceDurable = 10 * time.Minute
)

// receiver returns the receiver of a call: the one chosen before, the one that has the call, or the one
// that the directory finds.
func (w *work) receiver(ctx context.Context, key string, p *Participant, a memberCall) (Member, error) {
	w.mu.Lock()
	for _, c := range w.pos.Chosen {
		if c.Key == key {
			w.mu.Unlock()
			return Member{Entity: c.Entity, AgentID: c.AgentID, restored: true}, nil
		}
	}
	w.mu.Unlock()
	if to := w.calledBefore(key); to != "" {
		return Member{Entity: to, restored: true}, nil
	}
	until := time.Now().Add(min(findPatience, w.left()))
	if w.run != nil {
		until = time.Now().Add(min(findPatienceDurable, w.left()))
		if own := p.Extras.Timeout(); own > 0 {
			until = earlier(until, time.Now().Add(own))
		}
	}
	m, err := w.find(ctx, p, a, until)
	if err == nil {
		w.choose(key, p, m)
	}
	return m, err
}

// find returns the member that the directory finds. It waits until a time for one that answers.
func (w *work) find(ctx context.Context, p *Participant, a memberCall, until time.Time) (Member, error) {
	long := time.Now().Add(findPatience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		m, err := w.dir.Find(ctx, p.Ref)
		switch {
		case err == nil:
			return m, nil
		case ctx.Err() != nil:
			return m, context.Cause(ctx)
		case !errors.Is(err, ErrUnanswered) || time.Now().Add(wait).After(until):
			return m, err
		}
		if time.Now().After(long) {
			w.log.Warn("a step waits: its agent has no worker", "id", w.task.Envelope.ID, "corr", w.task.Envelope.Corr, "step", p.Alias, "ref", p.Ref, "err", err)
			long = until
		}
		if w.run != nil && isClosed(w.run.StopRequested()) { // for a pause or a transfer
			if err := w.pauseIn(ctx, a); err != nil {
				return m, err
			}
		}
		if !pause.For(ctx, wait) {
			return m, context.Cause(ctx)
		}
	}
}

// calledBefore returns the receiver to which an earlier owner of the run has sent the call with a key, or
// a retry of it, over the durable lane or into an inbox, in this attempt at the task; "" if it has not.
// The document may name another one since: both would do the step.
func (w *work) calledBefore(key string) string {
	if w.run == nil || !w.run.Restored() {
		return ""
	}
	is := func(k, id string) bool {
		return (k == key || strings.HasPrefix(k, key+"/try/")) && id == w.task.CallID(k)
	}
	m := &w.run.View().Mesh
	for _, c := range m.Calls {
		if !c.Live && is(c.Key, c.ID) {
			return c.To
		}
	}
	for _, wait := range m.Waits {
		if is(wait.Key, wait.TaskID) {
			return wait.Entity
		}
	}
	return ""
}

// defined adds the definition to a restored member, if the directory still knows it.
func (w *work) defined(ctx context.Context, p *Participant, m Member) Member {
	for _, ref := range []string{p.Ref, m.Entity} { // another agent may answer for a skill now
		if found, err := w.dir.Find(ctx, ref); err == nil && found.Entity == m.Entity && found.Def != nil {
			return found
		}
	}
	return m
}

// choose records the receiver, if the directory might find another one later. A run stores the
// record with the call, before it sends the call.
func (w *work) choose(key string, p *Participant, m Member) {
	if p.Ref == m.Entity && m.AgentID == "" {
		return
	}
	w.mu.Lock()
	w.pos.Chosen = append(w.pos.Chosen, chosen{key, m.Entity, m.AgentID})
	w.fresh++
	w.mu.Unlock()
	w.stage(stepTeam(p.Alias, "is "+m.Entity, 0))
}

// noReceiver is the error of a member for which no receiver was found.
func noReceiver(p *Participant, err error) *envelope.Error {
	if errors.Is(err, ErrUnanswered) {
		return envelope.Errorf(envelope.CodeNoResponders, "no worker answers for %s: %v", p.Ref, err)
	}
	return envelope.Errorf(envelope.CodeNotFound, "%s: %v", p.Ref, err)
}

// afterFailure returns how the run continues after a member has failed for good.
func (w *work) afterFailure(p *Participant, a memberCall) string {
	switch {
	case w.plan.Pattern == ModelLed:
		return intents.ThenSkip // the model gets the error
	case a.plain: // a judge: an evaluator is one of several, and nothing replaces a referee
		if a.member == w.plan.Referee {
			return intents.ThenFail
		}
		return intents.ThenSkip
	case p.Extras.OnError == OnErrorFallback && w.plan.Fallback >= 0 && a.member != w.plan.Fallback:
		return intents.ThenFallback
	case p.Extras.OnError == OnErrorSkip && w.plan.Pattern != Router, w.plan.Pattern == Swarm && p.Extras.OnError != OnErrorFail && !a.final:
		return intents.ThenSkip
	}
	return intents.ThenFail
}

// publishStep publishes the state of a member's part on the bus. Its duration counts from the request to
// the current receiver; requests to earlier receivers have been published already.
func (w *work) publishStep(intent string, o *Outcome, a memberCall, then string) {
	e := intents.StepEvent{Pattern: string(w.plan.Pattern), Step: a.key, Alias: o.Alias, To: o.Entity, Child: o.TaskID, Durable: o.Durable, Try: o.Tries}
	e.Slot, e.Then = &a.slot, then
	if intent != intents.RunStepStarted {
		e.DurationMS = millis(time.Since(o.Asked))
	}
	if o.Usage != (Usage{}) {
		e.Usage, _ = json.Marshal(o.Usage) // numbers always marshal
	}
	e.Error = o.Err
	w.task.PublishStep(intent, e)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
