package term

import (
	"strconv"
	"strings"
	"time"
)

// Ago formats how long ago t was, in a suitable unit.
func Ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Span(time.Since(t)) + " ago"
}

// Span formats a duration in a suitable unit.
func Span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}
