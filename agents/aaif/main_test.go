package aaif

import (
	"os"
	"runtime/debug"
	"testing"
)

// The tests make megabytes of garbage in a small heap: a fifth of their processor time
// was its collection.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
