package session

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// What a command reports itself, or does without, is no warning, also of a user who names a JetStream
// domain.
func TestRefusedServicesAreNoWarningsInADomainEither(t *testing.T) {
	t.Parallel()
	for subject, hidden := range map[string]bool{
		"$SRV.INFO":                   true,
		"$JS.API.CONSUMER.LIST.X":     true,
		"$JS.hub.API.CONSUMER.LIST.X": true,
		"$JS.API.STREAM.INFO.X":       true,
		"$JS.hub.API.STREAM.INFO.X":   true,
		"$KV.aee_state.agent.x.r":     true,
		"$JS.hub.API.$KV.aee_state.x": true,
		"$JS.API.STREAM.DELETE.X":     false,
		"$JS.hub.API.STREAM.DELETE.X": false,
		"$JS.hub.API.$KV.aee_keys.x":  false,
		"aee.live.normal.agent.x":     false,
	} {
		told := false
		quietAboutServices(func(natsconn.Status) { told = true })(natsconn.Status{
			Err: fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject)})
		if told == hidden {
			t.Errorf("%s: told %v", subject, told)
		}
	}
}
