package clip_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aéb", 2, "a…"}, {"aéb", 3, "aé…"}, {"日本", 2, "…"}, {"ab", 0, "…"}, {"a\xff\xffb", 2, "a\xff…"},
	} {
		if got := clip.Text(c.s, c.n); got != c.want {
			t.Errorf("Text(%q, %d) is %q, want %q", c.s, c.n, got, c.want)
		}
		if got, want := clip.Cut(c.s, c.n), strings.TrimSuffix(c.want, "…"); got != want {
			t.Errorf("Cut(%q, %d) is %q, want %q", c.s, c.n, got, want)
		}
	}
}
