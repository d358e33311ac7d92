package doctor

import (
	"testing"
	"time"
)

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

// Permissions that were printed with less reserve than today's still do, but not well.
func TestHowLongAUserMayAnswer(t *testing.T) {
	t.Parallel()
	const longest, want = 10 * time.Minute, 11 * time.Minute
	for ttl, outcome := range map[time.Duration]string{0: "ok", -1: "ok", want: "ok", time.Hour: "ok", longest: "warn", want - 1: "warn", longest - 1: "fail", 2 * time.Minute: "fail"} {
		got := "ok"
		lacks, tight := answersFor(ttl, longest, want)
		if tight != "" {
			got = "warn"
		}
		if lacks != "" {
			got = "fail"
		}
		if got != outcome {
			t.Errorf("%v: %s (%s%s), want %s", ttl, got, lacks, tight, outcome)
		}
	}
}
