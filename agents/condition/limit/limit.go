package limit

import (
	"context"
	"errors"
	"fmt"
)

// Cost is an amount of work, in units.
type Cost int64

// ErrCost is the error of an evaluation that spent its budget.
var ErrCost = errors.New("the evaluation costs too much")

// ErrDepth is the error of an evaluation that made a value with more nesting
// than [MaxDepth].
var ErrDepth = errors.New("the evaluation nests values too deep")

// MaxDepth bounds the nesting of values that an evaluation makes.
const MaxDepth = 2000

// A PanicError is the error of an evaluation that panicked.
type PanicError struct {
	// Value is the argument of panic. It may contain data and must not be
	// logged.
	Value any
}

// Error says that the evaluation panicked, without Value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("the evaluator failed (a panic: %T)", e.Value)
}

// stop is the value with which a spent budget panics, to leave an evaluator.
type stop struct{ err error }

// Budget is the remaining cost of an evaluation.
type Budget struct {
	ctx  context.Context
	left Cost
	look Cost // the cost at which the context is checked next
}

// lookEvery is the cost between two checks of the context.
const lookEvery = 512

// Spend takes n units from the budget. If fewer are left, or the context has
// ended, it does not return: the evaluation ends, and Run returns the error.
func (b *Budget) Spend(n int) {
	if n < 0 || Cost(n) > b.left {
		panic(stop{ErrCost})
	}
	b.left -= Cost(n)
	if b.left <= b.look {
		b.look = b.left - lookEvery
		if err := b.ctx.Err(); err != nil {
			panic(stop{err})
		}
	}
}

// Bytes spends the cost of reading or making a text of n bytes.
func (b *Budget) Bytes(n int) { b.Spend(1 + n/8) }

// Product spends the cost of n values of m bytes each, before they are made.
func (b *Budget) Product(n, m int) {
	if n < 0 || m < 0 || n > 0 && m > int(b.left)*8/n+8 {
		panic(stop{ErrCost})
	}
	b.Spend(1 + n*m/8)
}

// Walk spends the cost of visiting a whole JSON value: a unit for each scalar,
// array, object and member name, and its bytes. A part that occurs several
// times is counted each time.
func (b *Budget) Walk(v any) { b.walk(v, MaxDepth) }

func (b *Budget) walk(v any, depth int) {
	if depth == 0 {
		panic(stop{ErrDepth})
	}
	switch v := v.(type) {
	case string:
		b.Bytes(len(v))
	case Number:
		b.Bytes(len(v))
	case []any:
		b.Spend(1)
		for _, e := range v {
			b.walk(e, depth-1)
		}
	case map[string]any:
		b.Spend(1)
		for k, e := range v {
			b.Bytes(len(k))
			b.walk(e, depth-1)
		}
	default:
		b.Spend(1)
	}
}

// Equal compares two JSON values. It spends a unit for each pair that it
// compares, and stops at the first difference.
func (b *Budget) Equal(x, y any) bool { return b.equal(x, y, MaxDepth) }

func (b *Budget) equal(x, y any, depth int) bool {
	if depth == 0 {
		panic(stop{ErrDepth})
	}
	b.Spend(1)
	switch x := x.(type) {
	case string:
		y, ok := y.(string)
		if !ok || len(x) != len(y) {
			return false
		}
		b.Bytes(len(x))
		return x == y
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !b.equal(x[i], y[i], depth-1) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, e := range x {
			other, ok := y[k]
			if !ok || !b.equal(e, other, depth-1) {
				return false
			}
		}
		return true
	case float64, Number:
		xf, _ := Float(x)
		yf, ok := Float(y)
		return ok && xf == yf
	case bool, nil:
		return x == y
	}
	return false
}

// Run evaluates f within a budget. A panic in f becomes a [*PanicError]. A
// spent budget returns [ErrCost], an ended context its own error.
func Run[T any](ctx context.Context, cost Cost, f func(*Budget) (T, error)) (result T, err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		var zero T
		result = zero
		if s, ok := r.(stop); ok {
			err = s.err
			return
		}
		err = &PanicError{r}
	}()
	if err := ctx.Err(); err != nil {
		return result, err
	}
	return f(&Budget{ctx: ctx, left: cost, look: cost - lookEvery})
}
