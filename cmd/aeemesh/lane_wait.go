package main

import (
	"errors"
	"strings"

	"github.com/aeemesh/aeemesh/jetstream"
)

// laneHelp says what to do if there is no durable lane for a worker of entity.
func laneHelp(err error, entity string) string {
	var missing jetstream.MissingError
	switch {
	case noInbox(err):
		return "the NATS user may not receive its answers there: give --inbox-prefix the prefix that \"aeemesh auth perms\" printed with its permissions (of the first entity that was named there)"
	case errors.Is(err, jetstream.ErrDenied):
		return "\"aeemesh auth perms " + entity + " --durable\" prints what the NATS user needs"
	case errors.As(err, &missing):
		return "\"aeemesh apply\" makes the streams and buckets"
	case errors.Is(err, jetstream.ErrUnavailable):
		return "the server needs jetstream {} in its configuration, and in a cluster a majority of its servers; \"aeemesh doctor\" says more"
	}
	return "\"aeemesh doctor\" says more"
}

// noInbox reports whether the server does not let this user subscribe to its
// reply subjects: those of another entity are permitted, or none.
func noInbox(err error) bool {
	return errors.Is(err, jetstream.ErrDenied) && strings.Contains(err.Error(), "Subscription to \"")
}
