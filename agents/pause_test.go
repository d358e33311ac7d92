package agents

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/state"
)

// users are what the users of a conversation said.
func users(messages []model.Message) (said []string) {
	for _, m := range messages {
		if m.Role == model.RoleUser {
			said = append(said, m.Content)
		}
	}
	return said
}

// A pause during a turn of the model ends the turn at once; the turn is taken
// again after the run was resumed.
func TestPauseWhileTheModelSpeaks(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{})
	speaks := make(chan struct{})
	turns := 0
	w.loop.model = model.Func(func(ctx context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
		if turns++; turns == 1 {
			close(speaks)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &model.Response{Message: model.Assistant("done"), Finish: model.FinishStop}, nil
	})
	first := newPaper(t, w.begin())
	go func() { <-speaks; close(first.asked) }()
	if _, err := w.work(first); !errors.Is(err, errParked) {
		t.Fatalf("error %v, want %v", err, errParked)
	}
	if first.last.Doc.Status != aaif.RunPaused || len(first.steps) != 1 || first.steps[0].Kind != state.StepPause {
		t.Errorf("status %s after %+v", first.last.Doc.Status, first.steps)
	}
	if payload, err := w.work(newPaper(t, first.last)); err != nil || payload != `{"text":"done"}` || turns != 2 {
		t.Errorf("resumed: %s, %v after %d turns", payload, err, turns)
	}
}

// A pause while tools run waits for those that have begun, and starts no
// others.
func TestPauseWhileToolsRun(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{ParallelTools: 2},
		modeltest.Turn{Calls: []model.ToolCall{wish("1", "pay"), wish("2", "pay"), wish("3", "pay")}}, modeltest.Turn{Text: "done"})
	first := newPaper(t, w.begin())
	first.onStep = func(s state.Step) {
		if s.Kind == state.StepIntent {
			close(first.asked)
		}
	}
	if _, err := w.work(first); !errors.Is(err, errParked) {
		t.Fatalf("error %v, want %v", err, errParked)
	}
	var got []state.EffectStatus
	for _, e := range first.last.Mesh.Effects {
		got = append(got, e.Status)
	}
	if want := []state.EffectStatus{state.EffectDone, state.EffectDone, state.EffectPending}; !slices.Equal(got, want) {
		t.Errorf("the ledger says %v, want %v", got, want)
	}
	if n := len(first.last.Doc.PendingToolCalls); first.last.Doc.Status != aaif.RunPaused || n != 1 {
		t.Errorf("status %s, %d pending", first.last.Doc.Status, n)
	}
	before := w.take()
	payload, err := w.work(newPaper(t, first.last))
	after := w.take()
	if err != nil || payload != `{"text":"done"}` || len(before) != 2 || len(after) != 1 {
		t.Errorf("resumed: %s, %v; calls %v before, %v after", payload, err, before, after)
	}
}

// A steering message becomes a message of the next turn, and is committed
// before the model sees it; also if the model has just given its answer.
func TestSteering(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t, Options{}, modeltest.Turn{Calls: []model.ToolCall{wish("1", "lint")}}, modeltest.Turn{Text: "early"}, modeltest.Turn{Text: "done"})
	put := func(p *paper, text string) {
		p.last.Mesh.Steering = append(p.last.Mesh.Steering, state.Steer{ID: text, Text: text})
	}
	p := newPaper(t, w.begin())
	p.onStep = func(s state.Step) {
		if s.Kind == state.StepReceipt {
			put(p, "be brief")
			put(p, "be kind")
		}
	}
	plain := w.loop.model
	w.loop.model = model.Func(func(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
		if modeltest.AssistantTurns(req) == 1 {
			put(p, "in French")
		}
		return plain.Generate(ctx, req, onDelta)
	})
	payload, err := w.work(p)
	if err != nil || payload != `{"text":"done"}` {
		t.Fatalf("%s, %v", payload, err)
	}
	want := []string{"go", "be brief", "be kind", "in French"}
	if got := users(w.model.Requests()[2].Messages); !reflect.DeepEqual(got, want) {
		t.Errorf("the model was told %q, want %q", got, want)
	}
	end := p.next()
	if got := users(end.Messages()); !reflect.DeepEqual(got, want) || len(end.Mesh.Steering) != 0 {
		t.Errorf("the document has %q and %v waiting", got, end.Mesh.Steering)
	}
	var kinds []string
	for _, s := range p.steps {
		kinds = append(kinds, string(s.Kind))
	}
	if got := strings.Join(kinds, " "); got != "model intent receipt steer steer" {
		t.Errorf("steps %s", got)
	}
}
