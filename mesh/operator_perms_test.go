package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// asOperator connects to a server with JetStream with exactly an operator's permissions. A refused
// publish or subscription fails the test.
func asOperator(t *testing.T) (*nats.Conn, natsjs.JetStream) {
	t.Helper()
	const inbox = "_INBOX.human=2Eop"
	m, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "op", Password: "o", Permissions: serverPermissions(perms.Operator(m, inbox))},
	}})
	nc := natstest.Conn(t, srv, nats.UserInfo("op", "o"), nats.CustomInboxPrefix(inbox), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		t.Errorf("an operator was refused: %v", err)
	}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// filled creates a stream whose messages cannot be compressed.
func filled(t *testing.T, ctx context.Context, js natsjs.JetStream, cfg natsjs.StreamConfig, messages, size int) {
	t.Helper()
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	noise := rand.New(rand.NewSource(1))
	for i := range messages {
		data := make([]byte, size)
		noise.Read(data)
		if _, err := js.Publish(ctx, fmt.Sprintf("aee.work.normal.agent=2Ex.%d", i), data); err != nil {
			t.Fatal(err)
		}
	}
}

// operations.md, "Backups": an operator backs up a stream that is larger than the window of the
// snapshot (8 MiB, here 4 KiB), so that the server waits for acknowledgements, and restores it.
func TestAnOperatorBacksUpAndRestoresAStream(t *testing.T) {
	t.Parallel()
	nc, js := asOperator(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const name, messages = "AEE_WORK", 64
	filled(t, ctx, js, natsjs.StreamConfig{Name: name, Subjects: []string{"aee.work.>"}}, messages, 1024)

	config, state, chunks := backup(t, ctx, nc, name)
	if len(chunks) < 32 {
		t.Fatalf("the snapshot has %d chunks, which shows no window", len(chunks))
	}
	if err := js.DeleteStream(ctx, name); err != nil {
		t.Fatal(err)
	}
	restore(t, ctx, nc, name, config, state, chunks)

	stream, err := js.Stream(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != messages {
		t.Errorf("%d messages after the restore, %d before", got, messages)
	}
}

// backup does as "nats stream backup", with a window of four chunks.
func backup(t *testing.T, ctx context.Context, nc *nats.Conn, name string) (config, state json.RawMessage, chunks [][]byte) {
	t.Helper()
	to := nc.NewInbox()
	came, err := nc.SubscribeSync(to)
	if err != nil {
		t.Fatal(err)
	}
	defer came.Unsubscribe()
	var begun struct {
		Config, State json.RawMessage
		Error         json.RawMessage
	}
	ask(t, ctx, nc, "$JS.API.STREAM.SNAPSHOT."+name, fmt.Appendf(nil, `{"deliver_subject":%q,"chunk_size":1024,"window_size":4096}`, to), &begun)
	if begun.Error != nil {
		t.Fatalf("snapshot: %s", begun.Error)
	}
	for {
		msg, err := came.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("snapshot, after %d chunks: %v", len(chunks), err)
		}
		if len(msg.Data) == 0 {
			if status := msg.Header.Get("Status"); status != "" && status != "204" {
				t.Fatalf("snapshot, after %d chunks: %s %s", len(chunks), status, msg.Header.Get("Description"))
			}
			return begun.Config, begun.State, chunks
		}
		chunks = append(chunks, bytes.Clone(msg.Data))
		if msg.Reply != "" {
			if err := nc.Publish(msg.Reply, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// restore does as "nats stream restore".
func restore(t *testing.T, ctx context.Context, nc *nats.Conn, name string, config, state json.RawMessage, chunks [][]byte) {
	t.Helper()
	var begun struct {
		To    string `json:"deliver_subject"`
		Error json.RawMessage
	}
	ask(t, ctx, nc, "$JS.API.STREAM.RESTORE."+name, fmt.Appendf(nil, `{"config":%s,"state":%s}`, config, state), &begun)
	if begun.Error != nil {
		t.Fatalf("restore: %s", begun.Error)
	}
	for _, chunk := range append(chunks, nil) { // the last one, which is empty, ends it
		var done struct{ Error json.RawMessage }
		ask(t, ctx, nc, begun.To, chunk, &done)
		if done.Error != nil {
			t.Fatalf("restore: %s", done.Error)
		}
	}
}

// ask sends a request, and decodes its answer, which may be empty.
func ask(t *testing.T, ctx context.Context, nc *nats.Conn, to string, body []byte, answer any) {
	t.Helper()
	msg, err := nc.RequestWithContext(ctx, to, body)
	if err != nil {
		t.Fatalf("%s: %v", to, err)
	}
	if len(msg.Data) == 0 || msg.Data[0] != '{' {
		return
	}
	if err := json.Unmarshal(msg.Data, answer); err != nil {
		t.Fatalf("%s: %v", to, err)
	}
}

// "nats kv watch" and other readers use consumers with flow control: the server stops until the
// reader has acknowledged what is on its way.
func TestAnOperatorReadsAStreamWithFlowControl(t *testing.T) {
	t.Parallel()
	nc, js := asOperator(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const messages, size = 96, 64 << 10
	filled(t, ctx, js, natsjs.StreamConfig{Name: "AEE_WORK", Subjects: []string{"aee.work.>"}, Storage: natsjs.MemoryStorage}, messages, size)

	old, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	sub, err := old.SubscribeSync("aee.work.>", nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, err := sub.NextMsgWithContext(ctx); err != nil {
			t.Fatalf("after %d messages: %v", i, err)
		}
	}
}
