package pattern_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

func TestOf(t *testing.T) {
	t.Parallel()
	digits := pattern.Of(`^\d+$`)
	if !digits.RE().MatchString("17") || digits.RE().MatchString("x") {
		t.Error("the pattern is another")
	}
	if digits.RE() != digits.RE() {
		t.Error("it is compiled at each use")
	}
}

// What is invalid is found when it is used.
func TestOfAnInvalidExpression(t *testing.T) {
	t.Parallel()
	open := pattern.Of(`(`)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	open.RE()
}
