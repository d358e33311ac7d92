package envelopes

import (
	"io"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

// blank is white space without end.
type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// What lies behind the bound is not left out in silence.
func TestInputThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	a := &session.App{Stdin: io.LimitReader(blank{}, maxInput+1)}
	err := Each(a, nil, func(*envelope.Envelope) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "standard input is larger than 67108864 bytes") {
		t.Errorf("got %v", err)
	}
}

// Lines are lines although one is broken; one value on many lines is one value, also a broken one.
func TestOnePerLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{}": false, "{}\n{}": true, "{\n{}": true, "{}\n{": true, "{\n\n{\"a\":1}\n{": true, "x\n": false, "{\n}": false,
		"{\"a\":[\n  1,\n  {}\n]}": false, "{\"a\":[\n  {}\n],}": false, "{\n \"a\": 1\n}\n{\n}": false,
	} {
		if got := onePerLine([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
