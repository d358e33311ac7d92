package outcome

import (
	"errors"
	"fmt"
	"testing"
)

func TestTextLeavesOutTheLibrarysName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("nats: no servers"), "no servers"},
		{fmt.Errorf("connect: %w", errors.New("nats: timeout")), "connect: timeout"},
		{errors.Join(errors.New("nats: timeout"), errors.New("nats: no servers")), "timeout\nno servers"},
		{fmt.Errorf("to nats://a: %w\n", errors.New("x")), "to nats://a: x"},
	} {
		if got := Text(tt.err); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.err, got, tt.want)
		}
	}
}
