package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/topology"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/quorum"
)

// streams checks the mesh's streams and buckets. For people it prints one line
// for those that are right and one for those that are missing; for programs a
// line each.
func (d *doctor) streams(changes []jetstream.Change) {
	var good, missing []string
	alike := map[string][]jetstream.Change{} // by action and differences
	likeness := func(c jetstream.Change) string { return string(c.Action) + differences(c) }
	for _, c := range changes {
		alike[likeness(c)] = append(alike[likeness(c)], c)
	}
	for _, c := range changes {
		if c.Action != jetstream.ActionCreate && c.Kind == jetstream.KindStream && d.stream == "" {
			d.stream = c.Name // the stream exists, so the server's clock can be read from it
		}
		kept := c.Action == jetstream.ActionNone && len(c.Differences) > 0
		switch {
		case kept:
			d.tell(string(c.Kind), "warn", "\"nats stream edit\" changes what is its operator's; the rest takes a stream made anew.", "%s: %s", c.Name, strings.TrimPrefix(c.String(), string(c.Action)+" "+c.Name+": "))
		case d.fold(c) && len(alike[likeness(c)]) > 1:
			if same := alike[likeness(c)]; same[0].Name == c.Name {
				d.tellAlike(same)
			}
		case d.all || d.app.Term.JSON, c.Action != jetstream.ActionNone && c.Action != jetstream.ActionCreate:
			d.streamCheck(c)
		case c.Action == jetstream.ActionNone:
			good = append(good, c.Name)
		default:
			missing = append(missing, c.Name)
		}
	}
	if len(good) > 0 {
		d.tell("streams", "ok", "", "%d of %d streams and buckets are as they should be", len(good), len(changes))
	}
	if len(missing) > 0 {
		which := "all of them: " + fewNames(missing)
		if len(missing) < len(changes) {
			which = fewNames(missing)
		}
		d.tell("streams", d.lacks(), cmp.Or(d.remedy, "\"aeemesh apply\" makes what is missing."), "%s missing, %s", term.Counted(len(missing), "stream or bucket is", "streams and buckets are"), which)
	}
}

// groups reports streams with servers that are missing.
func (d *doctor) groups(changes []jetstream.Change) {
	troubled := topology.Troubled(changes)
	for _, why := range slices.Sorted(maps.Keys(troubled)) {
		outcome, names := "warn", troubled[why]
		if strings.HasPrefix(why, quorum.None) {
			outcome = "fail"
		}
		d.tell("replicas", outcome, "Start the servers that are down: more than half of a stream's must run. Of one that is lost for good: start a new one, then \"nats server cluster peer-remove NAME\". docs/operations.md, A lost server.", "%s (%s): %s", term.Counted(len(names), "stream or bucket", "streams and buckets"), fewNames(names), why)
	}
}

// fold reports whether streams with the same differences are reported together.
func (d *doctor) fold(c jetstream.Change) bool {
	_, refuses := c.Refuses()
	return !d.all && !d.app.Term.JSON && (c.Action == jetstream.ActionUpdate || c.Action == jetstream.ActionNewer && !refuses)
}

// tellAlike reports streams with the same differences.
func (d *doctor) tellAlike(same []jetstream.Change) {
	var names []string
	for _, c := range same {
		names = append(names, c.Name)
	}
	hint := "\"aeemesh apply\" corrects it."
	if same[0].Action == jetstream.ActionNewer {
		hint = "A newer aeemesh made them. Update this one."
	}
	d.tell("streams", "warn", hint, "%s %s%s", same[0].Action, fewNames(names), differences(same[0]))
}

// differences returns the text of a change without its name.
func differences(c jetstream.Change) string {
	return strings.TrimPrefix(c.String(), string(c.Action)+" "+c.Name)
}

// streamCheck checks one of them.
func (d *doctor) streamCheck(c jetstream.Change) {
	name := string(c.Kind)
	switch c.Action {
	case jetstream.ActionNone:
		d.tell(name, "ok", "", "%s: %s", c.Name, c.About)
	case jetstream.ActionCreate:
		d.tell(name, "warn", cmp.Or(d.remedy, "\"aeemesh apply\" makes it."), "%s is missing: %s", c.Name, c.About)
	case jetstream.ActionNewer:
		if oldest, refuses := c.Refuses(); refuses {
			d.tell(name, "fail", "Update this aeemesh: until then, its workers do live tasks alone.", "%s gives durable tasks only to workers that know topology %d", c, oldest)
			return
		}
		d.tell(name, "warn", "A newer aeemesh made it. Update this one.", "%s", c)
	case jetstream.ActionUpdate:
		d.tell(name, "warn", "\"aeemesh apply\" corrects it.", "%s", c)
	default:
		d.tell(name, "fail", "It cannot be corrected without losing what it holds; that is for you to decide.", "%s", c)
	}
}

// lacks is the outcome for a missing stream that live tasks do not need: only
// an operator needs it.
func (d *doctor) lacks() string {
	if d.role == roleOperator {
		return "fail"
	}
	return "warn"
}

// fewNames lists the first names of a list.
func fewNames(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
