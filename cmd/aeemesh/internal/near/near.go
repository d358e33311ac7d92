package near

import (
	"slices"
	"strings"

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
		if d := distance(plain, fold(c)); d <= max(2, len(plain)/4) && d < len(plain) {
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

// distance is the number of letters that must be inserted, deleted, replaced or
// swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, row, next := []int(nil), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		next[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			next[j] = min(next[j-1]+1, row[j]+1, row[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row, next = row, next, make([]int, len(y)+1)
	}
	return row[len(y)]
}
