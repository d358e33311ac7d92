package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestRefutationsOfManyWritersAreAllKept(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	ctx, m := context.Background(), subject.Map{}
	if _, err := Apply(ctx, js, Options{}); err != nil {
		t.Fatal(err)
	}
	r := NewRefutations(js, m)
	if list, err := r.List(ctx, "agent.x", "01JFB2R1"); err != nil || list != nil {
		t.Fatalf("List of nothing = %s, %v", list, err)
	}
	const writers = 8
	var wait sync.WaitGroup
	errs := make([]error, writers)
	for i := range writers {
		wait.Go(func() { errs[i] = r.Add(ctx, "agent.x", "01JFB2R1", fmt.Appendf(nil, `{"by":"agent.%d"}`, i)) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	list, err := r.List(ctx, "agent.x", "01JFB2R1")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, raw := range list {
		seen[string(raw)] = true
	}
	if len(list) != writers || len(seen) != writers {
		t.Errorf("List has %d refutations, %d different, want %d", len(list), len(seen), writers)
	}
	for i := range MaxRefutations {
		if err := r.Add(ctx, "agent.x", "01JFB2R1", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	list, err = r.List(ctx, "agent.x", "01JFB2R1")
	if want := fmt.Sprintf(`{"n":%d}`, MaxRefutations-1); err != nil || len(list) != MaxRefutations || string(list[len(list)-1]) != want {
		t.Errorf("List has %d refutations, %v; want the newest %d", len(list), err, MaxRefutations)
	}
	for _, one := range []string{`{"by":"agent.0","reason":"a"}`, `{"by":"agent.1","reason":"b","verified":true}`, `{"by":"agent.0","reason":"c"}`, `{"by":"agent.1","reason":"d"}`} {
		if err := r.Add(ctx, "agent.x", "again", []byte(one)); err != nil {
			t.Fatal(err)
		}
	}
	list, err = r.List(ctx, "agent.x", "again")
	if got := fmt.Sprintf("%s", list); err != nil || got != `[{"by":"agent.1","reason":"b","verified":true} {"by":"agent.0","reason":"c"} {"by":"agent.1","reason":"d"}]` {
		t.Errorf("List has %s, %v; want the newest of each sender, and the one that was verified", got, err)
	}
	if err := r.Add(ctx, "agent.x", "01JFB2R1", make([]byte, maxRefutationSize+1)); err == nil {
		t.Error("a huge refutation was taken")
	}
}

// Where messages are small, the newest refutations stay that fit one.
func TestRefutationsFitASmallMaxPayload(t *testing.T) {
	t.Parallel()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true, MaxPayload: 32 << 10})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(t.Context(), js, Options{Only: []string{BucketRefuted}}); err != nil {
		t.Fatal(err)
	}
	r := NewRefutations(js, subject.Map{})
	one := func(n int) []byte { return fmt.Appendf(nil, `"%d%s"`, n, strings.Repeat("x", maxRefutationSize-8)) }
	for n := range 9 {
		if err := r.Add(t.Context(), "agent.x", "id", one(n)); err != nil {
			t.Fatalf("refutation %d: %v", n, err)
		}
	}
	list, err := r.List(t.Context(), "agent.x", "id")
	if err != nil || len(list) != 3 || string(list[2]) != string(one(8)) {
		t.Errorf("%d refutations, %v", len(list), err)
	}
}

// A replica that lags behind returns an old list for a while: Add asks again after a pause, which
// grows.
func TestRefutationsAreAddedThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(t.Context(), js, Options{Only: []string{BucketRefuted}}); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_aee_refuted")
	if err != nil {
		t.Fatal(err)
	}
	r := NewRefutations(js, subject.Map{})
	if err := r.Add(t.Context(), "agent.x", "id", []byte(`"one"`)); err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	asked := 0
	sub, err := js.Conn().Subscribe("$JS.API.DIRECT.GET.KV_aee_refuted.>", func(m *nats.Msg) {
		asked++
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.Add(ctx, "agent.x", "id", []byte(`"two"`)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("added: %v", err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if asked > 20 {
		t.Errorf("asked %d times in 300 ms", asked)
	}
}
