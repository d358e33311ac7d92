package mesh_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// A record keeps a task as JSON, within the default limits. A CBOR task beyond them, which an operator's
// limits permit, is refused: it does not come again and again.
func TestACBORTaskThatNoRecordCanKeepIsRefused(t *testing.T) {
	t.Parallel()
	const mark = "\x64MARK"
	for name, value := range map[string]string{
		"deep": strings.Repeat("\x81", 80) + "\x80",
		"long": "\x9a\x00\x04\x00\x00" + strings.Repeat("\x00", 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{Limits: envelope.Limits{MaxDepth: 100, MaxValues: 1 << 20}}), mesh.Agent{Handler: echo})
			task := newTask(reviewer, "code.review", `{"n":"MARK"}`)
			data, err := task.AppendCBOR(nil)
			if err != nil {
				t.Fatal(err)
			}
			data = []byte(strings.Replace(string(data), mark, value, 1))
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
