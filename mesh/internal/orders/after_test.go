package orders_test

import (
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/internal/orders"
)

// What an order did the first time is in the answer, also where the runs have ended since.
func TestAnOrderThatIsAppliedAgain(t *testing.T) {
	t.Parallel()
	first := orders.Outcome{Found: true, Done: true, Status: "running", Runs: []string{"b"}, Between: true}
	for _, c := range []struct{ again, want orders.Outcome }{
		{orders.Outcome{}, orders.Outcome{Found: true, Done: true, Status: "running", Runs: []string{"b"}}},
		{orders.Outcome{Found: true, Status: "paused", Runs: []string{"a", "b"}, Between: true}, orders.Outcome{Found: true, Done: true, Status: "paused", Runs: []string{"a", "b"}, Between: true}},
	} {
		if got := c.again.After(first); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
