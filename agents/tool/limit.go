package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Limiter limits how often a tool is called (AAIF tools[].rate_limit).
type Limiter interface {
	// Take asks for one call with arguments of so many tokens. If the limit is used up, it waits if
	// the call's deadline permits that, and otherwise fails with an [ErrBusy] that says when to
	// retry. back returns the permission if the call was not made.
	Take(ctx context.Context, tokens int) (back func(context.Context), err error)
	// Spent adds the tokens of a call's result.
	Spent(ctx context.Context, tokens int)
}

// Limited wraps a tool whose calls need a limiter's permission.
func Limited(t Tool, l Limiter) Tool { return &limited{t, l} }

type limited struct {
	Tool
	limiter Limiter
}

// confirmAfter is how long a call may wait for its limiter without being confirmed.
const confirmAfter = 100 * time.Millisecond

type confirmation struct{}

// WithConfirm returns a context for a call that confirm must permit, if the call has waited for its
// limiter: meanwhile another worker may have got the run. If confirm fails, the call is not made, and
// fails with that error.
func WithConfirm(ctx context.Context, confirm func() error) context.Context {
	return context.WithValue(ctx, confirmation{}, confirm)
}

func (t *limited) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	asked := time.Now()
	back, err := t.limiter.Take(ctx, Tokens(len(args)))
	if err != nil {
		return nil, err
	}
	if confirm, ok := ctx.Value(confirmation{}).(func() error); ok && time.Since(asked) > confirmAfter {
		if err := cmp.Or(confirm(), ctx.Err()); err != nil {
			back(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	result, err := t.Tool.Call(ctx, args)
	var failed *Error
	if errors.As(err, &failed) && failed.NotMade {
		back(context.WithoutCancel(ctx))
	}
	if len(result) > 0 {
		t.limiter.Spent(context.WithoutCancel(ctx), Tokens(len(result)))
	}
	return result, err
}

func (t *limited) RepeatSafe() bool { return IsRepeatSafe(t.Tool) }

// Tokens estimates the tokens of so many bytes of JSON: a third.
func Tokens(bytes int) int { return (bytes + 2) / 3 }
