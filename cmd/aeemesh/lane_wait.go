package main

import (
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// laneLook is how often a worker looks whether the durable lane is there that was
// not when it started. It also looks whenever its connection has come back.
const laneLook = 30 * time.Second

// laneHelp is what to do where there is no durable lane for a worker of entity.
func laneHelp(err error, entity string) string {
	var missing jetstream.MissingError
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		return "\"aeemesh auth perms " + entity + " --durable\" prints what the NATS user needs"
	case errors.As(err, &missing):
		return "\"aeemesh apply\" makes the streams and buckets"
	case errors.Is(err, jetstream.ErrUnavailable):
		return "the server needs jetstream {} in its configuration, and in a cluster a majority of its servers; \"aeemesh doctor\" tells more"
	}
	return "\"aeemesh doctor\" tells more"
}
