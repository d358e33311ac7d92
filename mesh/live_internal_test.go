package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// liveHost returns the host of agent.a, which has not started, on a connection that may not
// subscribe to its control subject.
func liveHost(t *testing.T, handler Handler, opts ...nats.Option) (*host, *nats.Conn) {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "x", Password: "x", Permissions: &natsd.Permissions{
		Publish: natsd.Subjects{Allow: []string{">"}}, Subscribe: natsd.Subjects{Allow: []string{">"}, Deny: []string{"aee.ctl.>"}},
	}}}})
	conn := natstest.Conn(t, srv, append(opts, nats.UserInfo("x", "x"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	node, err := New(conn, Config{Heartbeat: -1, Drain: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h, err := node.newHost(Agent{Entity: "agent.a", Queue: 4, Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	return h, conn
}

// A worker that cannot start, because it may not subscribe to one of its subjects, may have got
// tasks on another one. Their senders hear of it at once.
func TestAWorkerThatCannotStartAnswersTheTasksThatHaveCome(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 1)
	h, conn := liveHost(t, HandlerFunc(func(ctx context.Context, _ *Task) (json.RawMessage, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	answers := make(chan *nats.Msg, 2)
	inbox := conn.NewInbox()
	if _, err := conn.ChanSubscribe(inbox, answers); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", json.RawMessage(`{}`))
		data, err := task.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		h.intake.onTask(&nats.Msg{Subject: "agent.a", Reply: inbox, Data: data})
	}
	natstest.Within(t, "the first task", entered)
	failed := make(chan error, 1)
	go func() { failed <- h.start(t.Context()) }()
	if err := natstest.Within(t, "the end of the start", failed); err == nil {
		t.Error("the worker has started")
	}
	for _, want := range []envelope.Code{envelope.CodeDraining, envelope.CodeUnavailable} {
		e, err := envelope.Parse(natstest.Within(t, "an answer", answers).Data)
		if err != nil {
			t.Fatal(err)
		}
		if got := envelope.ErrorOf(e).Code; got != want {
			t.Errorf("answered %s, want %s", got, want)
		}
	}
}

// An answer is counted before its sender has it, so that the stats show the errors in the order
// of the answers.
func TestAnAnswerIsCountedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10) // more than the connection buffers
	for name, tt := range map[string]struct {
		end    func(*host, *Task)
		errors int64
	}{
		"a result": {func(h *host, task *Task) { h.succeed(task, json.RawMessage(`{"text":"`+long+`"}`)) }, 0},
		"an error": {func(h *host, task *Task) {
			h.fail(task, &envelope.Error{Code: "E_MINE", Message: "no luck", Details: []envelope.Member{{Name: "text", Value: json.RawMessage(`"` + long + `"`)}}})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := natstest.NewCable(t)
			h, conn := liveHost(t, HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) { return nil, nil }), nats.SetCustomDialer(line))
			e := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", json.RawMessage(`{}`))
			task := &Task{Envelope: e, host: h, reply: conn.NewInbox(), queued: time.Now(), Deadline: time.Now().Add(time.Minute)}
			h.track(task)
			t.Cleanup(h.running.Stop)
			line.Block(true)
			sent := make(chan struct{})
			go func() { tt.end(h, task); close(sent) }()
			natstest.Eventually(t, "the answer is counted", func() bool {
				all, errors := h.service.Stats[service.Task].Answers()
				return all == 1 && errors == tt.errors
			})
			select {
			case <-sent:
				t.Error("the answer was sent already")
			default:
			}
			line.Block(false)
			natstest.Within(t, "the answer", sent)
			if all, errors := h.service.Stats[service.Task].Answers(); all != 1 || errors != tt.errors {
				t.Errorf("counted %d, of them %d errors", all, errors)
			}
		})
	}
}

// A result that cannot be sent is counted once, as the error that its sender gets.
func TestAResultThatCannotBeSentIsCountedAsAnError(t *testing.T) {
	t.Parallel()
	h, conn := liveHost(t, HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) { return nil, nil }))
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", json.RawMessage(`{}`))
	task := &Task{Envelope: e, host: h, reply: conn.NewInbox(), queued: time.Now(), Deadline: time.Now().Add(time.Minute)}
	h.track(task)
	t.Cleanup(h.running.Stop)
	h.succeed(task, json.RawMessage(`{"text":"`+strings.Repeat("x", 2<<20)+`"}`))
	if all, errors := h.service.Stats[service.Task].Answers(); all != 1 || errors != 1 {
		t.Errorf("counted %d, of them %d errors", all, errors)
	}
}

// A cancel that comes when its task is being answered has cancelled nothing.
func TestACancelOfATaskThatIsBeingAnsweredCancelsNothing(t *testing.T) {
	t.Parallel()
	h, _ := liveHost(t, HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) { return nil, nil }))
	task := claimed(t, h)
	if h.controls.cancelTasks(cancelling(task), false) {
		t.Error("the task is said to be cancelled")
	}
}

// A cancel that comes when its task is being delegated follows it to the receiver.
func TestACancelOfATaskThatIsBeingDelegatedFollowsIt(t *testing.T) {
	t.Parallel()
	h, _ := liveHost(t, HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) { return nil, nil }))
	h.delegating.RLock()
	task := claimed(t, h)
	found := make(chan bool, 1)
	go func() { found <- h.controls.cancelTasks(cancelling(task), false) }()
	natstest.Eventually(t, "the cancel waits", func() bool {
		if h.delegating.TryRLock() {
			h.delegating.RUnlock()
			return false
		}
		return true
	})
	h.passed.Add(task.Envelope, "", delegated.At{To: "agent.b", ID: "the-id"}, time.Minute)
	h.delegating.RUnlock()
	if !natstest.Within(t, "the end of the cancel", found) {
		t.Error("the cancel found nothing")
	}
}

// claimed returns a task of which the host is about to send the terminal envelope.
func claimed(t *testing.T, h *host) *Task {
	t.Helper()
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", json.RawMessage(`{}`))
	task := &Task{Envelope: e, host: h, queued: time.Now(), Deadline: time.Now().Add(time.Minute)}
	h.track(task)
	t.Cleanup(func() { h.running.Remove(&task.entry); h.running.Stop() })
	if !task.claim() {
		t.Fatal("the task has been answered")
	}
	return task
}

func cancelling(task *Task) *envelope.Envelope {
	e := task.Envelope
	return envelope.New(envelope.TypeTask, e.From, e.To, intents.TaskCancel, fmt.Appendf(nil, `{"id":%q}`, e.ID))
}
