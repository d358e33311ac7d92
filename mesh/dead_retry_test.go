package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// The reply of the try that failed is stored, and may even be announced again while the retry
// goes on. It is not taken for the reply of the retry.
func TestTheReplyToARetryIsAwaited(t *testing.T) {
	t.Parallel()
	for name, requires := range map[string]string{"plain": "", "streamed": `{"stream":true}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			begun, goOn := make(chan struct{}, 1), make(chan string)
			var tries atomic.Int32
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if tries.Add(1) == 1 {
					return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
				}
				begun <- struct{}{}
				if said := <-goOn; said != "" {
					return nil, envelope.Errorf(envelope.CodeUnavailable, "%s", said)
				}
				return task.Envelope.Payload, nil
			})})
			client := r.client()
			task := newTask(reviewer, "code.review", `{"n":1}`)
			if requires != "" {
				requiring(task, requires)
			}
			heard := r.listen("aee.reply." + reviewer + ".*")
			r.submit(client, task)
			failed := within(t, "the first reply", heard)
			for i, say := range []string{"still away", ""} {
				r.drainedQueue()
				eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
				type answer struct {
					reply *envelope.Envelope
					err   error
				}
				done := make(chan answer, 1)
				go func() {
					_, reply, err := client.Retry(ctxFor(t), r.letters()[0].Seq, mesh.ResultOptions{})
					done <- answer{reply, err}
				}()
				within(t, "the retry", begun)
				if err := r.nc.PublishMsg(&nats.Msg{Subject: failed.Subject, Header: failed.Header, Data: failed.Data}); err != nil {
					t.Fatal(err)
				}
				within(t, "the old reply again", heard)
				goOn <- say
				got := within(t, "the answer", done)
				var problem *envelope.Error
				switch {
				case say != "" && (!errors.As(got.err, &problem) || problem.Message != say):
					t.Errorf("retry %d: %v, %v", i, got.reply, got.err)
				case say == "" && (got.err != nil || string(got.reply.Payload) != `{"n":1}`):
					t.Errorf("retry %d: %v, %v", i, got.reply, got.err)
				}
				failed = within(t, "the reply of the retry", heard)
			}
		})
	}
}

// While a retry waits in the queue, a forged message with the id of its task becomes a dead
// letter, too. The retry goes on.
func TestARetryGoesOnThoughAForgedMessageIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	var away atomic.Bool
	away.Store(true)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if away.Load() {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
		}
		return task.Envelope.Payload, nil
	})})
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(r.client(), task)
	eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
	r.drainedQueue()
	away.Store(false)
	js, consumer := r.js(r.nc), "normal-"+subject.Escape(reviewer)
	if _, err := js.PauseConsumer(ctxFor(t), jetstream.StreamWork, consumer, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dead().Retry(ctxFor(t), r.letters()[0].Seq); err != nil {
		t.Fatal(err)
	}
	forged := *task
	forged.Payload = json.RawMessage(`{"n":2}`)
	r.queue("high", &forged)
	eventually(t, "the letter of the forged message", func() bool { return len(r.letters()) == 1 && r.queued() == 1 })
	if _, err := js.ResumeConsumer(ctxFor(t), jetstream.StreamWork, consumer); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	if reply, err := r.client().Result(ctxFor(t), reviewer, task.ID, mesh.ResultOptions{}); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
	if left := r.letters(); len(left) != 1 || left[0].Code != "E_REPLAY" {
		t.Errorf("letters %+v", left)
	}
}

// A message that was refused has no run, and its retry may be refused again.
func TestTheReplyToARetryThatIsRefusedAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	event, another := newTask(reviewer, "code.review", `{}`), newTask("agent.other", "code.review", `{}`)
	event.Type = envelope.TypeEvent
	for _, e := range []*envelope.Envelope{event, another} {
		if err := r.nc.Publish("aee.work.high."+reviewer, encode(t, e)); err != nil {
			t.Fatal(err)
		}
		var last string
		for range 3 {
			eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
			r.drainedQueue()
			_, reply, err := r.client().Retry(ctxFor(t), r.letters()[0].Seq, mesh.ResultOptions{})
			if reply == nil || reply.Type != envelope.TypeError || reply.ID == last {
				t.Fatalf("%s: %v, %v", e.Type, reply, err)
			}
			last = reply.ID
		}
		eventually(t, "the dead letter", func() bool { return len(r.letters()) == 1 })
		if err := r.dead().Drop(ctxFor(t), r.letters()[0].Seq); err != nil {
			t.Fatal(err)
		}
	}
}

// Where no reply can come, nothing is retried.
func TestARetryWithoutAReply(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	if err := r.nc.Publish("aee.work.high."+reviewer, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first dead letter", func() bool { return len(r.letters()) == 1 })
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	task.Payload = json.RawMessage(`{"n":2}`)
	r.queue("high", task)
	eventually(t, "the second dead letter", func() bool { return len(r.letters()) == 2 })
	for _, l := range r.letters() {
		if _, _, err := client.Retry(ctxFor(t), l.Seq, mesh.ResultOptions{}); !errors.Is(err, mesh.ErrNoReply) {
			t.Errorf("%s: %v", l.Code, err)
		}
	}
	equal(t, "dead letters", len(r.letters()), 2)
}

// A run that is tried again was verified when it began, and an operator permits it.
func TestADeadLetterWithARunOutlivesItsKey(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sign.Key){
		"expired": func(k *sign.Key) { k.Expires = time.Now() },
		"revoked": func(k *sign.Key) { k.Revoked = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, k := newDurableRig(t), newKeys(t)
			v := k.verifier()
			v.Mode = sign.Required
			fails := true
			r.serve(r.lane(mesh.Config{Verifier: v}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				if fails {
					fails = false
					return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
				}
				return json.RawMessage(`{"done":1}`), nil
			})})
			client := r.lane(mesh.Config{Entity: ada, Signer: k.signer("ada", sign.Ed25519, ada)})
			task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":60000}`)
			r.submit(client, task)
			if _, err := r.result(r.client(), task); codeOf(err) != envelope.CodeUnavailable {
				t.Fatal(err)
			}
			r.drainedQueue()
			k.change("ada", change)
			letters := r.letters()
			if len(letters) != 1 {
				t.Fatalf("%+v", letters)
			}
			_, reply, err := r.client().Retry(ctxFor(t), letters[0].Seq, mesh.ResultOptions{})
			if err != nil || string(reply.Payload) != `{"done":1}` {
				t.Errorf("%v, %v", show(reply), err)
			}
			r.drainedQueue()
			equal(t, "dead letters", len(r.letters()), 0)
		})
	}
}
