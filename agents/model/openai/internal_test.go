package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRateLimitHeaders(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		headers string
		want    time.Duration
	}{
		{"", 0},
		{"Retry-After: 2|X-RateLimit-Reset-Requests: 9s", 2 * time.Second},
		{"retry-after-ms: 150|Retry-After: 2", 150 * time.Millisecond},
		{"Retry-After: " + now.Add(5*time.Second).UTC().Format(http.TimeFormat), 5 * time.Second},
		{"x-ratelimit-reset-requests: 120ms|x-ratelimit-reset-tokens: 6m0s", 6 * time.Minute},
		{"x-ratelimit-reset-requests: 1s|x-ratelimit-remaining-requests: 0|x-ratelimit-reset-tokens: 6m0s|x-ratelimit-remaining-tokens: 149984", time.Second},
		{"x-ratelimit-reset-tokens: 2m59.56s|x-ratelimit-remaining-tokens: 0", 2*time.Minute + 59560*time.Millisecond},
		{"x-ratelimit-reset: 12", 12 * time.Second},
		{"X-RateLimit-Reset: 1700000030", 30 * time.Second},
		{"X-RateLimit-Reset: 1700000030500|X-RateLimit-Remaining: 0", 30500 * time.Millisecond},
		{"x-ratelimit-reset-requests: 2023-11-14T22:13:50Z", 30 * time.Second},
		{"x-ratelimit-reset: 1600000000", 0},
		{"x-ratelimit-reset: soon", 0},
		{"x-ratelimit-reset: NaN", 0},
		{"x-ratelimit-reset: -5s", 0},
		{"x-ratelimit-reset: 999h", 24 * time.Hour},
		{"x-ratelimit-limit-requests: 60", 0},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(c.headers, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				h.Set(name, value)
			}
		}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%s: %s, want %s", c.headers, got, c.want)
		}
	}
}

func TestStrictSubset(t *testing.T) {
	t.Parallel()
	nested := `{"type":"string"}`
	for range 11 {
		nested = `{"type":"object","properties":{"a":` + nested + `},"required":["a"],"additionalProperties":false}`
	}
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{},"additionalProperties":false}`:                                                                                                         true,
		`{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"],"additionalProperties":false,"description":"x"}`:                                        true,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}`:                                                                      false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                                                                                false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":true}`:                                                                    false,
		`{"type":"object","properties":{"a":{"type":"string","default":"x"}},"required":["a"],"additionalProperties":false}`:                                                     false,
		`{"type":"object","properties":{"a":{"type":"string","format":"uri"}},"required":["a"],"additionalProperties":false}`:                                                    false,
		`{"type":"object","properties":{"a":{"type":"string","format":"email"}},"required":["a"],"additionalProperties":false}`:                                                  true,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`:                                          false,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/d"}]}},"required":["a"],"additionalProperties":false,"$defs":{"d":{"type":"integer"}}}`: true,
		`{"type":"object","properties":{"a":{"$ref":"https://x/y"}},"required":["a"],"additionalProperties":false}`:                                                              false,
		`{"type":"object","properties":{"a":{"oneOf":[]}},"required":["a"],"additionalProperties":false}`:                                                                        false,
		`{"type":"object","properties":{"a":true},"required":["a"],"additionalProperties":false}`:                                                                                false,
		`{"anyOf":[{"type":"object"}]}`:                                                  false,
		`{"type":"array","items":{"type":"string"}}`:                                     false,
		`{"type":"object","additionalProperties":false,"$defs":{"d":{"type":"object"}}}`: false,
		`{"properties":{"a":{"type":"string"}}}`:                                         false,
		`[]`:                                                                             false,
		nested:                                                                           false,
		`{"type":"object","properties":{"a":{"enum":[` + strings.Repeat(`1,`, 1000) + `1]}},"required":["a"],"additionalProperties":false}`: false,
	} {
		if got := fitsStrict(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v, want %v", schema[:min(len(schema), 200)], got, want)
		}
	}
}
