package openai

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

const maxReset = 24 * time.Hour

// retryAfter returns the delay that the server asks for: by Retry-After, or by the
// X-RateLimit-Reset headers of the limits that are used up.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if after := model.RetryAfter(h, now); after > 0 {
		return after
	}
	var longest time.Duration
	for name, values := range h {
		rest, ok := strings.CutPrefix(strings.ToLower(name), "x-ratelimit-reset")
		if !ok || len(values) == 0 {
			continue
		}
		if left := h.Get("X-RateLimit-Remaining" + rest); left != "" {
			if n, err := strconv.ParseFloat(left, 64); err != nil || n >= 1 {
				continue // this limit is not used up
			}
		}
		longest = max(longest, reset(values[0], now))
	}
	return min(longest, maxReset)
}

// reset parses when a limit is reset: a duration as 6m0s or 120ms, a number of seconds, a time in
// seconds or milliseconds since 1970, or a date. It returns 0 for any other text.
func reset(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		switch {
		case n > 1e11 && n < 1e14:
			return time.UnixMilli(int64(n)).Sub(now)
		case n > 1e9 && n < 1e11:
			return time.Unix(int64(n), 0).Sub(now)
		case n > 0 && n <= maxReset.Seconds():
			return time.Duration(n * float64(time.Second))
		}
		return 0
	}
	if d, err := time.ParseDuration(v); err == nil {
		return d
	}
	for _, layout := range []string{time.RFC3339, http.TimeFormat} {
		if at, err := time.Parse(layout, v); err == nil {
			return at.Sub(now)
		}
	}
	return 0
}
