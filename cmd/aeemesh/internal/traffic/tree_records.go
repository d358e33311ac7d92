package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/orchestrate/progress"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/tree"
	"github.com/aeemesh/aeemesh/state"
)

// Limits of the records that are read in addition to the events.
const (
	maxTreeRuns  = 5000 // runs and answers of one tree
	treeLookups  = 16   // at the same time
	maxTreeDepth = 64   // from run to run
)

// leastCorr is how many characters a corr has at least.
const leastCorr = 8

// records reads the runs and answers of durable tasks whose end is not known
// from events. Without any event it searches for the run that is meant.
func (r *treeReader) records(ctx context.Context) error {
	m := r.subjects
	ring, err := r.app.Keyring(r.cmd)
	if err != nil {
		return err
	}
	runs := runs.NewStore(r.js, m, ring)
	replies := jetstream.NewReplies(r.js, m)
	if r.builder == nil {
		if err := r.findRun(ctx, runs, replies); err != nil || r.builder == nil {
			return err
		}
	}
	asked := map[string]bool{}
	for range maxTreeDepth {
		open := r.open(asked)
		if len(open) == 0 {
			break
		}
		found := lookUp(ctx, runs, replies, open)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, f := range found {
			if f.err != nil {
				return f.err
			}
			r.add(runs, f)
		}
	}
	return nil
}

// open returns the durable tasks to look up, each once.
func (r *treeReader) open(asked map[string]bool) (out []*tree.Node) {
	for _, n := range r.builder.Tree(time.Now()).Nodes {
		if asked[n.ID] || n.Entity == "" || len(asked) >= maxTreeRuns || n.State.Ended() && n.State != tree.Unknown && n.State != tree.Withdrawn {
			continue
		}
		if n.Lane != "durable" && n.State != tree.Unknown {
			continue
		}
		asked[n.ID] = true
		out = append(out, n)
	}
	return out
}

// treeRecord is the stored record of one task.
type treeRecord struct {
	task  string
	run   *state.Record
	reply *jetstream.Message
	err   error
}

// lookUp reads runs, or, where there is none, the stored answer.
func lookUp(ctx context.Context, runs *runs.Store, replies *jetstream.Replies, nodes []*tree.Node) []treeRecord {
	out := make([]treeRecord, len(nodes))
	places := make(chan struct{}, treeLookups)
	var all sync.WaitGroup
	for i, n := range nodes {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			out[i].task = n.ID
			run := n.Run
			if run == "" {
				run = state.RunID(n.Entity, n.ID)
			}
			rec, err := runs.Get(ctx, state.ID{Entity: n.Entity, Run: run})
			switch {
			case err == nil:
				out[i].run = &rec
				return
			case !errors.Is(err, state.ErrNotFound):
				out[i].err = err
				return
			}
			msg, err := replies.Last(ctx, n.Entity, n.ID)
			switch {
			case err == nil:
				out[i].reply = &msg
			case !errors.Is(err, jetstream.ErrNotFound):
				out[i].err = err
			}
		})
	}
	all.Wait()
	return out
}

// add adds a record to the tree.
func (r *treeReader) add(runs *runs.Store, f treeRecord) {
	switch {
	case f.run != nil:
		r.addRun(runs, *f.run)
	case f.reply != nil:
		if reply, err := envelope.ParseStored(f.reply.Data); err == nil && !r.forged(reply, f.reply.Time) {
			r.builder.Answer(f.task, f.reply.Time, reply)
		}
	}
}

func (r *treeReader) addRun(runs *runs.Store, rec state.Record) {
	c, err := runs.Codec.DecodeRecord(rec)
	if err == nil {
		r.checkpoint(c)
		return
	}
	if h, err := rec.Header(); err == nil {
		r.builder.Header(h)
	}
}

// checkpoint adds a checkpoint, with the team members that it lists as ended.
func (r *treeReader) checkpoint(c *state.Checkpoint) {
	if !r.builder.Checkpoint(c) {
		return
	}
	standing, err := progress.Of(c.Mesh.Plan)
	if err != nil || standing == nil {
		return
	}
	step := func(at time.Time, intent string, s intents.StepEvent) {
		s.Task, s.Run, s.Pattern = c.Mesh.TaskID, c.Doc.RunID, string(standing.Pattern)
		r.builder.Step(at, c.Mesh.Entity, intent, s)
	}
	if standing.Routed != "" {
		step(c.Mesh.StartedAt, intents.RunRouted, intents.StepEvent{Alias: standing.Routed})
	}
	for _, o := range standing.Outcomes {
		if o.TaskID == "" && !r.bare {
			continue // no task was sent; the events say so already
		}
		s := intents.StepEvent{Alias: o.Alias, Slot: &o.Slot, To: o.Entity, Child: o.TaskID, Durable: o.Durable, Try: o.Tries}
		step(o.Began, intents.RunStepStarted, s)
		s.DurationMS = o.MS
		if o.Usage != (progress.Usage{}) {
			s.Usage, _ = json.Marshal(o.Usage) // numbers always marshal
		}
		intent := intents.RunStepFinished
		if s.Error = o.Err; s.Error != nil {
			intent = intents.RunStepFailed
		}
		step(o.Began.Add(time.Duration(o.MS*float64(time.Millisecond))), intent, s)
	}
}

// findRun finds the run that is meant, and the runs of the same corr, if there
// are no events about them.
func (r *treeReader) findRun(ctx context.Context, runs *runs.Store, replies *jetstream.Replies) error {
	r.bare = true
	rec, h, err := runs.Find(ctx, r.wanted, "")
	switch {
	case err == nil:
		c, err := runs.Codec.DecodeRecord(rec)
		if err != nil {
			return err
		}
		task, err := c.ReadTask()
		if err != nil {
			return err
		}
		r.found(task.Corr, h.TaskID)
	case !errors.Is(err, state.ErrNotFound):
		return err
	}
	corr := r.wanted
	if r.builder != nil {
		corr = r.corr
	}
	documents := runs.Documents(ctx, notBefore(corr, time.Time{}), corr) // no run of it is older
	if r.builder == nil && len(r.wanted) < leastCorr {
		documents = func(func(state.Record, error) bool) {}
	}
	for rec, err := range documents {
		if err != nil {
			return err
		}
		c, err := runs.Codec.DecodeRecord(rec)
		if err != nil {
			continue
		}
		task, err := c.ReadTask()
		if err != nil || r.builder == nil && task.Corr != r.wanted || r.builder != nil && task.Corr != r.corr {
			continue
		}
		if r.builder == nil {
			r.found(task.Corr, "")
		}
		r.checkpoint(c)
	}
	if r.builder != nil {
		return nil
	}
	found, err := replies.FindOthers(ctx, r.wanted) // there is no run of it
	if err != nil || len(found) == 0 {
		if errors.Is(err, jetstream.ErrNotFound) {
			return nil
		}
		return err
	}
	msg, err := replies.Last(ctx, found[0], r.wanted)
	if err != nil {
		return err
	}
	reply, err := envelope.ParseStored(msg.Data)
	if err != nil {
		return err
	}
	if r.forged(reply, msg.Time) {
		return nil
	}
	r.found(reply.Corr, r.wanted)
	r.builder.Answer(r.wanted, msg.Time, reply)
	return nil
}
