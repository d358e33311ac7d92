package jetstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

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
	for i := range maxRefutations {
		if err := r.Add(ctx, "agent.x", "01JFB2R1", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	list, err = r.List(ctx, "agent.x", "01JFB2R1")
	if want := fmt.Sprintf(`{"n":%d}`, maxRefutations-1); err != nil || len(list) != maxRefutations || string(list[len(list)-1]) != want {
		t.Errorf("List has %d refutations, %v; want the newest %d", len(list), err, maxRefutations)
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
