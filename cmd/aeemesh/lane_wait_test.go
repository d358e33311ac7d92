package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
)

func TestTheHelpForALaneThatIsNotThere(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"aeemesh auth perms agent.echo --durable": fmt.Errorf("look at AEE_WORK: %w", jetstream.ErrDenied),
		"aeemesh apply":  jetstream.MissingError{"AEE_WORK"},
		"jetstream {}":   fmt.Errorf("look at AEE_WORK: %w", jetstream.ErrUnavailable),
		"aeemesh doctor": context.DeadlineExceeded,
	} {
		if got := laneHelp(err, "agent.echo"); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
