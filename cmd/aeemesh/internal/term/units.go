package term

import (
	"fmt"
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

// Size formats a number of bytes in a suitable unit.
func Size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
