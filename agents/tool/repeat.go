package tool

import "context"

// Repeatable is a Tool that says whether its calls may be made again.
//
// A durable run that is taken over by another worker finds calls that had begun
// and of which no receipt was written: nobody knows whether they had their
// effect. A call of a tool that is safe to repeat is made again, with the same
// arguments and the same key (see [KeyFrom]); of any other the operator decides.
type Repeatable interface {
	Tool

	// RepeatSafe is true if calling twice is as good as calling once: the tool
	// only reads, or it recognises the key of a call that it has done. The
	// answer must be the same each time.
	RepeatSafe() bool
}

// RepeatSafe declares that a tool is safe to repeat.
func RepeatSafe(t Tool) Tool { return repeatSafe{t} }

// IsRepeatSafe reports whether a tool says that it is safe to repeat. One that
// says nothing is not.
func IsRepeatSafe(t Tool) bool {
	r, ok := t.(Repeatable)
	return ok && r.RepeatSafe()
}

type repeatSafe struct{ Tool }

func (repeatSafe) RepeatSafe() bool { return true }

// RepeatSafe is what the guarded tool says.
func (g *Guarded) RepeatSafe() bool { return IsRepeatSafe(g.tool) }

type keyOfCall struct{}

// WithKey returns a context that carries the idempotency key of a call.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfCall{}, key)
}

// KeyFrom returns the idempotency key of the call whose context this is, and ""
// where it has none. A tool that has an effect hands it on to whatever can tell
// a repetition by it.
//
// The key names one call of one run: it stays the same when a worker dies and
// another makes the call again, and no other call has it. Calls of tasks on the
// live lane have one too; nobody repeats these.
func KeyFrom(ctx context.Context) string {
	key, _ := ctx.Value(keyOfCall{}).(string)
	return key
}
