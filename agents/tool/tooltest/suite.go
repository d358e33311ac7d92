package tooltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool"
)

// NewFunc makes the tool under test. Its Definition is [Definition], and it has
// behaviour b. It registers its own cleanup.
type NewFunc func(t *testing.T, b Behaviour) tool.Tool

// patience bounds waits that are normally short; it does not slow down a
// successful test.
const patience = 30 * time.Second

// Run is the conformance suite of [tool.Tool]. Run it under -race.
func Run(t *testing.T, newTool NewFunc) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, NewFunc)
	}{
		{"defines itself", testDefinition},
		{"returns its result", testResult},
		{"tells why it failed", testFailure},
		{"obeys its context", testContext},
		{"leaves its arguments alone", testRetention},
		{"serves many at once", testConcurrency},
		{"works behind a guard", testGuard},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.test(t, newTool)
		})
	}
}

func call(t *testing.T, tl tool.Tool, args string) (json.RawMessage, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result, err := tl.Call(ctx, json.RawMessage(args))
	if err != nil && result != nil {
		t.Errorf("Call returned both %s and %v", result, err)
	}
	return result, err
}

func testDefinition(t *testing.T, newTool NewFunc) {
	tl := newTool(t, Echo)
	if got := tl.Definition(); !reflect.DeepEqual(got, Definition()) {
		t.Errorf("definition %+v, want %+v", got, Definition())
	}
	if !reflect.DeepEqual(tl.Definition(), tl.Definition()) {
		t.Error("the definition changes")
	}
}

func testResult(t *testing.T, newTool NewFunc) {
	tl := newTool(t, Echo)
	for _, args := range []string{
		`{}`,
		`{"n":9007199254740993,"s":"a «b»\n<c>&","deep":{"list":[1,2.50,null,true]}}`,
		`{"big":"` + strings.Repeat("x", 200_000) + `"}`, // more than fits into a pipe
	} {
		got, err := call(t, tl, args)
		if err != nil {
			t.Fatalf("call with %.60s: %v", args, err)
		}
		wantJSON(t, got, args)
	}
}

func testFailure(t *testing.T, newTool NewFunc) {
	tl := newTool(t, Fail)
	_, err := call(t, tl, `{"n":1}`)
	if err == nil || !strings.Contains(err.Error(), FailText) {
		t.Errorf("error %v, want one that says %q", err, FailText)
	}
}

func testContext(t *testing.T, newTool NewFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newTool(t, Echo).Call(ctx, json.RawMessage(`{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is done: error %v, want %v", err, context.Canceled)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	tl := newTool(t, Hang)
	done := make(chan error, 1)
	go func() {
		_, err := tl.Call(ctx, json.RawMessage(`{}`))
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("past the deadline: error %v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(patience):
		t.Fatalf("Call did not return within %s of its deadline", patience)
	}
}

func testRetention(t *testing.T, newTool NewFunc) {
	tl := newTool(t, Echo)
	args := []byte(`{"n":1}`)
	got, err := call(t, tl, string(args))
	if err != nil {
		t.Fatal(err)
	}
	if string(args) != `{"n":1}` {
		t.Errorf("the arguments became %s", args)
	}
	clear(args)
	wantJSON(t, got, `{"n":1}`)
	clear(got)
	if got, err = call(t, tl, `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	wantJSON(t, got, `{"n":1}`)
}

func testConcurrency(t *testing.T, newTool NewFunc) {
	tl := newTool(t, Echo)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			want := fmt.Sprintf(`{"n":%d}`, i)
			got, err := tl.Call(t.Context(), json.RawMessage(want))
			if err != nil {
				t.Errorf("call %d: %v", i, err)
				return
			}
			wantJSON(t, got, want)
		})
	}
	wg.Wait()
}

func testGuard(t *testing.T, newTool NewFunc) {
	guard := func(b Behaviour, o tool.Options) *tool.Guarded {
		g, err := tool.Guard(newTool(t, b), o)
		if err != nil {
			t.Fatalf("guard: %v", err)
		}
		return g
	}
	got, err := call(t, guard(Echo, tool.Options{}), `{"n":1}`)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, got, `{"n":1}`)
	if _, err := call(t, guard(Echo, tool.Options{}), `{"n":"one"}`); !errors.Is(err, tool.ErrInvalidArguments) {
		t.Errorf("error %v, want %v", err, tool.ErrInvalidArguments)
	}
	if _, err := call(t, guard(Fail, tool.Options{}), `{}`); !errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), FailText) {
		t.Errorf("error %v, want %v that says %q", err, tool.ErrFailed, FailText)
	}
	if _, err := call(t, guard(Hang, tool.Options{Timeout: 20 * time.Millisecond}), `{}`); !errors.Is(err, tool.ErrTimeout) {
		t.Errorf("error %v, want %v", err, tool.ErrTimeout)
	}
}

func wantJSON(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	if !reflect.DeepEqual(decode(t, got), decode(t, json.RawMessage(want))) {
		t.Errorf("JSON %.300s, want %.300s", got, want)
	}
}

func decode(t *testing.T, b json.RawMessage) (v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Errorf("decode %.300q: %v", b, err)
	}
	return v
}
