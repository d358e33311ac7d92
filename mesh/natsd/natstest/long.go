package natstest

import "testing"

// Long skips a test under -short: it waits for seconds by its nature (for leases, restarts
// and timeouts), or it goes through every command or permission.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
}

// Heavy skips a test under -short that takes a third of a second or more of processor time.
// The race detector, which .ci/run uses with -short, sees it all the same.
func Heavy(t testing.TB) {
	t.Helper()
	if testing.Short() && !Raced {
		t.Skip("it takes much processor time")
	}
}
