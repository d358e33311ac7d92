package soak

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A worker that reaches a point in the moment in which its fault gives up is struck, or goes on: one that
// waited there for ever would hold its run, and its lane.
func TestAHitIsTakenOrPassed(t *testing.T) {
	t.Parallel()
	for round := range 4000 {
		said := make(said, 4)
		p := &process{lines: make(chan string), ended: make(chan struct{}), stdin: said}
		w := &worker{name: "w", proc: p}
		ws := &workers{role: "worker", all: []*worker{w}, armed: map[string]chan hit{}, died: func(error) {}}
		p.ending.Store(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			ws.listen(w, p)
		}()
		patience := time.Duration(round%200) * time.Microsecond
		taken := make(chan bool)
		go func() {
			_, ok := ws.arm(t.Context(), "claimed", patience)
			taken <- ok
		}()
		token := strings.Fields(<-said)[1]
		began := time.Now()
		for time.Since(began) < patience-20*time.Microsecond {
		}
		p.lines <- fmt.Sprintf("hit %s claimed run", token)
		ok := <-taken
		close(p.lines)
		<-done
		if len(said) > 0 == ok {
			t.Fatalf("round %d: struck %t, goes on %t", round, ok, len(said) > 0)
		}
	}
}

// said is what a process is told.
type said chan string

func (s said) Write(b []byte) (int, error) { s <- string(b); return len(b), nil }
func (s said) Close() error                { return nil }
