package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// The defaults of [Options].
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMaxArgs     = 1 << 20 // bytes
	DefaultMaxResult   = 1 << 20 // bytes
	DefaultMaxOverruns = 4
)

// maxMessage bounds the text of an error, in bytes: it is for the model.
const maxMessage = 8 << 10

// Options are the limits that a Guard enforces. The zero value is useful.
type Options struct {
	// Definition, if its Name is set, replaces the tool's own. A document
	// describes its function tools itself; if it has no schema, the tool's own
	// schema applies.
	Definition Definition

	// Timeout is the time limit of one call, including validation (AAIF
	// tools[].timeout_seconds). Default 30 s; negative: only the caller's.
	Timeout time.Duration

	// MaxArgs and MaxResult bound the JSON of arguments and results, in bytes.
	// Default 1 MiB each.
	MaxArgs   int
	MaxResult int

	// MaxOverruns is how many calls may still be running after their time
	// limit, because the tool ignores its context, before further calls fail
	// with ErrBusy. Default 4. Calls that are running at that moment may exceed
	// the number.
	MaxOverruns int

	// CacheTTL is how long the result of a call is cached for calls with the same arguments (AAIF
	// tools[].cache_ttl_seconds). Failures and refused results are not cached. Default 0: no
	// caching.
	CacheTTL time.Duration

	// Compile makes validators from schemas. Default [CompileSchema].
	Compile Compiler
}

// Guarded is a Tool with limits. It is safe for concurrent use.
type Guarded struct {
	tool   Tool
	def    Definition
	opts   Options
	args   []Validator
	result []Validator
	cache  *cache // nil if no results are kept

	overruns atomic.Int64 // calls that Call has given up and that still run
}

// Guard adds limits to t: arguments and results are validated and bounded in
// size, calls are bounded in time, and a panic becomes an ErrFailed. It refuses
// an invalid definition or schema.
//
// If a tool's own Definition has a schema, it applies even if
// Options.Definition has another.
func Guard(t Tool, opts Options) (*Guarded, error) {
	own := t.Definition()
	def := own
	if opts.Definition.Name != "" {
		def = opts.Definition
		if len(def.Parameters) == 0 {
			def.Parameters = own.Parameters
		}
		if len(def.Output) == 0 {
			def.Output = own.Output
		}
	}
	if err := def.Validate(); err != nil {
		return nil, err
	}
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	if opts.MaxArgs <= 0 {
		opts.MaxArgs = DefaultMaxArgs
	}
	if opts.MaxResult <= 0 {
		opts.MaxResult = DefaultMaxResult
	}
	if opts.MaxOverruns <= 0 {
		opts.MaxOverruns = DefaultMaxOverruns
	}
	if opts.Compile == nil {
		opts.Compile = CompileSchema
	}
	g := &Guarded{tool: t, def: def, opts: opts}
	if opts.CacheTTL > 0 {
		g.cache = newCache(opts.CacheTTL)
	}
	var err error
	if g.args, err = compileAll(opts.Compile, def.Parameters, own.Parameters); err != nil {
		return nil, fmt.Errorf("tool %s: parameters %w", def.Name, err)
	}
	if g.result, err = compileAll(opts.Compile, def.Output, own.Output); err != nil {
		return nil, fmt.Errorf("tool %s: output %w", def.Name, err)
	}
	return g, nil
}

func compileAll(compile Compiler, schemas ...json.RawMessage) (vs []Validator, err error) {
	for i, s := range schemas {
		if len(s) == 0 || i > 0 && bytes.Equal(s, schemas[0]) {
			continue
		}
		v, err := compile(s)
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
	}
	return vs, nil
}

// Definition returns the definition that the model sees.
func (g *Guarded) Definition() Definition { return g.def }

// Call calls the tool within its limits. Empty args mean {}. The error is an
// [*Error] with a text of at most 8 KiB, or the context's own if the caller's
// context ended the call.
//
// When the time limit is reached, or the caller's context ends, Call returns
// soon, even if the tool is still running.
func (g *Guarded) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	if len(args) > g.opts.MaxArgs {
		return nil, g.errorf(ErrInvalidArguments, "%d bytes exceed the bound of %d", len(args), g.opts.MaxArgs)
	}
	if n := g.overruns.Load(); n >= int64(g.opts.MaxOverruns) {
		return nil, g.errorf(ErrBusy, "%d earlier calls overran their time and still run", n)
	}

	callCtx, cancel := ctx, context.CancelFunc(func() {})
	if g.opts.Timeout > 0 {
		callCtx, cancel = context.WithTimeoutCause(ctx, g.opts.Timeout, errTimeUp)
	}
	defer cancel()

	// The tool gets a copy: after an overrun it may still read while the caller
	// already writes.
	args = slices.Clone(args)
	done := make(chan outcome, 1)
	var left atomic.Bool // the first to swap it wins: the tool has finished, or Call has given up
	go func() {
		var o outcome
		defer func() { // also runs if the tool calls runtime.Goexit
			if left.Swap(true) {
				g.overruns.Add(-1)
				return
			}
			done <- o
		}()
		g.run(callCtx, args, &o)
	}()

	select {
	case o := <-done:
		return g.conclude(ctx, callCtx, o)
	case <-callCtx.Done():
	}
	timer := time.NewTimer(heed)
	defer timer.Stop()
	select {
	case o := <-done:
		return g.conclude(ctx, callCtx, o)
	case <-timer.C:
	}
	if left.Swap(true) {
		return g.conclude(ctx, callCtx, <-done)
	}
	g.overruns.Add(1)
	return nil, g.ended(ctx)
}

// heed is how long a tool may take to return after its context ended before the
// call counts as an overrun.
const heed = 50 * time.Millisecond

var errTimeUp = errors.New("tool call: time is up")

type outcome struct {
	result json.RawMessage
	err    error
}

// run calls the tool and sets the outcome, however the tool ends.
func (g *Guarded) run(ctx context.Context, args json.RawMessage, o *outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		cause := errors.New("runtime.Goexit") // recover returns nil for it
		if p := recover(); p != nil {
			cause = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		*o = outcome{nil, &Error{Kind: ErrFailed, Tool: g.def.Name, Message: "it broke down", Err: cause}}
	}()
	o.result, o.err = g.checked(ctx, args)
	returned = true
}

func (g *Guarded) checked(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	if !isObject(args) {
		return nil, g.errorf(ErrInvalidArguments, "want a JSON object")
	}
	for _, v := range g.args {
		if err := v.Validate(args); err != nil {
			return nil, g.errorf(ErrInvalidArguments, "%s", err)
		}
	}
	var key [32]byte
	if g.cache != nil {
		key = keyOf(args)
		if result, ok := g.cache.get(key); ok {
			return result, nil
		}
	}
	result, err := g.tool.Call(ctx, args)
	if err != nil {
		return nil, err
	}
	tooLarge := func() error {
		return g.errorf(ErrInvalidResult, "%d bytes exceed the bound of %d", len(result), g.opts.MaxResult)
	}
	if len(result) > g.opts.MaxResult {
		return nil, tooLarge()
	}
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	if !json.Valid(result) {
		return nil, g.errorf(ErrInvalidResult, "not valid JSON")
	}
	if !utf8.Valid(result) { // [json.Valid] accepts any bytes in strings
		if result = bytes.ToValidUTF8(result, []byte("\uFFFD")); len(result) > g.opts.MaxResult {
			return nil, tooLarge()
		}
	}
	for _, v := range g.result {
		if err := v.Validate(result); err != nil {
			return nil, g.errorf(ErrInvalidResult, "%s", err)
		}
	}
	if g.cache != nil {
		g.cache.put(key, result)
	}
	return result, nil
}

// conclude converts the tool's result to the result of Call.
func (g *Guarded) conclude(ctx, callCtx context.Context, o outcome) (json.RawMessage, error) {
	if o.err == nil {
		return o.result, nil
	}
	if errors.Is(o.err, context.Canceled) || errors.Is(o.err, context.DeadlineExceeded) {
		if callCtx.Err() != nil {
			return nil, g.ended(ctx)
		}
	}
	var e *Error
	switch {
	case !errors.As(o.err, &e):
		e = &Error{Kind: ErrFailed, Tool: g.def.Name, Message: o.err.Error(), Err: o.err}
	case len(e.Message) <= maxMessage:
		return nil, o.err
	}
	short := *e
	short.Message = clip.Text(e.Message, maxMessage)
	return nil, &short
}

// ended is the error of a call whose context has ended.
func (g *Guarded) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return &Error{Kind: ErrTimeout, Tool: g.def.Name, Message: fmt.Sprintf("no result within %s", g.opts.Timeout), Err: errTimeUp}
}

func (g *Guarded) errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Tool: g.def.Name, Message: fmt.Sprintf(format, args...)}
}
