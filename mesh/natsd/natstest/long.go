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
