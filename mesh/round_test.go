package mesh

import (
	"testing"
	"time"
)

func TestLimitsAreRoundedForPeople(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]string{
		30 * time.Millisecond:    "not done within 30ms",
		995 * time.Millisecond:   "not done within 1s",
		1500 * time.Millisecond:  "not done within 1.5s",
		1999 * time.Millisecond:  "not done within 2s",
		29999 * time.Millisecond: "not done within 30s",
		59999 * time.Millisecond: "not done within 1m0s",
		89700 * time.Millisecond: "not done within 1m30s",
	} {
		if got := notDone(limit).Message; got != want {
			t.Errorf("%v: %q, want %q", limit, got, want)
		}
	}
}
