package template

import (
	"cmp"
	"strings"
)

// Listed returns the template's entry for a list of scenarios.
func (t *Template) Listed() Listed {
	return Listed{Scenario: t.Scenario, SchemaID: t.SchemaID, Description: t.Description, Languages: t.Languages(), Hash: t.Hash()}
}

// LessID compares ids of versions in natural order: numbers in them by value, so that v9 comes
// before v10.
func LessID(a, b string) bool {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c < 0
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return a[0] < b[0]
		}
		a, b = a[1:], b[1:]
	}
	return len(a) < len(b)
}

// digits returns the number of digits at the beginning of s.
func digits(s string) int {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i
}
