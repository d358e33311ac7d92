//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// outcome is that of a call.
type outcome struct {
	result string
	err    error
}

// deaf returns the function that calls the tool of a server that reads nothing during a call. A
// call with wait lasts until release. begun receives a value when the server works on one.
func deaf(t *testing.T, timeout time.Duration) (call func(ctx context.Context, wait bool) <-chan outcome, begun <-chan struct{}, release func()) {
	t.Helper()
	at, until := make(chan struct{}, 10), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at <- struct{}{}
		select {
		case <-until:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	tl := tools(t, open(t, newServers(t, mcp.Server{Command: self(t, "deaf")}, mcp.WithWriteTimeout(timeout)), "mcp://it/work"))["subject"]
	return func(ctx context.Context, wait bool) <-chan outcome {
		args := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 200_000)) // more than a pipe holds
		if wait {
			args = fmt.Sprintf(`{"until":%q}`, srv.URL)
		}
		done := make(chan outcome, 1)
		go func() {
			got, err := tl.Call(ctx, json.RawMessage(args))
			done <- outcome{string(got), err}
		}()
		return done
	}, at, func() { close(until) }
}

// A server that does one thing at a time may read nothing during a call. Another call with large
// arguments waits until it reads again, or until its own deadline.
func TestAServerThatReadsNothingDuringACallKeepsItsSession(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	const timeout = time.Second
	call, begun, release := deaf(t, timeout)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := call(ctx, true)
	<-begun
	short, stop := context.WithTimeout(ctx, timeout*3/2)
	defer stop()
	if got := <-call(short, false); !errors.Is(got.err, context.DeadlineExceeded) {
		t.Errorf("a call whose deadline passes: %+v", got)
	}
	second := call(ctx, false)
	select {
	case got := <-first:
		t.Errorf("the first call ends: %+v", got)
	case got := <-second:
		t.Errorf("the second call ends: %+v", got)
	case <-time.After(timeout * 3 / 2):
	}
	release()
	a, b := <-first, <-second
	if a.err != nil || a != b {
		t.Errorf("the calls end with %+v and %+v", a, b)
	}
}

// When the call that such a server works on has ended, it has to read.
func TestAServerThatReadsNothingIsGivenUpAfterItsCall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	const timeout = time.Second
	call, begun, _ := deaf(t, timeout)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	short, stop := context.WithTimeout(ctx, timeout*3/2)
	defer stop()
	first := call(short, true)
	<-begun
	second, third := call(ctx, false), call(ctx, false)
	if got := <-first; !errors.Is(got.err, context.DeadlineExceeded) {
		t.Errorf("the first call: %+v", got)
	}
	for _, c := range []<-chan outcome{second, third} {
		if got := <-c; errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("a later call: %+v; want the answer of another server, or the end of the session", got)
		}
	}
}
