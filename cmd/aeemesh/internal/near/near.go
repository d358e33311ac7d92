package near

import (
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Names returns the candidates that are similar to name, the nearest first, at
// most most of them. Names that differ only in case or in separators are
// nearest; others may differ in a quarter of their letters, but at least in
// two.
func Names(name string, candidates []string, most int) []string {
	type match struct {
		name     string
		distance int
	}
	var found []match
	plain := fold(name)
	if len(name) > maxName {
		return nil
	}
	for _, c := range candidates {
		if c == name || len(c) > maxName {
			continue
		}
		if d := aaif.Distance(plain, fold(c)); d <= max(2, len(plain)/4) && d < len(plain) {
			found = append(found, match{c, d})
		}
	}
	sorted.By(found, func(a, b match) int { return a.distance - b.distance })
	var out []string
	for _, m := range found {
		if len(out) < most && !slices.Contains(out, m.name) {
			out = append(out, m.name)
		}
	}
	return out
}

// fold removes case and separators.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.', ':', '/', '-', '_', ' ':
			return '.'
		}
		return r
	}, strings.ToLower(s))
}

// maxName bounds the length of names that are compared, in bytes: the work
// grows with the square.
const maxName = 256
