package run_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the explorations keep their worlds without a third of the time going to the garbage collector.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
