package agents

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// modelTurn takes the model's next turn. A turn with tool calls is committed
// before the calls are made. A turn with the answer is stored with the next
// commit, which may be the one that ends the run.
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
	r.turns++
	r.messages = append(r.messages, res.Message)
	r.cut = res.Finish == model.FinishLength
	step := state.Step{Kind: state.StepModel, Name: res.Model, Detail: string(res.Finish) + instead(res.Tried), MS: time.Since(begun).Milliseconds()}
	if res.Finish != model.FinishContentFilter {
		if over, err := l.afterTurn(ctx, task, r, step); over || err != nil {
			return err
		}
	}
	switch {
	case res.Finish == model.FinishContentFilter:
		err = envelope.Errorf(envelope.CodeModel, "the model's provider withheld the answer")
	case len(res.Message.ToolCalls) == 0:
		r.phase = phaseAnswer
	case r.turns >= l.maxTurns: // the model would have no turn left to read the results
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

// instead lists the routes that failed before another one answered.
func instead(tried []model.Try) string {
	if len(tried) == 0 {
		return ""
	}
	return ", instead of " + triesText(tried)
}

// triesText lists routes that failed. The text contains nothing of what the
// providers said.
func triesText(tried []model.Try) string {
	words := make([]string, len(tried))
	for i, t := range tried {
		words[i] = t.String()
	}
	return strings.Join(words, "; ")
}

// saveTurn saves the progress after a turn; of the next turn nothing has been
// streamed yet.
func (r *progress) saveTurn(cp *state.Checkpoint) error {
	cp.Mesh.Told = ""
	return r.save(cp)
}

// steer turns the steering messages that wait for the next turn into user
// messages.
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

// errStopped is the cause with which a generation is cancelled when the run is
// asked to stop.
var errStopped = errors.New("the run is to stop")

// maxBreaks is how often a model may break off a turn after text was streamed,
// before the task fails. Each time the turn is retried at once, on another
// route if there is one.
const maxBreaks = 3

// generate generates a turn and streams it to a sender that asked for it. It
// ends with errStopped when the run is asked to stop; the text streamed so far
// stays valid. If a part of the turn was streamed before, the model continues
// it if it can; otherwise the turn is generated again and compared with that
// part.
func (l *loop) generate(ctx context.Context, task *mesh.Task, r *run) (*model.Response, error) {
	if err := task.Turn(ctx, r.turns+1); err != nil {
		return nil, err
	}
	ctx, release := stoppable(ctx, r.journal.StopRequested())
	defer release()
	req := l.request(r)
	req.Format = l.requestFormat(task)
	req.Messages = l.window(task, r, &req)
	req.Fit = l.fitter(r, &req)
	told := r.journal.SentText()
	for breaks, tries := 0, 0; ; {
		t := l.turnStream(task, told)
		p := l.books.within(task.TreeBudget()).beginTurn(ctx, task, &r.usage, l.inputTokens(&req), &req)
		req.Admit = p.admit
		res, err := p.during(func() (*model.Response, error) { return l.speak(ctx, &req, told, t) })
		switch {
		case err == nil:
			p.pay(res)
			l.receive(task, &req, res)
			return res, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case t.heard && breaks < maxBreaks && mayRestart(err, &req):
			breaks++
			told = t.has.String()
			e := task.Envelope
			l.log.Warn("model broke off, asked again", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "turn", r.turns+1, "route", lastOf(req.Avoid), "err", err)
		case l.again(ctx, task, r, &tries, err):
			if t.heard {
				told = t.has.String()
			}
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, model.ErrContextTooLong) || !l.shorten(task, r, &req):
			return nil, err
		}
	}
}

// mayRestart reports whether an error after streamed text is transient, and makes
// the next try avoid the failed route.
func mayRestart(err error, req *model.Request) bool {
	var failed *model.Error
	if !errors.As(err, &failed) || !failed.Kind.Retryable() {
		return false
	}
	if failed.Route != "" {
		req.Avoid = append(req.Avoid, failed.Route)
	}
	return true
}

// lastOf is the route that failed last; "" if the model has only one.
func lastOf(routes []string) string {
	if len(routes) == 0 {
		return ""
	}
	return routes[len(routes)-1]
}

// receive leaves out of a turn the provider's own data if no checkpoint can hold it, for instance
// thoughts with half a surrogate pair, and calls noteDropped.
func (l *loop) receive(task *mesh.Task, req *model.Request, res *model.Response) {
	l.noteDropped(req, res)
	if raw := jsontext.Value(res.Message.Provider); len(raw) > 0 && !raw.IsValid() {
		res.Message.Provider = nil
		e := task.Envelope
		l.log.Warn("a provider's own data left out of the turn: no checkpoint can hold it", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "provider", res.Provider, "model", res.Model)
	}
}

// noteDropped logs, once for each model that is asked for, which parameters of the document its
// provider does not take. An endpoint may give its model a new name in each answer.
func (l *loop) noteDropped(req *model.Request, res *model.Response) {
	if len(res.Dropped) == 0 {
		return
	}
	what := strings.Join(res.Dropped, ", ")
	if _, told := l.dropped.LoadOrStore(res.Provider+" "+req.Model+" "+what, true); !told {
		l.log.Warn("parameters left out for the model", "provider", res.Provider, "model", res.Model, "params", what)
	}
}

// quietly generates a turn that is not streamed.
func (l *loop) quietly(ctx context.Context, task *mesh.Task, r *run, req *model.Request) (*model.Response, error) {
	if err := task.Turn(ctx, r.turns+1); err != nil {
		return nil, err
	}
	ctx, release := stoppable(ctx, r.journal.StopRequested())
	defer release()
	p := l.books.within(task.TreeBudget()).beginTurn(ctx, task, &r.usage, l.inputTokens(req), req)
	req.Admit = p.admit
	res, err := p.during(func() (*model.Response, error) { return l.model.Generate(ctx, req, nil) })
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	p.pay(res)
	l.receive(task, req, res)
	return res, nil
}

// pause commits that the run stops in the middle of a turn, which parks it. It
// returns nil if the run may continue after all.
func (r *run) pause(ctx context.Context) error {
	return r.journal.Commit(ctx, state.Step{Kind: state.StepPause}, nil)
}

// speak generates one turn, or continues it if a part of it was streamed and
// the model can continue.
func (l *loop) speak(ctx context.Context, req *model.Request, told string, t *turnStream) (*model.Response, error) {
	if c, ok := l.model.(model.Continuer); ok && told != "" {
		res, err := c.Continue(ctx, req, told, t.onRest)
		if !errors.Is(err, model.ErrNotContinued) {
			return res, err
		}
	}
	res, err := l.model.Generate(ctx, req, t.onDelta)
	if err == nil {
		err = t.end()
	}
	return res, err
}

// stoppable returns a context that is cancelled with errStopped when stop is
// closed. The returned function must be called.
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

// exhausted is the error of a run that has used up its turns (AAIF,
// Orchestration Topology: max_iterations is a loop guard that the runtime MUST
// enforce).
func (l *loop) exhausted() error {
	return envelope.Errorf(envelope.CodeMaxIterations, "not done after %d turns of the model", l.maxTurns)
}

// maxScriptWords bounds, in bytes, the script error that is sent to the sender.
const maxScriptWords = 500

// modelFailure converts a model's failure: the sender learns the kind of
// failure, the log what the provider said.
func (l *loop) modelFailure(ctx context.Context, task *mesh.Task, r *run, err error) error {
	var failed *model.Error
	if ctx.Err() != nil || !errors.As(err, &failed) {
		return err
	}
	e := task.Envelope
	l.log.Warn("model turn failed", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "from", e.From, "turn", r.turns+1, "err", err)
	say := func(code envelope.Code, words string) *envelope.Error {
		if len(failed.Tries) > 0 { // names the routes and kinds of failure, without the providers' texts
			words = "no model answered: " + triesText(failed.Tries)
		}
		e := envelope.Errorf(code, "%s: %w", words, err)
		if failed.RetryAfter > 0 && failed.Kind.Retryable() { // without it, the document's retry policy sets the delay
			e = e.WithBackoff(failed.RetryAfter)
		}
		return e
	}
	switch failed.Kind {
	case model.ErrRateLimited:
		switch { // E_RATE_LIMITED promises that nothing was done
		case len(r.toolsUsed) > 0:
			return say(envelope.CodeUnavailable, "the model's provider is over its rate limit; tools have been called already")
		case r.merges:
			return say(envelope.CodeUnavailable, "the model's provider is over its rate limit; the swarm's members have been called already")
		}
		return say(envelope.CodeRateLimited, "the model's provider is over its rate limit")
	case model.ErrUnavailable:
		return say(envelope.CodeUnavailable, "the model's provider cannot be reached, or failed")
	case model.ErrAuth:
		return say(envelope.CodeModel, "the model's provider does not accept the agent's credentials")
	case model.ErrContextTooLong:
		return say(envelope.CodeModel, "the task does not fit the model's context window")
	}
	var script *builtin.ScriptError
	if errors.As(err, &script) { // for the author of the document to correct
		return say(envelope.CodeModel, "the offline model cannot play the document's script: "+clip.Text(script.Error(), maxScriptWords))
	}
	return say(envelope.CodeModel, "the model's provider refused the request")
}
