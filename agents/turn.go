package agents

import (
	"context"
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// modelTurn asks the model for its next turn. One that asks for tools is
// committed before they are called; one that is the answer rides with the next
// commit, which is the run's last where nothing else is to be done.
func (l *loop) modelTurn(ctx context.Context, task *mesh.Task, r *run) error {
	if r.turns >= l.maxTurns {
		return l.exhausted()
	}
	if len(r.journal.Steering()) > 0 {
		if err := r.steer(ctx); err != nil {
			return err
		}
	}
	begun := time.Now()
	res, err := l.generate(ctx, task, r)
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, errStopped):
		return r.pause(ctx)
	case err != nil:
		return l.modelFailure(ctx, task, r, err)
	}
	r.count(res)
	r.messages = append(r.messages, res.Message)
	r.cut = res.Finish == model.FinishLength
	step := state.Step{Kind: state.StepModel, Name: res.Model, Detail: string(res.Finish), MS: time.Since(begun).Milliseconds()}
	switch {
	case res.Finish == model.FinishContentFilter:
		err = envelope.Errorf(envelope.CodeModel, "the model's provider withheld the answer")
	case len(res.Message.ToolCalls) == 0:
		r.phase = phaseAnswer
	case r.turns >= l.maxTurns: // nobody would read what the tools say
		err = l.exhausted()
	default:
		r.phase, r.calls = phaseTools, r.newCalls(task, res.Message.ToolCalls)
		return r.write(ctx, step, func(cp *state.Checkpoint) error {
			cp.Mesh.Told = ""
			return r.save(cp)
		})
	}
	if err := r.stage(step, (*progress).saveTurn); err != nil {
		return err
	}
	return err
}

// count adds a turn to the books.
func (r *progress) count(res *model.Response) {
	r.turns++
	r.usage.ModelCalls++
	r.usage.InputTokens += res.Usage.InputTokens
	r.usage.OutputTokens += res.Usage.OutputTokens
}

// saveTurn is save after a turn: of the next one nothing is told yet.
func (r *progress) saveTurn(cp *state.Checkpoint) error {
	cp.Mesh.Told = ""
	return r.save(cp)
}

// steer makes messages of the messages that somebody put in for the next turn.
func (r *run) steer(ctx context.Context) error {
	before := len(r.messages)
	return r.write(ctx, state.Step{Kind: state.StepSteer}, func(cp *state.Checkpoint) error {
		r.messages = r.messages[:before]
		for _, s := range cp.Mesh.Steering {
			r.messages = append(r.messages, model.User(s.Text))
		}
		cp.Mesh.Steering = nil
		return r.save(cp)
	})
}

// errStopped is the cause of a generation's end that the run was asked for.
var errStopped = errors.New("the run is to stop")

// generate asks the model for a turn, and tells it to who asked for a stream.
// It ends with errStopped when the run is asked to stop: what was told stays
// told. A turn of which a part was told is continued where the model can, or
// generated again and matched with it.
func (l *loop) generate(ctx context.Context, task *mesh.Task, r *run) (*model.Response, error) {
	ctx, release := stoppable(ctx, r.journal.Asked())
	defer release()
	req := l.request(r)
	req.Format = l.requestFormat(task)
	req.Messages = l.window(task, r, &req)
	told := r.journal.Told()
	for {
		res, err := l.speak(ctx, task, &req, told)
		switch {
		case err == nil:
			return res, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, model.ErrContextTooLong) || !l.shorten(task, r, &req):
			return nil, err
		}
	}
}

// quietly asks the model for a turn that nobody is told of.
func (l *loop) quietly(ctx context.Context, r *run, req *model.Request) (*model.Response, error) {
	ctx, release := stoppable(ctx, r.journal.Asked())
	defer release()
	res, err := l.model.Generate(ctx, req, nil)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return res, err
}

// pause commits that the run stops in the middle of a turn, which parks it. It
// returns nil where it may go on after all.
func (r *run) pause(ctx context.Context) error {
	return r.journal.Commit(ctx, state.Step{Kind: state.StepPause}, nil)
}

// speak generates one turn.
func (l *loop) speak(ctx context.Context, task *mesh.Task, req *model.Request, told string) (*model.Response, error) {
	if c, ok := l.model.(model.Continuer); ok && told != "" {
		res, err := c.Continue(ctx, req, told, l.onRest(task))
		if !errors.Is(err, model.ErrNotContinued) {
			return res, err
		}
	}
	onDelta, end := l.onDelta(task, told)
	res, err := l.model.Generate(ctx, req, onDelta)
	if err == nil {
		err = end()
	}
	return res, err
}

// stoppable is a context that ends with errStopped when stop is closed. The
// function that comes with it must be called.
func stoppable(ctx context.Context, stop <-chan struct{}) (context.Context, func()) {
	if stop == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-stop:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-over }
}

// exhausted ends a run that is still not done (AAIF, Orchestration Topology:
// max_iterations is a loop guard that the runtime MUST enforce).
func (l *loop) exhausted() error {
	return envelope.Errorf(envelope.CodeMaxIterations, "not done after %d turns of the model", l.maxTurns)
}

// modelFailure says to the sender what kind of failure it was, and to the log
// what the provider said.
func (l *loop) modelFailure(ctx context.Context, task *mesh.Task, r *run, err error) error {
	var failed *model.Error
	if ctx.Err() != nil || !errors.As(err, &failed) {
		return err
	}
	e := task.Envelope
	l.log.Warn("model turn failed", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "turn", r.turns+1, "err", err)
	wait := failed.RetryAfter
	if wait <= 0 {
		wait = modelBackoff
	}
	switch failed.Kind {
	case model.ErrRateLimited:
		// E_RATE_LIMITED promises that nothing was done.
		if len(r.toolsUsed) == 0 {
			return envelope.Errorf(envelope.CodeRateLimited, "the model's provider is over its rate limit: %w", err).WithBackoff(wait)
		}
		return envelope.Errorf(envelope.CodeUnavailable, "the model's provider is over its rate limit; tools have been called already: %w", err).WithBackoff(wait)
	case model.ErrUnavailable:
		return envelope.Errorf(envelope.CodeUnavailable, "the model's provider cannot be reached, or failed: %w", err).WithBackoff(wait)
	case model.ErrAuth:
		return envelope.Errorf(envelope.CodeModel, "the model's provider does not accept the agent's credentials: %w", err)
	case model.ErrContextTooLong:
		return envelope.Errorf(envelope.CodeModel, "the task does not fit the model's context window: %w", err)
	}
	return envelope.Errorf(envelope.CodeModel, "the model's provider refused the request: %w", err)
}

// modelBackoff is what senders are advised to wait where the provider gives no
// advice.
const modelBackoff = 2 * time.Second
