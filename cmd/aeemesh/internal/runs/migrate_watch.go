package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// A movement is one transfer of a run, as its records show it.
type movement struct {
	app     *session.App
	id      state.ID
	runs    *Store
	replies *jetstream.Replies

	to     string // the destination that was asked for
	move   string // the id of the transfer
	taskID string
	last   state.Phase
	target string
}

var (
	errStandsStill = errors.New("the run waits")
	errMoved       = errors.New("the run has moved")
)

// phaseLine is the JSON output of "migrate --json" for each phase.
type phaseLine struct {
	Run    string      `json:"run"`
	Phase  state.Phase `json:"phase"`
	At     time.Time   `json:"at"`
	To     string      `json:"to,omitempty"`
	Detail string      `json:"detail,omitempty"`
}

// follow prints the phases until the run is at its target, and returns nil, or
// until the transfer has failed.
func (m *movement) follow(ctx context.Context) error {
	shown := uint64(0)
	err := m.runs.eachChange(ctx, m.id, func(history []state.Record) error {
		m.learn(history)
		for _, rec := range history {
			if rec.Revision <= shown {
				continue
			}
			shown = rec.Revision
			if err := m.phase(rec, rec.Revision == history[len(history)-1].Revision); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errMoved):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// learn takes the id of the transfer from the newest record that has one to this
// destination. A newer record may have a transfer that another sender has requested.
func (m *movement) learn(history []state.Record) {
	for _, rec := range slices.Backward(history) {
		if m.move != "" {
			return
		}
		if c, err := m.runs.decode(rec); err == nil && c.Mesh.Migration != nil && c.Mesh.Migration.To == m.to {
			m.move = c.Mesh.Migration.ID
		}
	}
}

// phase prints the phase of one record; newest says that no record follows it.
func (m *movement) phase(rec state.Record, newest bool) error {
	c, err := m.runs.decode(rec)
	if err != nil && !newest {
		return nil // its document may be lost
	}
	if err != nil {
		return err
	}
	g := c.Mesh.Migration
	m.taskID = c.Mesh.TaskID
	if g == nil || g.ID != m.move {
		if newest && g != nil && m.move != "" && (g.Phase == state.PhaseAsked || c.Doc.Status == aaif.RunMigrating) {
			return outcome.Conflict("the run is being moved to %s now, as %s has asked", term.OneLine(g.To), term.OneLine(g.By))
		}
		if newest && c.Terminal() {
			return fmt.Errorf("the run ended before it could move: it is %s", c.Doc.Status)
		}
		return nil
	}
	if g.Phase != m.last {
		m.last = g.Phase
		m.tell(rec, g)
	}
	switch {
	case g.Phase == state.PhaseMoved, g.Phase == state.PhaseRelaying:
		m.target = g.Target
		return errMoved
	case g.Phase == state.PhaseAborted:
		return outcome.Hinted(fmt.Errorf("the run did not move: %s", g.Detail), "It goes on where it was. docs/migration.md says what each refusal means.")
	case c.Terminal():
		return fmt.Errorf("the run ended before it could move: it is %s", c.Doc.Status)
	case g.Phase == state.PhaseAsked && state.Parked(c.Doc.Status) && c.Doc.Status != aaif.RunMigrating && newest:
		return errStandsStill
	}
	return nil
}

// phaseWords describe the phases for people.
var phaseWords = map[state.Phase]string{
	state.PhaseAsked:     "asked: it stops at its next step",
	state.PhaseCaptured:  "captured: it stands still",
	state.PhaseCommitted: "committed: its source has released it",
	state.PhaseRelaying:  "accepted: it runs there, and its replies come back",
	state.PhaseMoved:     "moved: it has a new worker",
	state.PhaseAborted:   "aborted",
}

func (m *movement) tell(rec state.Record, g *state.Migration) {
	t := m.app.Term
	if t.JSON {
		// If the terminal is gone, the command ends anyway.
		_ = t.Object(phaseLine{Run: m.id.Run, Phase: g.Phase, At: rec.Time, To: g.Target, Detail: g.Detail})
		return
	}
	t.Say("%s  %s", rec.Time.Local().Format("15:04:05.000"), phaseWords[g.Phase])
}

// pauseLine is the last line of the output of "migrate --json".
type pauseLine struct {
	Run     string    `json:"run"`
	To      string    `json:"to"`
	PauseMS float64   `json:"pause_ms"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
}

// tellPause waits for the first activity at the target, and prints how long the
// run stood still.
func (m *movement) tellPause(ctx context.Context) error {
	t := m.app.Term
	from, captured, err := m.lastAtSource(ctx)
	if err != nil {
		return err
	}
	until, err := m.firstAtTarget(ctx, captured)
	if err != nil {
		if !t.JSON {
			t.Good("run %s is with %s; it has done no step there yet", ShortRun(m.id.Run), m.target)
			return nil
		}
		return t.Object(phaseLine{Run: m.id.Run, Phase: m.last, To: m.target})
	}
	pause := until.Sub(from)
	if t.JSON {
		return t.Object(pauseLine{Run: m.id.Run, To: m.target, PauseMS: float64(pause.Microseconds()) / 1000, From: from, Until: until})
	}
	said := "it stood still for %v"
	if m.last == state.PhaseRelaying { // only the replies of its steps on the other platform are visible here
		said = "its first reply from there came %v after its last step here"
	}
	t.Good("run %s is with %s; "+said, ShortRun(m.id.Run), m.target, pause.Round(100*time.Microsecond))
	return nil
}

// lastAtSource returns the time of the last visible activity at the source, and
// the time at which the run was captured.
func (m *movement) lastAtSource(ctx context.Context) (last, captured time.Time, err error) {
	history, err := m.runs.History(ctx, m.id)
	if err != nil {
		return last, captured, err
	}
	last, captured = m.atSource(history)
	for msg, err := range m.replies.Read(ctx, m.id.Entity, m.taskID, 0) {
		if err != nil {
			return last, captured, err
		}
		if !msg.Time.After(captured) && msg.Time.After(last) {
			last = msg.Time
		}
	}
	if last.IsZero() {
		last = captured
	}
	return last, captured, nil
}

// atSource is lastAtSource by the records alone. It goes on after one that cannot be read.
func (m *movement) atSource(history []state.Record) (last, captured time.Time) {
	for _, rec := range history {
		c, err := m.runs.decode(rec)
		if err != nil {
			continue // its document may be lost
		}
		if g := c.Mesh.Migration; g != nil && g.ID == m.move && g.Phase != state.PhaseAsked {
			return last, rec.Time
		}
		if !marginal(c.Mesh.Step.Kind) {
			last = rec.Time
		}
	}
	return last, captured
}

// marginal reports whether a step is not the run's own.
func marginal(k state.StepKind) bool {
	switch k {
	case state.StepClaim, state.StepMigrate, state.StepPause, state.StepResume, state.StepSteer:
		return true
	}
	return false
}

// firstAtTarget returns the time of the first visible activity at the target.
func (m *movement) firstAtTarget(ctx context.Context, captured time.Time) (time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wakers sync.WaitGroup
	defer wakers.Wait()
	defer cancel()
	wake := make(chan struct{}, 1)
	wakers.Go(func() {
		for range m.replies.Follow(ctx, m.id.Entity, m.taskID, jetstream.FollowOptions{}) {
			pause.Wake(wake)
		}
	})
	wakers.Go(func() { _ = jetstream.WatchRun(ctx, m.runs.Store, m.id, func(state.Record) { pause.Wake(wake) }) })
	for {
		at, err := m.firstActivity(ctx, captured)
		if !at.IsZero() || err != nil {
			return at, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// firstActivity returns the time of the first message that was stored after the
// run was captured; zero if there is none.
func (m *movement) firstActivity(ctx context.Context, captured time.Time) (first time.Time, err error) {
	seen := func(at time.Time) {
		if at.After(captured) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for msg, err := range m.replies.Read(ctx, m.id.Entity, m.taskID, 0) {
		if err != nil {
			return first, err
		}
		seen(msg.Time)
	}
	history, err := m.runs.History(ctx, m.id)
	if err != nil {
		return first, err
	}
	for _, rec := range history {
		if c, err := m.runs.decode(rec); err == nil && !marginal(c.Mesh.Step.Kind) {
			seen(rec.Time)
		}
	}
	return first, nil
}
