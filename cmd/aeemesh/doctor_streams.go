package main

import (
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/jetstream"
)

// streams judges the mesh's streams and buckets: what is as it should be, and what
// is missing, in one line each for people; a program gets a line for each.
func (d *doctor) streams(changes []jetstream.Change) {
	var good, missing []string
	for _, c := range changes {
		if c.Action != jetstream.ActionCreate && c.Kind == jetstream.KindStream && d.stream == "" {
			d.stream = c.Name // for the server's clock, whatever else is the matter with it
		}
		dropping := c.Action == jetstream.ActionNone && len(c.Differences) > 0
		switch {
		case dropping:
			d.tell(string(c.Kind), "warn", "That is its operator's; \"nats stream edit\" changes it.", "%s: %s", c.Name, strings.TrimPrefix(c.String(), string(c.Action)+" "+c.Name+": "))
		case d.all || d.app.term.json, c.Action != jetstream.ActionNone && c.Action != jetstream.ActionCreate:
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
		d.tell("streams", d.lacks(), "\"aeemesh apply\" makes what is missing.", "%s missing, %s", counted(len(missing), "stream or bucket is", "streams and buckets are"), which)
	}
}

// streamCheck judges one of them.
func (d *doctor) streamCheck(c jetstream.Change) {
	name := string(c.Kind)
	switch c.Action {
	case jetstream.ActionNone:
		d.tell(name, "ok", "", "%s: %s", c.Name, c.About)
	case jetstream.ActionCreate:
		d.tell(name, "warn", "\"aeemesh apply\" makes it.", "%s is missing: %s", c.Name, c.About)
	case jetstream.ActionNewer:
		d.tell(name, "warn", "A newer aeemesh made it. Update this one.", "%s", c)
	case jetstream.ActionUpdate:
		d.tell(name, "warn", "\"aeemesh apply\" mends it.", "%s", c)
	default:
		d.tell(name, "fail", "It cannot be mended without losing what it holds; that is for you to decide.", "%s", c)
	}
}

// lacks is how bad it is where something is missing that live tasks do without: an
// operator needs it.
func (d *doctor) lacks() string {
	if d.role == roleOperator {
		return "fail"
	}
	return "warn"
}

// fewNames is the beginning of a list.
func fewNames(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
