package mesh

import (
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// An order for a run at a platform that is gone comes again and again, but not each second.
func TestAnOrderThatCannotBeAppliedComesAgainMoreAndMoreSeldom(t *testing.T) {
	t.Parallel()
	gone := errors.New("connection refused")
	for _, tt := range []struct {
		err        error
		deliveries uint64
		want       time.Duration
	}{
		{gone, 0, time.Second},
		{gone, 1, time.Second},
		{gone, 10, 10 * time.Second},
		{gone, 1 << 40, time.Minute},
		{envelope.Errorf(envelope.CodeUnavailable, "it is on its way").WithBackoff(5 * time.Second), 2, 5 * time.Second},
		{envelope.Errorf(envelope.CodeUnavailable, "it is on its way").WithBackoff(5 * time.Second), 30, 30 * time.Second},
	} {
		if got := orderPause(tt.err, tt.deliveries); got != tt.want {
			t.Errorf("%v, delivered %d times: %v, want %v", tt.err, tt.deliveries, got, tt.want)
		}
	}
}
