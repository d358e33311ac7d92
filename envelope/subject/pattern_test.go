package subject

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func matches(pattern, s string) bool { return Covers(pattern, s) }

func TestPatterns(t *testing.T) {
	t.Parallel()
	pattern := rapid.Custom(func(t *rapid.T) string {
		tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 1, 3).Draw(t, "tokens")
		if rapid.Bool().Draw(t, "open") {
			tokens = append(tokens, ">")
		}
		return strings.Join(tokens, ".")
	})
	// Represent a pattern by all subjects of up to five tokens a, b, c that it matches.
	var subjects []string
	level := []string{""}
	for range 5 {
		var next []string
		for _, s := range level {
			for _, tok := range []string{"a", "b", "c"} {
				next = append(next, strings.TrimPrefix(s+"."+tok, "."))
			}
		}
		subjects, level = append(subjects, next...), next
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := pattern.Draw(t, "a"), pattern.Draw(t, "b")
		wantCovers, wantOverlap := true, false
		for _, s := range subjects {
			wantCovers = wantCovers && (!matches(b, s) || matches(a, s))
			wantOverlap = wantOverlap || matches(a, s) && matches(b, s)
		}
		if Covers(a, b) != wantCovers || Overlap(a, b) != wantOverlap || Overlap(b, a) != wantOverlap {
			t.Fatalf("%s and %s: covers %v, want %v; overlap %v, want %v", a, b, Covers(a, b), wantCovers, Overlap(a, b), wantOverlap)
		}
		all := Union([]string{a}, []string{b})
		for _, s := range subjects {
			in := slices.ContainsFunc(all, func(p string) bool { return matches(p, s) })
			if in != (matches(a, s) || matches(b, s)) {
				t.Fatalf("union of %s and %s is %s, wrong about %s", a, b, all, s)
			}
		}
	})
}
