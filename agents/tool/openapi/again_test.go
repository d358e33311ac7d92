package openapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// A description that is not available is requested again after a pause.
func TestDescriptionsThatAreNotThere(t *testing.T) {
	t.Parallel()
	var asked int
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked == 1 {
			http.Error(w, "not yet", http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, petstore)
	}))
	t.Cleanup(server.Close)
	p, err := outbound.New(outbound.Config{Allow: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	src, err := Open(&aaif.Tool{Name: "api", Description: "d", Endpoint: server.URL}, outbound.Access{Policy: p}, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := src.Tools(t.Context()); !errors.Is(err, tool.ErrUnavailable) || asked != 1 {
			t.Errorf("%v after %d requests", err, asked)
		}
	}
	src.again = src.again.Add(-pause)
	first, err := src.Tools(t.Context())
	if err != nil || len(first) != 5 {
		t.Fatalf("%d tools, %v", len(first), err)
	}
	again, err := src.Tools(t.Context())
	if err != nil || asked != 2 || again[0] != first[0] {
		t.Errorf("%d requests, %v", asked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src.tools = nil
	if _, err := src.Tools(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
