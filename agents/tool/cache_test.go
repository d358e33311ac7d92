package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
)

func counting(calls *int) tool.Tool {
	return tool.RepeatSafe(tool.Raw(tool.Definition{Name: "count"}, func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
		*calls++
		switch {
		case strings.Contains(string(args), "fail"):
			return nil, errors.New("no luck")
		case strings.Contains(string(args), "large"):
			return json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`), nil
		}
		return json.RawMessage(fmt.Sprint(*calls)), nil
	}))
}

// cached guards a tool and keeps its results.
func cached(t *testing.T, tl tool.Tool, ttl time.Duration) *tool.Guarded {
	t.Helper()
	g, err := tool.Guard(tl, tool.Options{CacheTTL: ttl, MaxResult: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCachedConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
		return cached(t, &tooltest.Fake{Def: tooltest.Definition(), Behaviour: b}, time.Minute)
	})
}

func TestCachedKeepsResultsForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := cached(t, counting(&calls), time.Minute)
		call := func(args, want string) {
			t.Helper()
			got, err := c.Call(t.Context(), json.RawMessage(args))
			if err == nil && string(got) != want || err != nil && want != "" {
				t.Errorf("%s: %s, %v; want %s", args, got, err, want)
			}
			if len(got) > 0 {
				got[0] = 'x' // the caller's
			}
		}
		call(`{"a":1,"b":2}`, "1")
		call(`{ "b": 2.0, "a": 1 }`, "1")
		call(`{"a":2}`, "2")
		<-time.After(59 * time.Second)
		call(`{"a":1,"b":2}`, "1")
		<-time.After(time.Second)
		call(`{"a":1,"b":2}`, "3")
		call(`{"fail":1}`, "")
		call(`{"fail":1}`, "")
		if calls != 5 {
			t.Errorf("%d calls, want 5: failures are not kept", calls)
		}
		c.Call(t.Context(), json.RawMessage(`{"large":1}`))
		c.Call(t.Context(), json.RawMessage(`{"large":1}`))
		if calls != 7 {
			t.Errorf("%d calls, want 7: what is too large is not kept", calls)
		}
		for i := range 2000 {
			c.Call(t.Context(), json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
		}
		before := calls
		c.Call(t.Context(), json.RawMessage(`{"n":1999}`))
		c.Call(t.Context(), json.RawMessage(`{"n":0}`))
		if calls != before+1 {
			t.Errorf("%d calls, want 1: the oldest go when it is full", calls-before)
		}
	})
}

// Numbers that a float cannot distinguish are different arguments.
func TestCachedTellsLargeNumbersApart(t *testing.T) {
	t.Parallel()
	calls := 0
	c := cached(t, counting(&calls), time.Hour)
	for i, args := range []string{`{"id":9007199254740992}`, `{"id":9007199254740993}`, `{"id":0.1}`, `{"id":0.1000000000000000000001}`, `{"id":1e400}`, `{"id":1e401}`} {
		if got, err := c.Call(t.Context(), json.RawMessage(args)); err != nil || string(got) != fmt.Sprint(i+1) {
			t.Errorf("%s gets the result of call %s, %v", args, got, err)
		}
	}
	if got, err := c.Call(t.Context(), json.RawMessage(`{"id":9007199254740993}`)); err != nil || string(got) != "2" {
		t.Errorf("again: %s, %v", got, err)
	}
}

// A refused result is not cached.
func TestRefusedResultsAreNotKept(t *testing.T) {
	t.Parallel()
	calls := 0
	tl := tool.Raw(tool.Definition{Name: "status", Output: json.RawMessage(`{"type":"object"}`)}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
		if calls++; calls == 1 {
			return json.RawMessage(`"down for maintenance"`), nil
		}
		return json.RawMessage(`{"calls":2}`), nil
	})
	c := cached(t, tl, time.Hour)
	if _, err := c.Call(t.Context(), nil); !errors.Is(err, tool.ErrInvalidResult) {
		t.Errorf("error %v", err)
	}
	for range 2 {
		if got, err := c.Call(t.Context(), nil); err != nil || string(got) != `{"calls":2}` {
			t.Errorf("result %s, error %v", got, err)
		}
	}
}
