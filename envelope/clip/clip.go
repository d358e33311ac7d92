package clip

import "unicode/utf8"

// Text cuts s to at most n bytes, between two characters, and marks the cut with "…".
func Text(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
