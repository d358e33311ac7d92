package mesh_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// beyondDefault are CBOR values beyond the default depth and number of values.
var beyondDefault = map[string]string{
	"deep": strings.Repeat("\x81", 80) + "\x80",
	"long": "\x9a\x00\x04\x00\x00" + strings.Repeat("\x00", 1<<18),
}

// marked is a task in CBOR with a value in the place of the text "MARK".
func marked(t *testing.T, task *envelope.Envelope, value string) []byte {
	t.Helper()
	data, err := task.AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.Replace(string(data), "\x64MARK", value, 1))
}

// A record keeps a task as JSON, within the default limits. A CBOR task beyond them, which an operator's
// limits permit, is refused: it does not come again and again.
func TestACBORTaskThatNoRecordCanKeepIsRefused(t *testing.T) {
	t.Parallel()
	for name, value := range beyondDefault {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{Limits: envelope.Limits{MaxDepth: 100, MaxValues: 1 << 20}}), mesh.Agent{Handler: echo})
			task := newTask(reviewer, "code.review", `{"n":"MARK"}`)
			data := marked(t, task, value)
			if _, err := envelope.ParseCBORLimits(data, envelope.Limits{MaxDepth: 100, MaxValues: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			if _, err := jetstream.NewQueue(r.js(r.nc), r.m).Submit(ctxFor(t), jetstream.Submission{
				Entity: reviewer, ID: task.ID, Data: data, Header: nats.Header{headers.HeaderContentType: {envelope.ContentCBOR}},
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.result(r.client(), task); codeOf(err) != envelope.CodeInvalidEnvelope {
				t.Errorf("%v", err)
			}
			r.drainedQueue()
			equal(t, "dead letters", len(r.letters()), 1)
		})
	}
}

// The worker of an asynchronous agent says of a live task that can never be stored what is wrong with
// it, so that its sender does not try again.
func TestALiveTaskThatNoQueueCanKeepIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Limits: envelope.Limits{MaxDepth: 100, MaxValues: 1 << 20}}), mesh.Agent{Async: true, Handler: echo})
	refused := func(name string, answer *envelope.Envelope, err error, want envelope.Code) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if e := errorOf(t, answer); e.Code != want || e.Retryable {
			t.Errorf("%s: %v", name, e)
		}
	}
	for name, value := range beyondDefault {
		data := marked(t, newTask(reviewer, "code.review", `{"n":"MARK"}`), value)
		answer, err := envelope.ParseCBOR(r.requestRaw(reviewer, data, nats.Header{headers.HeaderContentType: {envelope.ContentCBOR}}).Data)
		refused(name, answer, err, envelope.CodeInvalidEnvelope)
	}
	long := newTask(reviewer, "code.review", `{}`)
	long.ID = strings.Repeat("x", subject.MaxID+1)
	refused("a long id", r.request(long), nil, envelope.CodeTooLarge)
	large := newTask(reviewer, "code.review", `{"text":""}`)
	room := int(r.nc.MaxPayload()) - len(encode(t, large))
	large.Payload = mustJSON(map[string]string{"text": strings.Repeat("x", room)}) // without room for the headers of the queue
	refused("a large task", r.request(large), nil, envelope.CodeTooLarge)
	equal(t, "the queue", r.queued(), uint64(0))
}
