package jetstream_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestAVersionOfATemplateIsWrittenOnce(t *testing.T) {
	t.Parallel()
	js, ctx := start(t), t.Context()
	apply(t, js, jetstream.Options{})
	store := jetstream.NewTemplates(js, subject.Map{})
	if _, err := store.Get(ctx, "agent.flights", "v1"); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("a template that does not exist: %v", err)
	}
	ids := []string{"v1", "v 2/ü.*", "v10"}
	for _, id := range ids {
		if err := store.Create(ctx, "agent.flights", id, []byte(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Create(ctx, "agent.flights", "v1", []byte("other")); !errors.Is(err, jetstream.ErrExists) {
		t.Errorf("a version was written twice: %v", err)
	}
	if err := store.Create(ctx, "agent.trains", "v1", []byte("other")); err != nil {
		t.Errorf("the version of another agent: %v", err)
	}
	for _, id := range ids {
		if got, err := store.Get(ctx, "agent.flights", id); err != nil || string(got) != id {
			t.Errorf("get %q: %q, %v", id, got, err)
		}
	}
	list, err := store.List(ctx, "agent.flights")
	var got []string
	for _, r := range list {
		got = append(got, r.ID)
	}
	if err != nil || !slices.Equal(got, ids) {
		t.Errorf("list: %q, %v", got, err)
	}
	if list, err := store.List(ctx, "agent.none"); err != nil || len(list) != 0 {
		t.Errorf("list of an agent without templates: %v, %v", list, err)
	}
}

func TestOneOfManyWritersSwapsAPool(t *testing.T) {
	t.Parallel()
	js, ctx := start(t), t.Context()
	apply(t, js, jetstream.Options{})
	pools := jetstream.NewPools(js, subject.Map{})
	if raw, revision, err := pools.Get(ctx, "agent.flights", "lunch"); raw != nil || revision != 0 || err != nil {
		t.Errorf("a pool that does not exist: %q, %d, %v", raw, revision, err)
	}
	for round := range uint64(3) {
		_, revision, err := pools.Get(ctx, "agent.flights", "lunch")
		if err != nil {
			t.Fatal(err)
		}
		var won, lost int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				_, err := pools.Swap(ctx, "agent.flights", "lunch", fmt.Append(nil, round, i), revision)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case errors.Is(err, jetstream.ErrChanged):
					lost++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won != 1 || lost != 7 {
			t.Errorf("round %d: %d won, %d lost", round, won, lost)
		}
	}
}

// More keys than one answer of the server has are listed, too.
func TestManyTemplatesAreListed(t *testing.T) {
	t.Parallel()
	js, ctx := start(t), t.Context()
	apply(t, js, jetstream.Options{Only: []string{jetstream.BucketSDSI}})
	store, pools := jetstream.NewTemplates(js, subject.Map{}), jetstream.NewPools(js, subject.Map{})
	const many = 1_100
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < many; i += 8 {
				if err := store.Create(ctx, "agent.flights", fmt.Sprint("v", i), []byte("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := store.Create(ctx, "agent.trains", "v1", []byte("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := pools.Swap(ctx, "agent.flights", "lunch", []byte("z"), 0); err != nil {
		t.Fatal(err)
	}
	list, err := store.List(ctx, "agent.flights")
	if err != nil || len(list) != many || !slices.ContainsFunc(list, func(r jetstream.Record) bool { return r.ID == "v1099" && string(r.Value) == "x" }) {
		t.Errorf("%d templates of one agent: %v", len(list), err)
	}
	n := map[string]int{}
	if err := store.Each(ctx, func(entity string, _ jetstream.Record) { n[entity]++ }); err != nil || n["agent.flights"] != many || n["agent.trains"] != 1 {
		t.Errorf("the templates of all: %v, %v", n, err)
	}
	if list, err := pools.List(ctx, "agent.flights"); err != nil || len(list) != 1 || string(list[0].Value) != "z" {
		t.Errorf("the pools: %v, %v", list, err)
	}
}

// What replicas say that lag behind is no answer: a worker would learn from a client that has
// opted out.
func TestAnOptOutIsReadAlthoughReplicasLagBehind(t *testing.T) {
	t.Parallel()
	js, ctx := start(t), t.Context()
	apply(t, js, jetstream.Options{Only: []string{jetstream.BucketSDSI}})
	pools := jetstream.NewPools(js, subject.Map{})
	if _, err := pools.SwapOptOuts(ctx, "agent.flights", []byte("client"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pools.Swap(ctx, "agent.flights", "lunch", []byte("fish"), 0); err != nil {
		t.Fatal(err)
	}
	natstest.Lag(t, js.Conn(), "KV_aee_sdsi", func(get int) bool { return get%3 != 0 })
	if raw, _, err := pools.OptOuts(ctx, "agent.flights"); string(raw) != "client" || err != nil {
		t.Errorf("the opt-outs: %q, %v", raw, err)
	}
	if raw, _, err := pools.Get(ctx, "agent.flights", "lunch"); string(raw) != "fish" || err != nil {
		t.Errorf("a pool: %q, %v", raw, err)
	}
	if raw, revision, err := pools.OptOuts(ctx, "agent.trains"); raw != nil || revision != 0 || err != nil {
		t.Errorf("the opt-outs of another agent: %q, %d, %v", raw, revision, err)
	}
	if all, err := pools.Current(ctx, "agent.flights"); err != nil || len(all) != 1 || all[0].ID != "lunch" || string(all[0].Value) != "fish" {
		t.Errorf("all pools: %+v, %v", all, err)
	}
}
