package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// A worker chose its key when it started. When the key ends the worker says so,
// once, for from then on what it says is refused.
func TestAWorkerSaysThatItsKeyHasEnded(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ring := &sign.Ring{}
	put := func(kid string, revoked bool) {
		t.Helper()
		_, key, err := sign.NewKey(kid, sign.Ed25519, "agent.a")
		if err != nil {
			t.Fatal(err)
		}
		key.Expires, key.Revoked = start.Add(time.Hour), revoked
		if err := ring.Put(sign.Local, key); err != nil {
			t.Fatal(err)
		}
	}
	put("own", false)
	put("foreign", true)
	var log bytes.Buffer
	a, told := &app{&session.App{Log: slog.New(slog.NewTextHandler(&log, nil))}}, map[string]bool{}
	warned := func(at time.Time) int {
		a.TellSpent(ring, []string{"own", "unknown"}, told, at)
		return strings.Count(log.String(), "kid=own")
	}
	if n := warned(start); n != 0 {
		t.Fatalf("%d warnings of a key that is valid", n)
	}
	if n := warned(start.Add(time.Hour)); n != 1 {
		t.Fatalf("%d warnings when it has expired", n)
	}
	if n := warned(start.Add(2 * time.Hour)); n != 1 {
		t.Fatalf("%d warnings, later", n)
	}
	put("own", true)
	if n := warned(start); n != 1 {
		t.Fatalf("%d warnings, revoked besides", n)
	}
	if strings.Contains(log.String(), "foreign") || strings.Contains(log.String(), "unknown") {
		t.Errorf("log of others: %s", log.String())
	}
}
