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
