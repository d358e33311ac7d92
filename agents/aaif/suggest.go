package aaif

import "strings"

// Nearest returns the candidate that was most likely meant by a misspelt word,
// or "".
func Nearest(word string, candidates []string) string {
	if word == "" || len(word) > 64 || len(candidates) > 100 {
		return ""
	}
	folded := fold(word)
	best, least := "", 1+max(1, len(folded)/3) // a third of the letters may be wrong
	for _, c := range candidates {
		if len(c) > 64 {
			continue
		}
		d := Distance(folded, fold(c))
		if d < least || d == least && best != "" && c < best {
			best, least = c, d
		}
	}
	if best != "" || len(folded) < 4 {
		return best
	}
	// An incomplete name is a good guess if only one candidate contains it:
	// parameters is parameters_schema.
	for _, c := range candidates {
		if strings.HasPrefix(fold(c), folded) {
			if best != "" {
				return ""
			}
			best = c
		}
	}
	return best
}

// fold removes common differences in spelling: case, and how words are joined.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// Distance is the optimal string alignment distance: the number of letters that must be inserted,
// deleted, replaced or swapped with their neighbour to turn a into b.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	prev2, prev, cur := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		cur[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(y)]
}
