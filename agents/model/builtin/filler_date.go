package builtin

import (
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

var (
	isoDate = pattern.Of(`\b\d{4}-\d{2}-\d{2}\b`)
	// said finds days in words, as English has them.
	said = pattern.Of(`(?i)\b(?:(today)|(tomorrow)|(?:next |on |this )?(monday|tuesday|wednesday|thursday|friday|saturday|sunday))\b`)
)

// findDate looks for a day: one in digits, or in words that count from now. The day of a
// week is the next one after today.
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

// told is the line of the message that says when it is.
var told = pattern.Of(`^Now it is \w+, (\d{4}-\d{2}-\d{2}),`)

// nowOf returns the day on which the message was written; zero if it does not say that.
func nowOf(lines []string) (now time.Time) {
	for _, line := range lines {
		if m := told.RE().FindStringSubmatch(line); m != nil {
			now, _ = time.Parse(time.DateOnly, m[1]) // 0000-99-99 is no day: zero
		}
	}
	return now
}
