package tool

import "context"

// Repeatable is a Tool that declares whether its calls may be repeated.
//
// A worker that takes over a durable run finds calls that had begun and have no
// receipt: it is not known whether they had their effect. A call of a tool that
// is safe to repeat is made again, with the same arguments and the same key
// (see [KeyFrom]); for other tools the operator decides.
type Repeatable interface {
	Tool

	// RepeatSafe reports whether a second call has no further effect: the tool
	// only reads, or it recognises the key of a call that it has done. The
	// result must always be the same.
	RepeatSafe() bool
}

// RepeatSafe wraps a tool that is safe to repeat.
func RepeatSafe(t Tool) Tool { return repeatSafe{t} }

// IsRepeatSafe reports whether a tool declares that it is safe to repeat. A
// tool that is not Repeatable is not.
func IsRepeatSafe(t Tool) bool {
	r, ok := t.(Repeatable)
	return ok && r.RepeatSafe()
}

type repeatSafe struct{ Tool }

func (repeatSafe) RepeatSafe() bool { return true }

// RepeatSafe returns the declaration of the guarded tool.
func (g *Guarded) RepeatSafe() bool { return IsRepeatSafe(g.tool) }

type keyOfCall struct{}

// WithKey returns a context that carries the idempotency key of a call.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfCall{}, key)
}

// KeyFrom returns the idempotency key of the call that the context belongs to,
// and "" if it has none. A tool with effects passes it on to the service that
// can recognise a repeated call by it.
//
// The key identifies one call of one run: it stays the same when another worker
// repeats the call after a crash, and no other call has it. Calls of tasks on
// the live lane have a key, too, but are never repeated.
func KeyFrom(ctx context.Context) string {
	key, _ := ctx.Value(keyOfCall{}).(string)
	return key
}
