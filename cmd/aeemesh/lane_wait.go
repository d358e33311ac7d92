package main

import (
	"errors"

	"github.com/aeemesh/aeemesh/jetstream"
)

// laneHelp says what to do if there is no durable lane for a worker of entity.
func laneHelp(err error, entity string) string {
	var missing jetstream.MissingError
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		return "\"aeemesh auth perms " + entity + " --durable\" prints what the NATS user needs"
	case errors.As(err, &missing):
		return "\"aeemesh apply\" makes the streams and buckets"
	case errors.Is(err, jetstream.ErrUnavailable):
		return "the server needs jetstream {} in its configuration, and in a cluster a majority of its servers; \"aeemesh doctor\" says more"
	}
	return "\"aeemesh doctor\" says more"
}
