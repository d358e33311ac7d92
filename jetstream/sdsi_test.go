package jetstream_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
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
