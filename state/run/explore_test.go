package run_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// This test explores what two workers, a guardian, a sweep, a sender's commands and another
// platform can make of one run, in every order, with crashes between any two writes, messages
// that are delivered again, and a guardian that takes a living worker for dead. The workers do
// with the functions of this package what mesh does; the store is a compare-and-swap over the
// record and the reply of the run. A worker may begin a new task before its claim is
// written; then its first write is a step, or, for a task of one step, the reply alone.
// explore_call_test.go has the run's tool call and its approval, explore_move_test.go its
// transfers.
//
// In no reachable world
//   - can two workers write, or one that is not the owner,
//   - are there two different replies, or does anything follow the end of the run,
//   - is a finished step begun again, committed twice, or lost,
//   - is a tool call made again whose outcome is stated, or an outcome stated twice,
//   - does a run go on without the approval that it waits for,
//   - is the run active here and on another platform, or there in an old version,
//   - does the other platform change the run before it has accepted it,
//   - is the run stuck: the end, its reply and an empty queue can be reached from everywhere.

const stepsOfRun = 2

// A world is a state of everything. Checkpoints in it are never changed.
type world struct {
	rec     *state.Checkpoint // nil: none
	rev     int
	replied bool   // the reply is stored
	reply   string // announced
	short   bool   // the task takes one step
	next    int    // sequence of the next message
	msgs    []message
	w       [2]workerAt

	crashes, redeliveries, falseDeaths int // left
	lates                              int // left: deliveries that reach their worker late
	pauses, resumes, cancels           int // left
	calls                              calls
	transfers                          transfers
	kick                               int // a guardian or a command has written this revision, and the message is to follow; 0: none

	fault fault // what the workers do wrong
}

type message struct {
	seq    int
	run    bool // it says that the run goes on
	again  bool // it was delivered before
	times  int  // how often, at most manyTimes
	holder int  // the worker that has the lease, -1: queued
}

type workerAt struct {
	phase byte // idle, drawn, claiming, running, ended, parked, dead
	seq   int  // its message
	first bool // it is the first delivery of the task: the run may begin before its claim is written
	taken int  // the revision at which it got it; of a delivery that is late, one after all others
	times int  // how often the message was delivered before
	cp    *state.Checkpoint
	rev   int // of cp; of the record that a claim replaces
	v     run.Verdict

	calling bool   // its handler makes the tool call
	sent    string // the checkpoint that it has offered, or sent to the other platform
}

const (
	idle byte = iota
	drawn
	claiming
	running
	ended
	parked
	halted
	dead_
)

var names = [2]string{"a", "b"}

func name(i int) string { return names[i] }

// claimed is what a worker whose claim is written does next.
var claimed = map[run.Verdict]byte{run.Mine: running, run.Ended: ended, run.Parked: parked, run.Moving: halted}

// What a worker does, or what is done to it, by worker: the texts of moves that are tried in every world.
var (
	draws       = [2]string{"a draws ", "b draws "}
	isSentLate  = [2]string{"to a is sent, and reaches it late, ", "to b is sent, and reaches it late, "}
	goesOn      = [2]string{"a goes on", "b goes on"}
	dies        = [2]string{"a dies", "b dies"}
	isAbandoned = [2]string{"the guardian abandons the runs of a", "the guardian abandons the runs of b"}
)

var newRun = state.New("agent.x", "01J0000000000000000000TASK", "")

// key is the same for worlds that go on in the same way. Of a revision it matters whether it is
// the record's, as one that is not never will be.
func (w *world) key(b []byte) []byte {
	num := func(all ...int) {
		for _, n := range all {
			if 0 <= n && n < 10 {
				b = append(b, '0'+byte(n), ' ')
			} else {
				b = append(strconv.AppendInt(b, int64(n), 10), ' ')
			}
		}
	}
	text := func(all ...string) {
		for _, s := range all {
			b = append(append(b, s...), ' ')
		}
	}
	bits := func(all ...bool) {
		n := 0
		for _, bit := range all {
			if n *= 2; bit {
				n++
			}
		}
		num(n)
	}
	cp := func(c *state.Checkpoint) {
		if c == nil {
			b = append(b, '-')
			return
		}
		m := &c.Mesh
		text(string(c.Doc.Status), m.Owner, m.Pending, string(m.Reply), string(m.Loop))
		num(int(m.Epoch), int(m.Work), int(m.Redelivered), steps(c), m.Claims)
		text(m.Commands...)
		for _, e := range m.Effects {
			text(string(e.Status), e.SettledBy)
		}
		if g := m.Migration; g != nil {
			text(string(g.Phase), string(g.Status), g.To, g.Source, g.Target)
		}
		b = append(b, ';')
	}
	cp(w.rec)
	for _, m := range w.msgs {
		num(m.seq, m.holder, m.times)
		bits(m.run, m.again)
	}
	text("", w.reply)
	for _, x := range w.w {
		num(int(x.phase), x.seq, int(x.v), x.times)
		bits(x.taken == w.rev, x.taken == lateRev, x.rev == 0, x.rev == w.rev, x.first, x.calling, x.sent == "", x.sent != "" && x.cp != nil && x.sent == x.cp.Doc.StateID)
		cp(x.cp)
	}
	num(w.crashes, w.redeliveries, w.falseDeaths, w.lates, w.pauses, w.resumes, w.cancels)
	c, t := &w.calls, &w.transfers
	num(c.made, c.repeats, c.approved, t.moves, t.leaves, t.steers, t.aborts, t.early)
	if o := t.offer; o != nil {
		num(o.seq, o.from, int(o.answer))
		bits(o.rev == w.rev)
	}
	bits(w.replied, w.rev == 0, w.kick == 0, w.kick == w.rev, t.there.ended, t.there.unstage)
	text(string(t.there.phase))
	cp(t.there.cp)
	return b
}

// steps are the steps that a run has completed.
func steps(c *state.Checkpoint) int {
	if c.Doc.Iteration == "" {
		return 0
	}
	return int(c.Doc.Iteration.Int64())
}

// at is a time in the order of the revisions.
func at(rev int) time.Time { return noon.Add(time.Duration(rev) * time.Second) }

// swap stores a checkpoint over a revision.
func (w *world) swap(c *state.Checkpoint, over int) bool {
	if w.rev != over {
		return false
	}
	w.rec, w.rev = c, w.rev+1
	c.Doc.StateID = strconv.Itoa(w.rev) // each checkpoint has its own
	return true
}

func (w *world) queue() {
	w.next++
	w.msgs = append(w.msgs, message{seq: w.next, run: true, holder: -1})
}

func (w *world) find(seq int) int {
	return slices.IndexFunc(w.msgs, func(m message) bool { return m.seq == seq })
}

// ack takes a message off the queue, if this worker still has its lease: an ack for a
// delivery that was made again is ignored.
func (w *world) ack(i int) {
	if n := w.find(w.w[i].seq); n >= 0 {
		w.msgs = slices.Delete(w.msgs, n, n+1)
	}
	w.w[i] = workerAt{}
}

func (w *world) nak(i int) {
	if n := w.find(w.w[i].seq); n >= 0 && w.msgs[n].holder == i {
		w.msgs[n].holder = -1
	}
	w.w[i] = workerAt{}
}

func (w *world) done() bool {
	return w.rec != nil && w.rec.Terminal() && w.replied && w.reply != "" && len(w.msgs) == 0
}

// moves gives add the changes that may follow. A change is made to a copy, and reports whether it is possible.
func (w *world) moves(add func(what string, change func(*world) bool)) {
	for i := range w.w {
		for m := range w.msgs {
			if w.w[i].phase == idle && w.msgs[m].holder < 0 {
				add(draws[i]+strconv.Itoa(w.msgs[m].seq), func(n *world) bool { return n.draw(i, m, n.rev) })
				if w.lates > 0 {
					add(isSentLate[i]+strconv.Itoa(w.msgs[m].seq), func(n *world) bool {
						n.lates--
						return n.draw(i, m, lateRev)
					})
				}
			}
		}
		add(goesOn[i], func(n *world) bool { return n.work(i) })
		if x := w.w[i]; x.phase == drawn && x.first && w.rec == nil {
			add(name(i)+" begins without a claim", func(n *world) bool { n.claim(i); n.w[i].phase = running; return true })
		}
		if w.crashes > 0 && w.w[i].phase != dead_ && w.w[1-i].phase != dead_ {
			add(dies[i], func(n *world) bool {
				n.crashes--
				n.w[i] = workerAt{phase: dead_}
				return true
			})
		}
		if alive := w.w[i].phase != dead_; w.w[1-i].phase != dead_ && w.kick == 0 && w.rec != nil && (!alive || w.falseDeaths > 0) {
			add(isAbandoned[i], func(n *world) bool {
				if try := *n.rec; !run.Abandon(&try, name(i)) { // before a clone is made
					return false
				}
				c := n.rec.Clone()
				run.Abandon(c, name(i))
				if alive {
					n.falseDeaths--
				}
				n.swap(c, n.rev)
				n.kick = n.rev
				return true
			})
		}
	}
	for m, msg := range w.msgs {
		if msg.holder >= 0 && (w.w[msg.holder].phase == dead_ || w.w[msg.holder].seq != msg.seq || w.redeliveries > 0) {
			add("the end of the lease of "+strconv.Itoa(msg.seq), func(n *world) bool {
				if w.w[msg.holder].phase != dead_ && w.w[msg.holder].seq == msg.seq {
					n.redeliveries--
				}
				n.msgs[m].holder, n.msgs[m].again = -1, true
				return true
			})
		}
	}
	if w.kick > 0 {
		add("the message of a woken run is queued", func(n *world) bool {
			at := n.kick
			n.kick = 0
			n.queue()
			c := n.rec.Clone()
			c.Mesh.Work = uint64(n.next)
			n.swap(c, at)
			return true
		})
		if w.crashes > 0 {
			add("its writer dies before the message", func(n *world) bool { n.crashes--; n.kick = 0; return true })
		}
	}
	w.callMoves(add)
	w.transferMoves(add)
	add("the sweep", func(n *world) bool { return n.sweep() })
	if w.pauses > 0 {
		add("pause", func(n *world) bool { n.pauses--; return n.command(intents.TaskPause, false) })
	}
	if w.resumes > 0 && w.pauses == 0 {
		add("resume", func(n *world) bool { return n.command(intents.TaskResume, false) })
	}
	if w.cancels > 0 {
		add("cancel", func(n *world) bool { n.cancels--; return n.command(intents.TaskCancel, false) })
		if w.crashes > 0 {
			add("a cancel whose writer dies when it has queued the run", func(n *world) bool {
				n.cancels--
				n.crashes--
				return n.command(intents.TaskCancel, true)
			})
		}
	}
}

// manyTimes and lateRev are more than all numbers that matter.
const (
	manyTimes = 3
	lateRev   = 1000
)

// draw delivers a message to a worker, which takes it at a revision.
func (w *world) draw(i, m, taken int) bool {
	msg := &w.msgs[m]
	w.w[i] = workerAt{phase: drawn, seq: msg.seq, taken: taken, times: msg.times, first: !msg.again && !msg.run}
	msg.holder, msg.times = i, min(msg.times+1, manyTimes)
	return true
}

// message is what a worker knows of its message.
func (w *world) message(i int) run.Message {
	x := &w.w[i]
	m := run.Message{Worker: name(i), Seq: uint64(x.seq), Redelivered: uint64(x.times), Taken: at(x.taken), Same: true}
	if w.fault == countsNothing {
		m.Redelivered = 0
	}
	return m
}

// work lets a worker do the next thing.
func (w *world) work(i int) bool {
	x := &w.w[i]
	switch x.phase {
	case drawn:
		return w.claim(i)
	case claiming:
		if !w.swap(x.cp, x.rev) {
			x.phase, x.cp = drawn, nil // it reads again
			return true
		}
		x.rev = w.rev
		x.phase = claimed[x.v]
	case running:
		c := x.cp.Clone()
		if w.short && x.rev == 0 { // without a record: the reply alone ends the run
			run.End(c, run.Ending{Reply: fmt.Appendf(nil, "%s.%d", name(i), c.Mesh.Epoch)})
			c.Mesh.Task = nil // as it is read back
			if !w.swap(c, 0) {
				return w.overtaken(i)
			}
			x.cp, x.rev, x.phase, w.replied = c, w.rev, ended, true
			return true
		}
		if w.handles(x, c) {
			w.captures(i, c)
		} else if w.short || steps(c) == stepsOfRun {
			run.End(c, run.Ending{Reply: fmt.Appendf(nil, "%s.%d", name(i), c.Mesh.Epoch)})
		} else {
			c.Doc.Iteration = aaif.Int(int64(steps(c) + 1))
			step(c, state.StepModel, "")
			w.captures(i, c)
		}
		switch {
		case w.swap(c, x.rev):
			x.cp, x.rev = c, w.rev
			if c.Mesh.Step.Kind == state.StepIntent {
				x.calling = true
				w.calls.made++
			}
			if c.Terminal() {
				x.phase = ended
			} else if c.Doc.Status == aaif.RunMigrating {
				x.phase, x.calling = halted, false
			} else if state.Parked(c.Doc.Status) {
				x.phase = parked
			}
		case x.rev == 0:
			return w.overtaken(i)
		case run.Owns(w.rec, name(i), x.cp.Mesh.Epoch), w.fault == ownsAnything && !w.rec.Terminal() && !state.Parked(w.rec.Doc.Status): // a command was written
			x.cp, x.rev = w.rec, w.rev
		default: // lost: it neither acks nor naks
			w.w[i] = workerAt{}
		}
	case ended:
		switch {
		case w.reply == "":
			w.reply = string(x.cp.Mesh.Reply) // which the record has already
		case !w.replied && w.rev == x.rev:
			w.rev++
			w.replied, x.rev = true, w.rev
		case !w.replied:
			w.nak(i) // it reads again
		default:
			w.ack(i)
		}
	case parked:
		w.ack(i)
	case halted:
		return w.move(i)
	default:
		return false
	}
	return true
}

// step ends a step of the handler, which asks to wait with a status; "": it goes on.
func step(c *state.Checkpoint, kind state.StepKind, park aaif.RunStatus) {
	if _, err := run.Step(c, state.Step{Kind: kind}, park, false, noon); err != nil {
		panic(err)
	}
}

// overtaken is a worker that began without a claim, and finds a record.
func (w *world) overtaken(i int) bool {
	x := &w.w[i]
	m := w.message(i)
	v := run.Judge(w.rec, at(w.rev), m)
	if v == run.AskQueue {
		if m.OtherMessage = run.No; w.find(int(w.rec.Mesh.Work)) >= 0 {
			m.OtherMessage = run.Yes
		}
		v = run.Judge(w.rec, at(w.rev), m)
	}
	switch v {
	case run.Ended:
		x.phase, x.cp, x.rev = ended, w.rec, w.rev
	case run.Parked, run.Foreign:
		w.ack(i)
	default:
		w.w[i] = workerAt{}
	}
	return true
}

// claim reads the record and prepares the claim.
func (w *world) claim(i int) bool {
	x := &w.w[i]
	c := newRun // not changed, as the record is not
	if w.rec != nil {
		c = w.rec
	}
	m := w.message(i)
	v := run.Judge(c, at(w.rev), m)
	if v == run.AskQueue {
		if m.OtherMessage = run.No; w.find(int(c.Mesh.Work)) >= 0 {
			m.OtherMessage = run.Yes
		}
		v = run.Judge(c, at(w.rev), m)
	}
	switch v {
	case run.Mine, run.Moving:
		if c = c.Clone(); w.fault == forgetsSteps {
			c.Doc.Iteration = ""
		}
		out := run.Claim(c, v, m, terms(func(t *run.Terms) { t.MaxClaims, t.Version = 1000, "" }))
		if out.Verdict == run.Ended {
			run.End(c, run.Ending{Reply: fmt.Appendf(nil, "%s.%d", name(i), c.Mesh.Epoch), Error: &aaif.RunError{Code: string(out.End.Code)}})
		}
		if out.Capture {
			run.Capture(c, name(i), "m", noon)
		}
		x.phase, x.cp, x.rev, x.v = claiming, c, w.rev, out.Verdict
	case run.Ended:
		x.phase, x.cp, x.rev = ended, c, w.rev
	case run.Parked, run.Foreign:
		w.ack(i)
	case run.Older:
		w.w[i] = workerAt{}
	default:
		panic(v)
	}
	return true
}

// sweep queues a run that needs a message and has none.
func (w *world) sweep() bool {
	if w.rec == nil || w.kick > 0 || w.fault == noSweep {
		return false
	}
	if w.fault == wakesUnasked && w.rec.Doc.Status == aaif.RunAwaitingApproval {
		c := w.rec.Clone()
		run.Wake(c, "")
		return w.swap(c, w.rev)
	}
	need, _ := run.Needs(w.rec, noon)
	owner := slices.Index(names[:], w.rec.Mesh.Owner)
	if need != run.NeedsQueue || w.find(int(w.rec.Mesh.Work)) >= 0 || owner >= 0 && w.w[owner].phase != dead_ {
		return false
	}
	if w.rec.Mesh.Work == 0 && slices.ContainsFunc(w.msgs, func(m message) bool { return m.run }) {
		return false // Nats-Msg-Id: the message of this epoch is there
	}
	w.queue()
	c := w.rec.Clone()
	c.Mesh.Work = uint64(w.next)
	w.swap(c, w.rev)
	return true
}

// command applies a command where the run is. If its writer dies, a cancel queues the run
// and does not end it.
func (w *world) command(intent string, dies bool) bool {
	return w.order(run.Order{Envelope: intent + "." + strconv.Itoa(w.resumes), Intent: intent}, dies)
}

// order is command for any order.
func (w *world) order(o run.Order, dies bool) bool {
	intent := o.Intent
	if w.rec == nil || w.kick > 0 {
		return false
	}
	for i, x := range w.w {
		if x.phase == running && intent == intents.TaskCancel && run.Owns(w.rec, name(i), x.cp.Mesh.Epoch) {
			if dies {
				return false
			}
			c := w.rec.Clone() // its handler ends, and its worker writes so
			run.End(c, run.Ending{Reply: fmt.Appendf(nil, "cancelled.%d", c.Mesh.Epoch), Error: &aaif.RunError{Code: string(envelope.CodeCancelled)}})
			w.swap(c, w.rev)
			w.w[i].phase, w.w[i].cp, w.w[i].rev = ended, c, w.rev
			return true
		}
	}
	c, where := w.rec.Clone(), run.Silent
	for i, x := range w.w {
		if x.phase == running && w.rec.Mesh.Owner == name(i) {
			where = run.Here
		}
	}
	if w.fault == cancelsEnded && c.Terminal() {
		c.Doc.Status = aaif.RunRunning
	}
	if o.From = "human.ann"; w.fault == settlesAgain && len(c.Mesh.Effects) > 0 {
		c.Mesh.Effects[0].Status = state.EffectUnknown
	}
	out, err := run.Command(c, &o, where, noon)
	if err != nil {
		return false // refused
	}
	switch out.Do {
	case run.EndRun:
		c.Mesh.Epoch++
		run.End(c, run.Ending{Reply: fmt.Appendf(nil, "cancelled.%d", c.Mesh.Epoch), Error: &aaif.RunError{Code: string(envelope.CodeCancelled)}})
		if out.Requeue || w.find(int(c.Mesh.Work)) < 0 {
			w.queue() // so that its reply is published even if this process dies now
		}
		if dies {
			return true
		}
		w.swap(c, w.rev)
	case run.Applied:
		if out.Requeue && w.rec.Doc.Status == aaif.RunAwaitingApproval {
			w.calls.approved++
		}
		w.swap(c, w.rev)
		if out.Requeue {
			w.kick = w.rev
		}
		if intent == intents.TaskResume {
			w.resumes--
		}
	default:
		return intent == intents.TaskPause // a resume is given again
	}
	return true
}
