package condition

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// An evaluator that panics is an unsatisfied condition and an error, which does
// not say with what.
func TestAPanicIsUnsatisfied(t *testing.T) {
	t.Parallel()
	p := &Program{lang: aaif.LangCEL, opts: Options{}.withDefaults(), eval: func(_ context.Context, v any, _ Options) (bool, error) {
		panic(v)
	}}
	ok, err := p.Eval(context.Background(), Value{"hunter2"})
	if ok || !errors.Is(err, ErrPanic) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestAPanicOfAParserIsASyntaxError(t *testing.T) {
	t.Parallel()
	_, err := guard(func() (bool, error) { var p *Program; return p.Hint(), nil })
	if err == nil {
		t.Error("no error")
	}
}

// No option lifts the bound of the source: parsers rely on it.
func TestTheSourceIsAlwaysBounded(t *testing.T) {
	t.Parallel()
	if o := (Options{MaxSource: 1 << 30}).withDefaults(); o.MaxSource != DefaultMaxSource {
		t.Error(o)
	}
}
