package embedding_test

import (
	"math"
	"testing"

	"github.com/aeemesh/aeemesh/agents/embedding"
)

func TestUnitsRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][][]float32{
		"too few": {{1}}, "none": {{1}, {}}, "other dimensions": {{1}, {1, 2}}, "zero": {{0}, {1}}, "not a number": {{float32(math.NaN())}, {1}},
	} {
		if err := embedding.Units(c, 2); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
