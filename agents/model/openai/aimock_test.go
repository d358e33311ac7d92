package openai_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
)

func TestAgainstAimock(t *testing.T) {
	t.Parallel()
	aimocktest.Run(t, aimocktest.Start(t), aimocktest.Options{}, func(t *testing.T, s *aimocktest.Stage) model.Model {
		return newModel(t, s.URL)
	})
}
