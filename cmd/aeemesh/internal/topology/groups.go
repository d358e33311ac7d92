package topology

import (
	"maps"
	"slices"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Troubled returns the streams with missing servers, by what is wrong with them.
func Troubled(changes []jetstream.Change) map[string][]string {
	out := map[string][]string{}
	for _, c := range changes {
		if c.Group != nil && c.Group.Trouble() != "" {
			out[c.Group.Trouble()] = append(out[c.Group.Trouble()], c.Name)
		}
	}
	return out
}

// tellGroups warns of streams with missing servers, and returns their number. "apply" changes
// nothing about that.
func tellGroups(a *session.App, changes []jetstream.Change) (n int) {
	troubled := Troubled(changes)
	for _, why := range slices.Sorted(maps.Keys(troubled)) {
		a.Term.Warn("%s: %s", term.Counted(len(troubled[why]), "stream or bucket", "streams and buckets"), why)
		n += len(troubled[why])
	}
	return n
}
