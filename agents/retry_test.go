package agents

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// AAIF, Runtime Configuration: max_retries and retry_backoff, for transient
// failures only, as far as the deadline allows.
func TestALiveTurnIsRetriedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	down, refused := model.Errorf(model.ErrUnavailable, "down"), model.Errorf(model.ErrBadRequest, "no")
	slow := &model.Error{Kind: model.ErrRateLimited, RetryAfter: 20 * time.Second}
	for name, c := range map[string]struct {
		policy   mesh.RetryPolicy
		fails    []*model.Error
		deadline time.Duration
		asked    int
		least    time.Duration // that it takes
		most     time.Duration
		ok       bool
	}{
		"not declared":         {mesh.RetryPolicy{}, []*model.Error{down}, 0, 1, 0, 0, false},
		"none":                 {mesh.RetryPolicy{Max: 0, Backoff: mesh.BackoffFixed}, []*model.Error{down}, 0, 1, 0, 0, false},
		"fixed":                {mesh.RetryPolicy{Max: 3, Backoff: mesh.BackoffFixed}, []*model.Error{down, down, down}, 0, 4, 1500 * time.Millisecond, 3 * time.Second, true},
		"linear":               {mesh.RetryPolicy{Max: 3, Backoff: mesh.BackoffLinear}, []*model.Error{down, down, down}, 0, 4, 3 * time.Second, 6 * time.Second, true},
		"exponential":          {mesh.RetryPolicy{Max: 4}, []*model.Error{down, down, down, down}, 0, 5, 7500 * time.Millisecond, 15 * time.Second, true},
		"too many":             {mesh.RetryPolicy{Max: 2}, []*model.Error{down, down, down}, 0, 3, 1500 * time.Millisecond, 3 * time.Second, false},
		"what does not pass":   {mesh.RetryPolicy{Max: 3}, []*model.Error{refused}, 0, 1, 0, 0, false},
		"the provider's word":  {mesh.RetryPolicy{Max: 1}, []*model.Error{slow}, 0, 2, 20 * time.Second, 20 * time.Second, true},
		"no time left for it":  {mesh.RetryPolicy{Max: 1}, []*model.Error{slow}, 10 * time.Second, 1, 0, 0, false},
		"time enough for that": {mesh.RetryPolicy{Max: 1}, []*model.Error{down}, 10 * time.Second, 2, 500 * time.Millisecond, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkbench(t, Options{})
				asked := 0
				w.loop.model = failing(&asked, c.fails...)
				w.loop.retries = c.policy
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				begun := time.Now()
				_, err := w.loop.work(ctx, w.task, &run{journal: live{}, input: w.task.Envelope.Payload}, nil)
				took := time.Since(begun)
				if (err == nil) != c.ok || asked != c.asked || took < c.least || took > c.most {
					t.Errorf("%v, asked %d times in %v", err, asked, took)
				}
				if !c.ok && errors.Is(err, context.DeadlineExceeded) {
					t.Error("the deadline was waited for")
				}
			})
		})
	}
}

// A question of its team's is a turn of the model's like any other.
func TestAQuestionOfATeamIsRetriedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	question := orchestrate.Question{Asked: "Who?", Schema: []byte(`{"type": "object", "required": ["to"]}`), Bare: "to"}
	for retries, asks := range map[int]int{0: 1, 1: 2, 2: 3} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkbench(t, Options{})
			asked := 0
			w.loop.model = failing(&asked, model.Errorf(model.ErrUnavailable, "down"), model.Errorf(model.ErrUnavailable, "down"))
			w.loop.retries = mesh.RetryPolicy{Max: retries}
			answer, err := newAgentModel(w.loop, w.task).Ask(t.Context(), question)
			if asked != asks || (err == nil) != (retries == 2) || err == nil && string(answer) != `{"to":"done"}` {
				t.Errorf("max_retries %d: asked %d times: %s, %v", retries, asked, answer, err)
			}
		})
	}
}

// The questions of an agent's team are turns of its model: max_iterations bounds them, and
// checkpoints count them (AAIF, Orchestration Topology and Agent State Document).
func TestTheQuestionsOfATeamAreTurns(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{}) // max_iterations is 5
	asked := 0
	w.loop.model = failing(&asked)
	m := newAgentModel(w.loop, w.task)
	question := orchestrate.Question{Asked: "Who?", Schema: []byte(`{"type": "object", "required": ["to"]}`), Bare: "to"}
	for range 5 {
		if _, err := m.Ask(t.Context(), question); err != nil {
			t.Fatal(err)
		}
	}
	var e *envelope.Error
	if _, err := m.Ask(t.Context(), question); !errors.As(err, &e) || e.Code != envelope.CodeMaxIterations || asked != 5 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	cp := w.begin()
	if m.Save(cp); cp.Doc.Iteration != "5" {
		t.Errorf("the checkpoint has iteration %s", cp.Doc.Iteration)
	}
	next := newAgentModel(w.loop, w.task)
	next.restore(cp)
	if _, err := next.Ask(t.Context(), question); !errors.As(err, &e) || e.Code != envelope.CodeMaxIterations || asked != 5 {
		t.Errorf("after a restore: asked %d times: %v", asked, err)
	}
}

// On the durable lane the mesh retries, and the loop does not.
func TestADurableTurnIsLeftToTheMesh(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{})
	asked := 0
	w.loop.model, w.loop.retries = failing(&asked, model.Errorf(model.ErrUnavailable, "down")), mesh.RetryPolicy{Max: 3}
	if _, err := w.work(newPaper(t, w.begin())); err == nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// The turn for a result's evidence is a turn of the model's like any other. Its transient failure
// says nothing of the confidence in the answer.
func TestTheTurnForEvidenceIsRetriedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	busy, refused := model.Errorf(model.ErrRateLimited, "429"), model.Errorf(model.ErrBadRequest, "no")
	sure, evidence := envelope.Requirements{HasMinConfidence: true, MinConfidence: 0.8}, envelope.Requirements{DecisionEvidence: envelope.EvidenceMinimal}
	for name, c := range map[string]struct {
		requires envelope.Requirements
		retries  int
		fails    []*model.Error
		asked    int // for the answer, and then for its evidence
		code     envelope.Code
	}{
		"again":                         {sure, 2, []*model.Error{busy, busy}, 4, ""},
		"too often":                     {sure, 1, []*model.Error{busy, busy}, 3, envelope.CodeRateLimited},
		"unavailable":                   {sure, 0, []*model.Error{model.Errorf(model.ErrUnavailable, "503")}, 2, envelope.CodeUnavailable},
		"what does not pass":            {sure, 2, []*model.Error{refused}, 2, envelope.CodeRequires},
		"evidence, again":               {evidence, 1, []*model.Error{busy}, 3, ""},
		"evidence, described by itself": {evidence, 0, []*model.Error{busy}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkbench(t, Options{})
				w.task.Requires, w.loop.retries = c.requires, mesh.RetryPolicy{Max: c.retries}
				asked := 0
				w.loop.model = accounting(&asked, c.fails...)
				payload, err := w.loop.work(t.Context(), w.task, &run{journal: live{}, input: w.task.Envelope.Payload}, nil)
				var e *envelope.Error
				if errors.As(err, &e); asked != c.asked || c.code == "" && err != nil || c.code != "" && (e == nil || e.Code != c.code || e.Retryable == (c.code == envelope.CodeRequires)) {
					t.Errorf("%s, %v, asked %d times", payload, err, asked)
				}
			})
		})
	}
}

// The mesh retries a durable task whose evidence could not be had: the answer is kept, and the
// model is asked for the evidence alone.
func TestADurableTurnForEvidenceIsLeftToTheMesh(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{})
	w.task.Requires = envelope.Requirements{HasMinConfidence: true, MinConfidence: 0.8}
	asked := 0
	w.loop.model, w.loop.retries = accounting(&asked, model.Errorf(model.ErrRateLimited, "429")), mesh.RetryPolicy{Max: 3}
	first := newPaper(t, w.begin())
	var e *envelope.Error
	if payload, err := w.work(first); !errors.As(err, &e) || e.Code != envelope.CodeRateLimited || asked != 2 {
		t.Fatalf("%s, %v, asked %d times", payload, err, asked)
	}
	if payload, err := w.work(newPaper(t, first.last)); err != nil || payload != `{"text":"done"}` || asked != 3 {
		t.Errorf("%s, %v, asked %d times", payload, err, asked)
	}
}

// accounting is a model that answers, and that fails so when it is first asked to account for the
// answer.
func accounting(asked *int, errs ...*model.Error) model.Model {
	return model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
		*asked++
		said := "done"
		if n := *asked - 2; n >= 0 {
			if n < len(errs) {
				return nil, errs[n]
			}
			said = `{"decision":"done","reason_summary":"all is well","confidence":0.9}`
		}
		return &model.Response{Message: model.Message{Role: model.RoleAssistant, Content: said}, Finish: model.FinishStop}, nil
	})
}

// failing is a model that fails so, once with each error, and then answers.
func failing(asked *int, errs ...*model.Error) model.Model {
	return model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
		*asked++
		if n := *asked - 1; n < len(errs) {
			return nil, errs[n]
		}
		return &model.Response{Message: model.Message{Role: model.RoleAssistant, Content: "done"}, Finish: model.FinishStop}, nil
	})
}

// A run that is asked to stop while its model accounts for the answer stops there. The next
// owner asks for the evidence again.
func TestARunStopsInTheTurnForEvidence(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{})
	w.task.Requires = envelope.Requirements{HasMinConfidence: true, MinConfidence: 0.8}
	asked := 0
	account := accounting(&asked)
	first := newPaper(t, w.begin())
	w.loop.model = model.Func(func(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
		if asked == 1 && !isClosed(first.asked) {
			close(first.asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return account.Generate(ctx, req, onDelta)
	})
	if payload, err := w.work(first); !errors.Is(err, errParked) {
		t.Fatalf("%s, %v", payload, err)
	}
	if payload, err := w.work(newPaper(t, first.last)); err != nil || payload != `{"text":"done"}` || asked != 2 {
		t.Errorf("%s, %v, asked %d times", payload, err, asked)
	}
}
