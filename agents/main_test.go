package agents_test

import (
	"os"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// TestMain makes the test binary its own agent program: started again with
// programEnv set, it is the program that the tests of Program talk to.
func TestMain(m *testing.M) {
	if mode := os.Getenv(programEnv); mode != "" {
		os.Exit(runTestProgram(mode))
	}
	natstest.VerifyMain(natstest.AtOnce(m, 16))
}
