package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

func TestHandlersContextEndsWithItsTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type seen struct {
		ctx, child context.Context
		task       *mesh.Task
	}
	got := make(chan seen, 1)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		child, cancel := context.WithTimeout(ctx, time.Hour)
		_ = cancel // a caller that forgets it must leave nothing running
		got <- seen{ctx, child, task}
		if string(task.Envelope.Payload) == `{"wait":true}` {
			<-g.release
		}
		return nil, nil
	})})
	t.Cleanup(g.open)

	r.request(requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":60000}`))
	s := within(t, "the task", got)
	deadline, ok := s.ctx.Deadline()
	equal(t, "deadline", [2]any{deadline, ok}, [2]any{s.task.Deadline, true})
	within(t, "the context to end after the result", s.ctx.Done())
	within(t, "its child to end", s.child.Done())

	var answers chan *nats.Msg
	untilBegun(func(d time.Duration) bool {
		answers = r.send(requiring(newTask(reviewer, "code.review", `{"wait":true}`), timeout(d, "")))
		select {
		case s = <-got:
			return true
		case <-answers: // its time was over while it waited
			return false
		case <-time.After(patience):
			t.Fatal("neither begun nor answered")
			return false
		}
	})
	within(t, "the context to end at the deadline", s.ctx.Done())
	within(t, "its child to end", s.child.Done())
	if cause := context.Cause(s.ctx); codeOf(cause) != envelope.CodeTimeout || !errors.Is(cause, context.DeadlineExceeded) || s.ctx.Err() == nil {
		t.Errorf("err %v, cause %v", s.ctx.Err(), cause)
	}
	equal(t, "the sender", errorOf(t, parse(t, within(t, "the answer", answers).Data)).Code, envelope.CodeTimeout)
}

// slowJournal is a store that does not answer.
type slowJournal struct {
	asked chan string
	gone  chan struct{}
}

func (j slowJournal) Post(string, string, []byte) error { return nil }

func (j slowJournal) Get(ctx context.Context, _, id string) ([]byte, error) {
	j.asked <- id
	select {
	case <-j.gone:
		return nil, errors.New("the store is gone")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestSlowJournalDoesNotKeepAPingWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	j := slowJournal{make(chan string, 10), make(chan struct{})}
	r.serve(r.node(mesh.Config{Journal: j}), mesh.Agent{Handler: echo})
	asking := func(requires string) chan *nats.Msg {
		return r.send(requiring(newTask(reviewer, intents.ContextFetch, `{"id":"somewhere-else"}`), requires))
	}
	answered := func(fetch chan *nats.Msg) {
		t.Helper()
		e := errorOf(t, parse(t, within(t, "the fetch's answer", fetch).Data))
		equal(t, "fetch", [2]any{e.Code, e.Retryable}, [2]any{envelope.CodeUnavailable, true})
	}
	fetch := asking(`{"timeout_ms":600000}`)
	within(t, "the journal to be asked", j.asked)
	r.ping(reviewer)
	empty(t, "the fetch", fetch)
	var brief chan *nats.Msg
	eventually(t, "the journal to be asked", func() bool { // on a busy machine a fetch may end before that
		brief = asking(`{"timeout_ms":300}`)
		eventually(t, "the brief fetch's answer", func() bool { return len(brief) > 0 })
		return len(j.asked) > 0
	})
	answered(brief)
	close(j.gone)
	answered(fetch)
}

// An envelope holds on to all the bytes that it came in.
func TestLargeMessagesAreNotKeptInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return nil, nil })})
	large := strings.Repeat("x", 100<<10)
	for name, change := range map[string]func(*envelope.Envelope){
		"payload": func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"x":"` + large + `"}`) },
		"extra": func(e *envelope.Envelope) {
			e.Extra = []envelope.Member{{Name: "x", Value: json.RawMessage(`"` + large + `"`)}}
		},
		"requires": func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"x":"` + large + `"}`) },
		"trace":    func(e *envelope.Envelope) { e.Trace = json.RawMessage(`{"trace_id":"` + large + `","span_id":"x"}`) },
		"space":    func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{` + strings.Repeat(" ", 100<<10) + `}`) },
	} {
		task := newTask(reviewer, "code.review", `{}`)
		change(task)
		equal(t, name, r.request(task).Type, envelope.TypeResult)
		equal(t, name, string(r.request(newTask(reviewer, intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, task.ID))).Payload), `{"found":false}`)
	}
}
