package pattern_test

import (
	"regexp"
	"sync"
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

// The race detector notices an expression that two goroutines compile.
func TestOfManyGoroutines(t *testing.T) {
	t.Parallel()
	digits := pattern.Of(`^\d+$`)
	var got [8]*regexp.Regexp
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = digits.RE() })
	}
	all.Wait()
	for _, re := range got {
		if re == nil || re != digits.RE() {
			t.Errorf("%v, want %v", re, digits.RE())
		}
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
