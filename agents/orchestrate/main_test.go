package orchestrate_test

import (
	"os"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestMain(m *testing.M) { os.Exit(natstest.AtOnce(m, 16).Run()) }
