package run_test

import (
	"slices"
	"strconv"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// transfers are the run's moves to the other worker, and to another platform.
type transfers struct {
	moves, leaves, steers, aborts int // commands, left
	early                         int // commands at the other platform before it has accepted the run, left

	offer *offer // of the run to the other worker; nil: none was made
	there platform
}

// An offer is on its way to a worker, or was answered.
type offer struct {
	rev, seq, from int
	answer         answer
}

type answer byte

const (
	none answer = iota
	accepted
	refused
)

// A platform is the target of a transfer out of the mesh. What it does with the run is not
// explored: once it has accepted the run, it ends it at some time.
type platform struct {
	phase   state.Phase // "", staged, accepted or refused
	cp      *state.Checkpoint
	ended   bool
	unstage bool // the source's refusal is on its way
}

// transferMoves are the commands that begin, disturb and abort transfers, and what the
// targets do.
func (w *world) transferMoves(add func(string, func(*world) bool)) {
	t := &w.transfers
	order := func(n *world, o run.Order) bool {
		t := n.transfers
		o.Envelope = o.Intent + "." + strconv.Itoa(t.moves+t.leaves+t.steers+t.aborts)
		return n.order(o, false)
	}
	if t.moves > 0 {
		add("a move to the other worker", func(n *world) bool {
			n.transfers.moves--
			return order(n, run.Order{Intent: intents.TaskMigrate, To: intents.MigrateAny, MoveID: "m"})
		})
	}
	if t.leaves > 0 {
		add("a move to the other platform", func(n *world) bool {
			n.transfers.leaves--
			return order(n, run.Order{Intent: intents.TaskMigrate, To: paris, MoveID: "l"})
		})
	}
	if t.steers > 0 {
		add("a steer", func(n *world) bool {
			n.transfers.steers--
			return order(n, run.Order{Intent: intents.TaskSteer, Text: "be kind"})
		})
	}
	if t.aborts > 0 {
		add("an abort", func(n *world) bool {
			n.transfers.aborts--
			return order(n, run.Order{Intent: intents.TaskMigrate, Abort: true})
		})
	}
	for i := range w.w {
		if o := t.offer; o != nil && o.answer == none && o.from != i && w.w[i].phase == idle {
			add(name(i)+" reads the offer", func(n *world) bool { n.accept(i); return true })
		}
		x := &w.w[i]
		if x.phase == halted && x.sent != "" && run.Next(x.cp.Mesh.Migration) == run.MoveToWorker && (t.offer == nil || t.offer.answer != refused) {
			add(name(i)+" gets no answer", func(n *world) bool { return n.back(i) })
		}
		if x.phase == halted && x.sent == "" && run.Next(x.cp.Mesh.Migration) == run.MoveToRemote && x.cp.Mesh.Migration.Target != "" {
			add(name(i)+" cannot send the run", func(n *world) bool { return n.back(i) })
		}
		if x.phase == halted && x.sent != "" && run.Next(x.cp.Mesh.Migration) == run.MoveToRemote {
			add(name(i)+" hears nothing of the target", func(n *world) bool { n.transfers.there.unstage = true; return n.back(i) })
		}
		if x.phase == halted && t.there.phase == state.PhaseStaged && run.Next(x.cp.Mesh.Migration) == run.MoveDecide {
			add(name(i)+" does not hear the verdict", func(n *world) bool {
				n.transfers.there.phase = state.PhaseAccepted
				return w.fault != takesBack || n.back(i)
			})
		}
		if x.phase == running && x.calling && x.rev > 0 {
			add(name(i)+" is captured in its call", func(n *world) bool {
				if n.rev != x.rev {
					return false
				}
				c := n.w[i].cp.Clone()
				if !run.CaptureNow(c) {
					return false
				}
				run.Capture(c, name(i), "m", noon)
				n.swap(c, n.rev)
				n.w[i].cp, n.w[i].rev, n.w[i].phase, n.w[i].calling = c, n.rev, halted, false
				return true
			})
		}
	}
	if t.there.phase == state.PhaseStaged {
		add("the other platform deletes what it has staged", func(n *world) bool { n.transfers.there.refuse(); return true })
	}
	if t.early > 0 && t.there.phase == state.PhaseStaged {
		for _, o := range []run.Order{{Intent: intents.TaskMigrate, Abort: true}, {Intent: intents.TaskCancel}, {Intent: intents.TaskPause}, {Intent: intents.TaskSteer, Text: "be kind"}} {
			add("an early "+o.Intent+" at the other platform", func(n *world) bool { n.transfers.early--; return n.early(o) })
		}
	}
	if t.there.unstage {
		add("the refusal reaches the other platform", func(n *world) bool {
			n.transfers.there.unstage = false
			n.transfers.there.refuse()
			return true
		})
	}
	if t.there.phase == state.PhaseAccepted && !t.there.ended {
		add("the other platform ends the run", func(n *world) bool { n.transfers.there.ended = true; return true })
	}
}

// refuse ends a handoff that was not accepted.
func (p *platform) refuse() {
	if p.phase != state.PhaseAccepted {
		p.phase, p.cp = state.PhaseRefused, nil
	}
}

// prepared is a run that was received, as the other platform stores it before it accepts the run.
func prepared(sent *state.Checkpoint) *state.Checkpoint {
	c := sent.Outbound("berlin", "paris", "")
	c.Mesh.Migration.Phase = state.PhaseStaged
	return c
}

// early gives a command to the other platform, which has not accepted the run yet.
func (w *world) early(o run.Order) bool {
	c := w.transfers.there.cp.Clone()
	o.Envelope, o.From = "early", "human.ann"
	if w.fault == obeysEarly {
		c.Mesh.Migration.Phase = state.PhaseCaptured
	}
	out, err := run.Command(c, &o, run.Silent, noon)
	switch {
	case err != nil || out.Do != run.Applied && out.Do != run.EndRun:
		return false
	case out.Do == run.EndRun:
		run.End(c, run.Ending{Reply: []byte("cancelled there"), Error: &aaif.RunError{Code: string(envelope.CodeCancelled)}})
	}
	w.transfers.there.cp = c
	return true
}

// captures captures a run whose handler has stopped for a move.
func (w *world) captures(i int, c *state.Checkpoint) {
	if c.Doc.Status == aaif.RunMigrating {
		run.Capture(c, name(i), "m", noon)
	}
}

// advance writes a change of a run that stands still, as mesh does: on a conflict it reads
// again what it still owns.
func (w *world) advance(i int, change func(*state.Checkpoint)) (written bool) {
	x := &w.w[i]
	c := x.cp.Clone()
	change(c)
	switch {
	case w.swap(c, x.rev):
		x.cp, x.rev = c, w.rev
		return true
	case run.Owns(w.rec, name(i), x.cp.Mesh.Epoch):
		x.cp, x.rev = w.rec, w.rev
	default: // lost: it neither acks nor naks
		w.w[i] = workerAt{}
	}
	return false
}

// move lets a worker do the next thing with a run that has stopped for a move.
func (w *world) move(i int) bool {
	x, t := &w.w[i], &w.transfers
	about := x.cp.Mesh.Migration
	switch run.Next(about) {
	case run.MoveToWorker:
		switch {
		case x.sent == "":
			x.sent = x.cp.Doc.StateID
			t.offer = &offer{rev: x.rev, seq: x.seq, from: i}
		case t.offer == nil || t.offer.answer == none:
			return false
		case t.offer.answer == refused:
			return w.back(i)
		default:
			w.w[i] = workerAt{} // the other worker has the run, and its message
		}
	case run.MoveToRemote:
		switch {
		case about.Target == "":
			w.advance(i, func(c *state.Checkpoint) {
				run.Advance(c, state.PhaseCaptured, noon)
				c.Mesh.Migration.Target = "paris"
			})
		case x.sent == "" && t.there.phase != "": // a token is good for one handoff
			return w.back(i)
		case x.sent == "":
			x.sent = x.cp.Doc.StateID
			t.there.phase, t.there.cp = state.PhaseStaged, prepared(x.cp)
		case x.sent != x.cp.Doc.StateID && w.fault != sendsOld:
			t.there.unstage = true
			return w.back(i)
		default:
			w.advance(i, func(c *state.Checkpoint) { run.Advance(c, state.PhaseCommitted, noon) })
		}
	case run.MoveDecide:
		switch t.there.phase {
		case state.PhaseStaged:
			t.there.phase = state.PhaseAccepted
		case state.PhaseAccepted:
			w.advance(i, func(c *state.Checkpoint) { run.Advance(c, state.PhaseRelaying, noon) })
		case state.PhaseRefused:
			return w.back(i)
		default: // it does not know the handoff: it is asked to refuse it
			t.there.phase = state.PhaseRefused
		}
	case run.MoveRelay:
		if !t.there.ended {
			return false
		}
		if w.advance(i, func(c *state.Checkpoint) {
			run.End(c, run.Ending{Reply: []byte("there"), Target: "paris"})
		}) {
			x.phase = ended
		}
	}
	return true
}

// back takes a run back whose move has failed.
func (w *world) back(i int) bool {
	var runs bool
	if !w.advance(i, func(c *state.Checkpoint) { runs = run.Back(c, name(i), noon, "it did not move") }) {
		return true
	}
	x := &w.w[i]
	if x.phase, x.sent = parked, ""; runs {
		x.phase = running
	}
	return true
}

// accept lets a worker answer an offer: it claims the run if it is as it was offered.
func (w *world) accept(i int) {
	o := *w.transfers.offer
	w.transfers.offer = &o
	if c := w.rec.Clone(); w.fault == acceptsLate || w.rev == o.rev && run.Offered(c) {
		run.Accept(c, name(i), uint64(o.seq), noon)
		w.swap(c, w.rev)
		if n := w.find(o.seq); n >= 0 && w.msgs[n].holder == o.from {
			w.msgs[n].holder = i
		}
		w.w[i] = workerAt{phase: running, seq: o.seq, taken: w.rev, cp: c, rev: w.rev}
		o.answer = accepted
		return
	}
	o.answer = refused
}

// brokenMove says what is wrong with where the run is.
func brokenMove(_, to *world) string {
	t, c := &to.transfers.there, to.rec
	if t.cp != nil && (t.cp.Doc.Status != aaif.RunMigrating || slices.Contains(t.cp.Mesh.Commands, "early")) {
		return "changed before it is accepted"
	}
	if t.phase != state.PhaseAccepted {
		return ""
	}
	m := &c.Mesh
	switch away := c.Doc.Status == aaif.RunMigrating && m.Migration.Away(); {
	case c.Terminal() && t.ended && string(m.Reply) == "there":
	case !away:
		return "active in two systems"
	}
	was, _ := effect(t.cp)
	is, _ := effect(c)
	if steps(t.cp) != steps(c) || was != is || !slices.Equal(t.cp.Mesh.Commands, m.Commands) {
		return "an old version is moved"
	}
	return ""
}
