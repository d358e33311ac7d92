package builtin

import (
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

var (
	isoDate = pattern.Of(`\b\d{4}-\d{2}-\d{2}\b`)
	// said matches English words for days.
	said = pattern.Of(`(?i)\b(?:(today)|(tomorrow)|(?:next |on |this )?(monday|tuesday|wednesday|thursday|friday|saturday|sunday))\b`)
)

// findDate searches for a day, in digits or in words relative to now. The name of a weekday means
// the next such day after today.
func findDate(text string, now time.Time) (value any, fragment string, ok bool) {
	if d := isoDate.RE().FindString(text); d != "" {
		return d, d, true
	}
	m := said.RE().FindStringSubmatch(text)
	if m == nil || now.IsZero() {
		return nil, "", false
	}
	days := 0
	switch {
	case m[2] != "":
		days = 1
	case m[3] != "":
		for days = 1; !strings.EqualFold(now.AddDate(0, 0, days).Weekday().String(), m[3]); days++ {
		}
	}
	return now.AddDate(0, 0, days).Format(time.DateOnly), m[0], true
}

// told matches the line of the message with the current time.
var told = pattern.Of(`^Now it is \w+, (\d{4}-\d{2}-\d{2}),`)

// nowOf returns the current day by the message; zero if no line has it.
func nowOf(lines []string) (now time.Time) {
	for _, line := range lines {
		if m := told.RE().FindStringSubmatch(line); m != nil {
			now, _ = time.Parse(time.DateOnly, m[1]) // 0000-99-99 is no day: zero
		}
	}
	return now
}
