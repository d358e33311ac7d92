package denial

import (
	"strconv"
	"strings"
	"time"
)

// An Op is what was denied.
type Op string

// The operations.
const (
	Publish   Op = "publish"   // publishing to Subject
	Reply     Op = "reply"     // publishing with Subject as the reply subject
	Subscribe Op = "subscribe" // subscribing to Subject
)

// A Denial is one permissions violation.
type Denial struct {
	Err     error // as nats.go reports it; it wraps [nats.ErrPermissionViolation]
	Op      Op    // "" if the text is not known
	Subject string

	number     uint64 // its number among the denials of the connection, from 1
	heard      time.Time
	reconnects uint64 // reconnects of the connection before it
	reported   bool   // [Until] has reported it to its caller
}

// Is reports whether op was denied on exactly this subject.
func (d Denial) Is(op Op, subject string) bool { return d.Op == op && d.Subject == subject }

// phrases are how nats-server begins each denial; a quoted subject follows.
var phrases = []struct {
	op   Op
	text string
}{
	{Publish, "Permissions Violation for Publish to "},
	{Reply, "Permissions Violation for Publish with Reply of "},
	{Subscribe, "Permissions Violation for Subscription to "},
}

// parse returns the denial that a permissions violation is about.
func parse(err error) Denial {
	d := Denial{Err: err, heard: time.Now()}
	for _, p := range phrases {
		if _, rest, found := strings.Cut(err.Error(), p.text); found {
			quoted, _ := strconv.QuotedPrefix(rest)
			d.Op, d.Subject = p.op, unquoted(quoted)
			break
		}
	}
	return d
}

func unquoted(s string) string {
	s, _ = strconv.Unquote(s)
	return s
}
