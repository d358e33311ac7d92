package worker_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyMain(natstest.AtOnce(m, 8))
}
