package sorted

import "sort"

// By sorts s by compare, as slices.SortStableFunc does.
func By[T any](s []T, compare func(a, b T) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}
