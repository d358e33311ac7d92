package doctor

import "testing"

func TestMatchTokens(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.*", "a.b", true}, {"a.>", "a.b.c", true}, {">", "a", true},
		{"a.>", "a", false}, {"a.*", "a.b.c", false}, {"a.b", "a.c", false}, {"a.*", "a.>", false}, {"a.b q", "a.b q", true},
		{"a.b q", "a.b", false}, {"a.b", "a.b q", true}, {"a.b other", "a.b q", false},
	} {
		if got := covers(tt.pattern, tt.subject); got != tt.want {
			t.Errorf("covers(%q, %q) = %v", tt.pattern, tt.subject, got)
		}
	}
}
