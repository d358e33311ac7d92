package outbound_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/agents/outbound"
)

func TestAFilledURLKeepsItsEscapes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://example.com/a%2Fb":         "/a%2Fb",
		"https://example.com/café/a%2Fb":    "/caf%C3%A9/a%2Fb",
		"https://example.com/\x96/a%2fb":    "/%96/a%2fb",
		"https://example.com/a b|c/a%2Fb?q": "/a%20b%7Cc/a%2Fb",
		"https://example.com/{/[a]%25":      "/%7B/[a]%25",
		"https://example.com/café":          "/caf%C3%A9",
		"https://example.com":               "",
	} {
		if u, err := outbound.FilledURL(text); err != nil || u.EscapedPath() != want {
			t.Errorf("%q: %v, %v; want the path %s", text, u, err, want)
		}
	}
	for _, text := range []string{"https://example.com/%zz", "https://exa mple.com/", "https://example.com/\x00"} {
		if u, err := outbound.FilledURL(text); err == nil {
			t.Errorf("%q is taken, as %s", text, u)
		}
	}
}

func TestAPathSegmentStaysInItsPath(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"a b": "a%20b", "../x": "", "%": "%25", "50%": "50%25", "a.b": "a.b", "...": "...", "é/ü": "%C3%A9%2F%C3%BC", "%C3%A9": "%25C3%25A9",
		"": "", ".": "", "%2e%2e": "", "%252E%252e": "", "a/%2e%2e/b": "", "a\x01": "", "a%00": "", "a%0a": "",
		"%2e%2e%2f%zz": "", "%2e%2e%2fadmin%": "", "%%2e%2e": "%25%252e%252e", "%2525252525252e": "", "%2e%2e;x": ""} {
		got, err := outbound.PathSegment(value)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", value, got, err, want)
		}
	}
}
