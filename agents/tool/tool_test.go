package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
)

func TestFuncConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(_ *testing.T, b tooltest.Behaviour) tool.Tool {
		return tool.Func(tooltest.Definition(), func(ctx context.Context, in map[string]json.RawMessage) (map[string]json.RawMessage, error) {
			switch b {
			case tooltest.Fail:
				return nil, errors.New(tooltest.FailText)
			case tooltest.Hang:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return in, nil
		})
	})
}

type in struct {
	N    int    `json:"n"`
	Name string `json:"name"`
}

func TestFuncDecodesStrictly(t *testing.T) {
	t.Parallel()
	f := tool.Func(tool.Definition{Name: "f"}, func(_ context.Context, v in) (string, error) { return fmt.Sprintf("%d<%s>", v.N, v.Name), nil })
	got, err := f.Call(t.Context(), json.RawMessage(`{"n":1,"name":"x"}`))
	if err != nil || string(got) != `"1<x>"` {
		t.Errorf("result %s, error %v", got, err)
	}
	for args, want := range map[string]string{
		`{"n":"one"}`:      "n: a JSON string does not fit",
		`{"m":1}`:          `unknown field "m"`,
		`{"n":1} {"n":2}`:  "more than one",
		`[1]`:              "arguments: a JSON array does not fit",
		`{"n":1`:           "unexpected EOF",
		`{"n":1e400}`:      "n: a JSON number 1e400 does not fit",
		`{"name":{"a":1}}`: "name: a JSON object does not fit",
	} {
		_, err := f.Call(t.Context(), json.RawMessage(args))
		if !errors.Is(err, tool.ErrInvalidArguments) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", args, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: error names Go types: %v", args, err)
		}
	}
}

// A schema that bounds "path" does not restrict "PATH", which encoding/json accepts for it.
func TestFuncComparesNamesExactly(t *testing.T) {
	t.Parallel()
	type file struct {
		Path string `json:"path"`
	}
	type Where struct {
		Root file `json:"root"`
	}
	type args struct {
		Where
		Files []*file         `json:"files"`
		By    map[string]file `json:"by"`
		Raw   json.RawMessage `json:"raw"`
		Data  []byte          `json:"data"`
		When  time.Time       `json:"when"`
		Free  string
	}
	f := tool.Func(tool.Definition{Name: "f"}, func(_ context.Context, a args) (args, error) { return a, nil })
	for _, ok := range []string{
		`{"files":[{"path":"a"},null],"by":{"PATH":{"path":"b"}},"root":{"path":"c"}}`,
		`{"raw":{"PATH":1,"path":2},"data":"AA==","when":"2026-11-29T00:00:00Z"}`,
		`{"free":"any case"}`, `{"Free":"its name in Go"}`, `{"files":null,"root":null}`, `null`,
	} {
		if _, err := f.Call(t.Context(), json.RawMessage(ok)); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for bad, want := range map[string]string{
		`{"FILES":[]}`: `unknown field "FILES": its name is "files"`,
		`{"files":[{"path":"a"},{"PATH":"/etc"}]}`: `unknown field "PATH": its name is "path"`,
		`{"by":{"x":{"path":"a","Path":"/etc"}}}`:  `unknown field "Path"`,
		`{"root":{"PATH":"/etc"}}`:                 `unknown field "PATH"`,
		`{"ROOT":{}}`:                              `unknown field "ROOT"`,
		`{"free":"a","FREE":"b"}`:                  `"FREE" and "free" are the same field`,
	} {
		_, err := f.Call(t.Context(), json.RawMessage(bad))
		if !errors.Is(err, tool.ErrInvalidArguments) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", bad, err, want)
		}
	}
}

func TestFuncResultThatIsNoJSON(t *testing.T) {
	t.Parallel()
	f := tool.Func(tool.Definition{Name: "f"}, func(context.Context, in) (any, error) { return func() {}, nil })
	if _, err := f.Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, tool.ErrInvalidResult) {
		t.Errorf("error %v, want %v", err, tool.ErrInvalidResult)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	var r tool.Registry
	a, b := &tooltest.Fake{Def: tool.Definition{Name: "a"}}, &tooltest.Fake{Def: tool.Definition{Name: "b"}}
	if err := r.Add(b, a); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Lookup("a"); got != tool.Tool(a) || err != nil {
		t.Errorf("Lookup(a) = %v, %v", got, err)
	}
	if _, err := r.Lookup("c"); !errors.Is(err, tool.ErrNotFound) || err.Error() != "tool c: not found: no tool has this name" {
		t.Errorf("Lookup(c): %v", err)
	}
	if err := r.Add(&tooltest.Fake{Def: tool.Definition{Name: "c"}}, a); err == nil {
		t.Error("a name was taken twice")
	}
	for _, name := range []string{"", "1a", "-a", "a b", "a.b", "ä", strings.Repeat("a", 65)} {
		if err := r.Add(&tooltest.Fake{Def: tool.Definition{Name: name}}); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	if got := r.Names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %v: a refused Add left something behind", got)
	}
	if got := r.Tools(); !reflect.DeepEqual(got, []tool.Tool{a, b}) {
		t.Errorf("tools %v", got)
	}
}

func guard(t *testing.T, tl tool.Tool, o tool.Options) *tool.Guarded {
	t.Helper()
	g, err := tool.Guard(tl, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuardConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
		return guard(t, &tooltest.Fake{Def: tooltest.Definition(), Behaviour: b}, tool.Options{})
	})
}

func TestGuardChecksArgumentsBeforeTheToolSeesThem(t *testing.T) {
	t.Parallel()
	fake := &tooltest.Fake{Def: tool.Definition{Name: "f", Parameters: json.RawMessage(
		`{"type":"object","required":["path"],"additionalProperties":false,"properties":{"path":{"type":"string","minLength":1},"n":{"type":"integer","maximum":5}}}`)}}
	g := guard(t, fake, tool.Options{MaxArgs: 100})
	for args, want := range map[string]string{
		`{}`:                             `(root): lacks the property "path" (required)`,
		`{"path":"","n":6}`:              `/path: has 0 characters, at least 1 are required (minLength); /n: must be at most 5 (maximum)`,
		`{"path":"x","y":1}`:             `/y: is no property that is allowed here`,
		`"rm -rf /"`:                     `want a JSON object`,
		`[]`:                             `want a JSON object`,
		`{"path":"x"`:                    `want a JSON object`,
		`{"path":"x","n":1e999999999}`:   `exponent beyond`,
		`{"path":"x","n":-1E-999999999}`: `exponent beyond`,
		`{"path":"` + strings.Repeat("x", 100) + `"}`: `bytes exceed the bound of 100`,
	} {
		_, err := g.Call(t.Context(), json.RawMessage(args))
		if !errors.Is(err, tool.ErrInvalidArguments) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.40s: error %v, want one that says %q", args, err, want)
		}
	}
	if n := len(fake.Calls()); n != 0 {
		t.Errorf("the tool was called %d times", n)
	}
	if _, err := g.Call(t.Context(), json.RawMessage(`{"path":"x"}`)); err != nil {
		t.Error(err)
	}
}

func TestGuardTakesNoArgumentsAsAnEmptyObject(t *testing.T) {
	t.Parallel()
	fake := &tooltest.Fake{Def: tool.Definition{Name: "f"}}
	for _, args := range []string{"", " \n"} {
		if got, err := guard(t, fake, tool.Options{}).Call(t.Context(), json.RawMessage(args)); err != nil || string(got) != "{}" {
			t.Errorf("result %s, error %v", got, err)
		}
	}
}

func TestGuardChecksResults(t *testing.T) {
	t.Parallel()
	def := tool.Definition{Name: "f", Output: json.RawMessage(`{"type":"object","required":["ok"]}`)}
	for result, want := range map[string]string{
		`{}`:     `lacks the property "ok"`,
		`{"ok":`: "not valid JSON",
		``:       "must be object, not null",
		`{"ok":1e5000,"x":"` + strings.Repeat("x", 300) + `"}`: "exceed the bound of 200",
	} {
		g := guard(t, tool.Raw(def, func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(result), nil
		}), tool.Options{MaxResult: 200})
		got, err := g.Call(t.Context(), nil)
		if got != nil || !errors.Is(err, tool.ErrInvalidResult) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.40s: result %s, error %v, want one that says %q", result, got, err, want)
		}
	}
	nothing := guard(t, tool.Raw(tool.Definition{Name: "f"}, func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }), tool.Options{})
	if got, err := nothing.Call(t.Context(), nil); err != nil || string(got) != "null" {
		t.Errorf("no result became %s, %v, want null", got, err)
	}
}

// Providers refuse a conversation with invalid UTF-8, which would end the whole run.
func TestGuardWritesResultsInUTF8(t *testing.T) {
	t.Parallel()
	g := guard(t, tool.Raw(tool.Definition{Name: "f", Output: json.RawMessage(`{"type":"object"}`)}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage("{\"caf\xe9\":\"na\xefve\",\"n\":1.0}"), nil // in Latin-1
	}), tool.Options{})
	small := guard(t, tool.Raw(tool.Definition{Name: "f"}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage("\"\xe9\""), nil // longer in UTF-8
	}), tool.Options{MaxResult: 3})
	if got, err := small.Call(t.Context(), nil); !errors.Is(err, tool.ErrInvalidResult) || !strings.Contains(err.Error(), "5 bytes exceed the bound of 3") {
		t.Errorf("%s, %v", got, err)
	}
	got, err := g.Call(t.Context(), nil)
	if want := "{\"caf\uFFFD\":\"na\uFFFDve\",\"n\":1.0}"; err != nil || string(got) != want {
		t.Errorf("result %q, error %v, want %q", got, err, want)
	}
}

func TestGuardHoldsADocumentsSchemaAndTheToolsOwn(t *testing.T) {
	t.Parallel()
	fake := &tooltest.Fake{Def: tool.Definition{Name: "own", Description: "own",
		Parameters: json.RawMessage(`{"properties":{"n":{"maximum":5}}}`), Output: json.RawMessage(`{"type":"object"}`)}}
	g := guard(t, fake, tool.Options{Definition: tool.Definition{Name: "doc", Description: "doc", Parameters: json.RawMessage(`{"properties":{"n":{"minimum":1}}}`)}})
	want := tool.Definition{Name: "doc", Description: "doc", Parameters: json.RawMessage(`{"properties":{"n":{"minimum":1}}}`), Output: json.RawMessage(`{"type":"object"}`)}
	if got := g.Definition(); !reflect.DeepEqual(got, want) {
		t.Errorf("definition %+v, want %+v", got, want)
	}
	for args, ok := range map[string]bool{`{"n":0}`: false, `{"n":3}`: true, `{"n":6}`: false} {
		if _, err := g.Call(t.Context(), json.RawMessage(args)); (err == nil) != ok {
			t.Errorf("%s: %v", args, err)
		}
	}
	// Results must fit both schemas, too.
	fake.Def.Output = json.RawMessage(`{"required":["own"]}`)
	g = guard(t, fake, tool.Options{Definition: tool.Definition{Name: "doc", Output: json.RawMessage(`{"required":["doc"]}`)}})
	for result, ok := range map[string]bool{`{"own":1}`: false, `{"doc":1}`: false, `{"own":1,"doc":1}`: true} { // a Fake returns its arguments
		if _, err := g.Call(t.Context(), json.RawMessage(result)); (err == nil) != ok || err != nil && !errors.Is(err, tool.ErrInvalidResult) {
			t.Errorf("%s: %v", result, err)
		}
	}
}

func TestGuardRefusesSchemasThatReachOut(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"$ref":"file:///etc/passwd"}`:                "refers to another document",
		`{"$ref":"http://169.254.169.254/latest"}`:     "refers to another document",
		`{"$schema":"https://evil.example/meta"}`:      "no JSON Schema draft",
		`{"$ref":"#/$defs/none"}`:                      "that holds no schema",
		`{"type":"objekt"}`:                            "schema",
		`{"type":`:                                     "must be a JSON object",
		`[]`:                                           "must be a JSON object",
		`{"maximum":1e999999999}`:                      "exponent beyond",
		`{"x":"` + strings.Repeat("x", 300_000) + `"}`: "is larger than",
	} {
		fake := &tooltest.Fake{Def: tool.Definition{Name: "f", Parameters: json.RawMessage(schema)}}
		if _, err := tool.Guard(fake, tool.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want one that says %q", schema, err, want)
		}
	}
	if _, err := tool.CompileSchema(json.RawMessage(`{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}}`)); err != nil {
		t.Errorf("a reference within: %v", err)
	}
}

// Finding 21 of the security review: a Guard with the default Compiler panicked on the first
// schema, and validated without end by the second.
func TestGuardsOwnCompilerIsBounded(t *testing.T) {
	t.Parallel()
	fake := &tooltest.Fake{Def: tool.Definition{Name: "f", Parameters: json.RawMessage(`{"regexProperties":1}`)}}
	if _, err := tool.Guard(fake, tool.Options{}); err == nil || !strings.Contains(err.Error(), "regexProperties") {
		t.Errorf("error %v, want one about regexProperties", err)
	}
	var defs []string
	for i := range 60 {
		defs = append(defs, fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1))
	}
	fake = &tooltest.Fake{Def: tool.Definition{Name: "f", Parameters: json.RawMessage(`{"$ref":"#/$defs/a0","$defs":{` + strings.Join(defs, ",") + `,"a60":{}}}`)}}
	_, err := guard(t, fake, tool.Options{Timeout: -1}).Call(t.Context(), nil)
	if !errors.Is(err, tool.ErrInvalidArguments) || !strings.Contains(err.Error(), "too much work") {
		t.Errorf("error %v, want that it takes too much work", err)
	}
}

func TestGuardUsesTheCallersCompiler(t *testing.T) {
	t.Parallel()
	g := guard(t, &tooltest.Fake{Def: tooltest.Definition()}, tool.Options{
		Compile: func(schema json.RawMessage) (tool.Validator, error) { return refuser(schema), nil },
	})
	if _, err := g.Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, tool.ErrInvalidArguments) || !strings.Contains(err.Error(), "refused by") {
		t.Errorf("error %v", err)
	}
}

type refuser string

func (r refuser) Validate(json.RawMessage) error { return fmt.Errorf("refused by %s", string(r)) }

func TestGuardTurnsAPanicIntoAnError(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(){
		"panic":     func() { panic("secret internals") },
		"nil panic": func() { panic(nil) },
		"Goexit":    runtime.Goexit,
	} {
		g := guard(t, tool.Raw(tool.Definition{Name: "f"}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
			fn()
			return nil, nil
		}), tool.Options{})
		_, err := g.Call(t.Context(), nil)
		var e *tool.Error
		if !errors.Is(err, tool.ErrFailed) || !errors.As(err, &e) || e.Err == nil {
			t.Fatalf("%s: error %v, want %v with a cause", name, err, tool.ErrFailed)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the text tells internals: %v", name, err)
		}
		if name == "panic" && !strings.Contains(e.Err.Error(), "secret internals") {
			t.Errorf("the cause lost the panic: %v", e.Err)
		}
	}
}

func TestGuardLeavesATypedErrorAsItIs(t *testing.T) {
	t.Parallel()
	want := &tool.Error{Kind: tool.ErrInvalidArguments, Tool: "f", Message: "path: no such file"}
	g := guard(t, tool.Raw(tool.Definition{Name: "f"}, func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, want }), tool.Options{})
	if _, err := g.Call(t.Context(), nil); err != error(want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// The text of an error takes up a part of the model's context, so the guard bounds it like a
// result, for every tool.
func TestGuardBoundsTheTextOfAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("why")
	long := strings.Repeat("x", 1<<20)
	for _, err := range []error{errors.New(long), &tool.Error{Kind: tool.ErrUnavailable, Tool: "f", Message: long, NotMade: true, Err: cause}} {
		g := guard(t, tool.Raw(tool.Definition{Name: "f"}, func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, err }), tool.Options{})
		_, got := g.Call(t.Context(), nil)
		var e *tool.Error
		if !errors.As(got, &e) || len(e.Message) > 9000 || !strings.HasPrefix(e.Message, "xxx") || !strings.HasSuffix(e.Message, "…") {
			t.Fatalf("an error of %d bytes", len(fmt.Sprint(got)))
		}
		if typed := new(tool.Error); errors.As(err, &typed) && (e.Kind != typed.Kind || !e.NotMade || !errors.Is(e, cause)) {
			t.Errorf("it became %+v", e)
		}
	}
}

func TestGuardGivesUpOnAToolThatDoesNotHeedItsContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var begun atomic.Int32
	deaf := tool.Raw(tool.Definition{Name: "deaf"}, func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
		begun.Add(1)
		<-release
		return args, nil
	})
	g := guard(t, deaf, tool.Options{Timeout: time.Millisecond, MaxOverruns: 2})
	for begun.Load() < 2 { // on a busy machine the time of a call may be over before the tool begins
		if _, err := g.Call(t.Context(), nil); !errors.Is(err, tool.ErrTimeout) && !errors.Is(err, tool.ErrBusy) {
			t.Fatalf("error %v, want %v", err, tool.ErrTimeout)
		}
	}
	if _, err := g.Call(t.Context(), nil); !errors.Is(err, tool.ErrBusy) {
		t.Fatalf("with two overruns: error %v, want %v", err, tool.ErrBusy)
	}
	close(release)
	got, err := g.Call(t.Context(), nil)
	for errors.Is(err, tool.ErrBusy) || errors.Is(err, tool.ErrTimeout) { // a busy machine takes longer than the time of a call
		runtime.Gosched()
		got, err = g.Call(t.Context(), nil)
	}
	if err != nil || string(got) != "{}" {
		t.Errorf("after the overruns ended: %s, %v", got, err)
	}
}

// A tool that overruns its time may read its arguments while the caller uses their memory again.
func TestAToolThatOverrunsKeepsItsArguments(t *testing.T) {
	t.Parallel()
	begun, release, read := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	deaf := tool.Raw(tool.Definition{Name: "deaf"}, func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
		close(begun)
		<-release
		read <- string(args)
		return args, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	args := json.RawMessage(`{"path":"a"}`)
	if _, err := guard(t, deaf, tool.Options{Timeout: -1}).Call(ctx, args); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	copy(args, `{"path":"b"}`)
	close(release)
	if got := <-read; got != `{"path":"a"}` {
		t.Errorf("the tool reads %s", got)
	}
}

// aware counts calls, whatever the state of their context.
type aware struct {
	tool.Tool
	calls int
}

func (a *aware) Call(context.Context, json.RawMessage) (json.RawMessage, error) {
	a.calls++
	return nil, nil
}

func TestAnEndedCallDoesNotReachTheTool(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &aware{Tool: &tooltest.Fake{Def: tool.Definition{Name: "f"}}}
	if _, err := guard(t, a, tool.Options{}).Call(ctx, nil); !errors.Is(err, context.Canceled) || a.calls != 0 {
		t.Errorf("%v after %d calls", err, a.calls)
	}
}

func TestGuardTellsTheCallersEndFromItsOwn(t *testing.T) {
	t.Parallel()
	g := guard(t, &tooltest.Fake{Def: tool.Definition{Name: "f"}, Behaviour: tooltest.Hang}, tool.Options{Timeout: -1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := g.Call(ctx, nil)
	var e *tool.Error
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) {
		t.Errorf("error %v (%T), want the context's own", err, err)
	}
}

// An exponential schema keeps the validator busy; the call still ends in time.
func TestGuardBoundsTheTimeOfValidation(t *testing.T) {
	t.Parallel()
	var defs []string
	for i := range 14 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	schema := `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `,"d14":{"type":"object"}}}`
	g := guard(t, &tooltest.Fake{Def: tool.Definition{Name: "f", Parameters: json.RawMessage(schema)}}, tool.Options{Timeout: time.Nanosecond})
	if _, err := g.Call(t.Context(), nil); !errors.Is(err, tool.ErrTimeout) {
		t.Errorf("error %v, want %v", err, tool.ErrTimeout)
	}
}

func TestRepeatSafeIsSaidByTheTool(t *testing.T) {
	t.Parallel()
	plain := tool.Raw(tool.Definition{Name: "pay"}, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		return json.Marshal(tool.KeyFrom(ctx))
	})
	for _, c := range []struct {
		tool tool.Tool
		want bool
	}{{plain, false}, {tool.RepeatSafe(plain), true}} {
		g, err := tool.Guard(c.tool, tool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if tool.IsRepeatSafe(c.tool) != c.want || tool.IsRepeatSafe(g) != c.want {
			t.Errorf("repeat safe: got %v and, guarded, %v; want %v", tool.IsRepeatSafe(c.tool), tool.IsRepeatSafe(g), c.want)
		}
		for key, want := range map[string]string{"k1": `"k1"`, "": `""`} {
			ctx := t.Context()
			if key != "" {
				ctx = tool.WithKey(ctx, key)
			}
			if got, err := g.Call(ctx, nil); err != nil || string(got) != want {
				t.Errorf("key: got %s, %v; want %s", got, err, want)
			}
		}
	}
}
