package limit

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

func run(t *testing.T, cost Cost, f func(*Budget)) error {
	t.Helper()
	_, err := Run(context.Background(), cost, func(b *Budget) (struct{}, error) { f(b); return struct{}{}, nil })
	return err
}

func TestSpending(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		f    func(*Budget)
		want error
	}{
		"all of it":        {func(b *Budget) { b.Spend(100) }, nil},
		"more":             {func(b *Budget) { b.Spend(101) }, ErrCost},
		"bit by bit":       {func(b *Budget) { b.Spend(99); b.Spend(2) }, ErrCost},
		"less than none":   {func(b *Budget) { b.Spend(-1) }, ErrCost},
		"bytes":            {func(b *Budget) { b.Bytes(792) }, nil},
		"too many bytes":   {func(b *Budget) { b.Bytes(800) }, ErrCost},
		"a product":        {func(b *Budget) { b.Product(79, 10) }, nil},
		"a large product":  {func(b *Budget) { b.Product(81, 10) }, ErrCost},
		"no end":           {func(b *Budget) { b.Product(math.MaxInt, math.MaxInt) }, ErrCost},
		"nothing of much":  {func(b *Budget) { b.Product(0, math.MaxInt) }, nil},
		"a walk":           {func(b *Budget) { b.Walk([]any{"a", map[string]any{"k": nil}}) }, nil},
		"a long walk":      {func(b *Budget) { b.Walk(make([]any, 100)) }, ErrCost},
		"a comparison":     {func(b *Budget) { b.Equal(make([]any, 200), make([]any, 200)) }, ErrCost},
		"no comparison":    {func(b *Budget) { b.Equal(make([]any, 200), make([]any, 201)) }, nil},
		"text of a length": {func(b *Budget) { b.Equal(strings.Repeat("a", 9999), strings.Repeat("a", 9998)) }, nil},
	} {
		if err := run(t, 100, tt.f); err != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	values := []any{nil, true, false, 0.0, 1.0, "", "a", []any{}, []any{nil}, []any{1.0}, map[string]any{}, map[string]any{"a": nil}, map[string]any{"b": nil}, map[string]any{"a": []any{1.0}}}
	for i, x := range values {
		for j, y := range values {
			run(t, 1000, func(b *Budget) {
				if b.Equal(x, y) != (i == j) {
					t.Errorf("%v and %v", x, y)
				}
			})
		}
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	var v any
	for range MaxDepth + 1 {
		v = []any{v}
	}
	if err := run(t, 1e6, func(b *Budget) { b.Walk(v) }); err != ErrDepth {
		t.Error(err)
	}
	if err := run(t, 1e6, func(b *Budget) { b.Equal(v, v) }); err != ErrDepth {
		t.Error(err)
	}
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	err := run(t, 1, func(*Budget) { panic("hunter2") })
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Value != "hunter2" || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	err = run(t, 1, func(*Budget) { var m map[string]int; m["a"] = 1 })
	if !errors.As(err, &panicked) {
		t.Error(err)
	}
}

func TestTheContextIsLookedAt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	spent := 0
	_, err := Run(ctx, 1e9, func(b *Budget) (bool, error) {
		for {
			if spent++; spent == 1000 {
				cancel()
			}
			b.Spend(1)
		}
	})
	if !errors.Is(err, context.Canceled) || spent > 1000+lookEvery {
		t.Error(err, spent)
	}
	if _, err := Run(ctx, 1, func(*Budget) (bool, error) { t.Error("it ran"); return true, nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
