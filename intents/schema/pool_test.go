package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// costly returns a schema with many subschemas, a different one for each i.
func costly(i int) json.RawMessage {
	return fmt.Appendf(nil, `{"title":"%d","allOf":[%s{}]}`, i, strings.Repeat("{},", 1_000))
}

// Findings 11 and 20 of the security review: many schemas, each within the limits for a
// single schema.
func TestAPoolBoundsWhatItsSchemasCostTogether(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	pool := new(Pool)
	taken := 0
	for i := range 1_000 {
		s, err := pool.Compile(costly(i))
		var refused *Error
		switch {
		case err == nil && s != nil && taken == i:
			taken++
		case !errors.As(err, &refused) || s != nil || refused.Problems[0].Keyword != "limit":
			t.Fatalf("schema %d: %v, after %d that were taken", i, err, taken)
		}
	}
	cost, err := vet(costly(0))
	if err != nil || taken == 0 || taken*cost > MaxTogether {
		t.Fatalf("%d schemas of %d were taken, within a bound of %d; %v", taken, cost, MaxTogether, err)
	}
	if looked := pool.spent; looked > MaxTogether+2*cost {
		t.Errorf("what was refused was looked at: %d spent", looked)
	}
	// A text is compiled once, also when it comes again in the next list.
	first, _ := pool.Compile(costly(0))
	next := pool.Next()
	for range 1_000 {
		if again, err := next.Compile(costly(0)); err != nil || again != first {
			t.Fatalf("the same text was compiled again: %v", err)
		}
	}
	for i := range taken {
		if _, err := next.Compile(costly(i)); err != nil {
			t.Fatalf("schema %d of the next list: %v", i, err)
		}
	}
	if _, err := next.Compile(costly(taken)); err == nil {
		t.Error("what was compiled before does not count in the next list")
	}
	// A schema that was invalid before is still invalid, and counts, too.
	bad := json.RawMessage(`{"pattern":"` + strings.Repeat(`\\pL`, 200) + `("}`)
	next = next.Next()
	_, one := next.Compile(bad)
	if _, two := next.Compile(bad); one == nil || !errors.Is(two, one) || next.spent == 0 {
		t.Errorf("%v, then %v; %d spent", one, two, next.spent)
	}
}
