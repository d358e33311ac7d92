package natstest

import (
	"testing"
	"time"
)

// Patience is how long a test waits for what must come. Reaching it is a failure, so it
// costs nothing where all is well.
const Patience = time.Minute

// Within receives from c, and fails the test where nothing comes.
func Within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("waited %v for %s", Patience, what)
		panic("unreachable")
	}
}

// Eventually polls until holds returns true, and fails the test if it does not in time. The pause
// between two polls grows to a thirtieth of the time waited so far.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for !holds() {
		waited := time.Since(began)
		if waited > Patience {
			t.Fatalf("waited %v until %s", Patience, what)
		}
		pause := time.NewTimer(min(max(2*time.Millisecond, waited/30), 50*time.Millisecond))
		<-pause.C
	}
}
