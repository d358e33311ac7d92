package template

import (
	"cmp"
	"strings"
)

// Listed returns what a list of scenarios says of the template.
func (t *Template) Listed() Listed {
	return Listed{Scenario: t.Scenario, SchemaID: t.SchemaID, Description: t.Description, Languages: t.Languages(), Hash: t.Hash()}
}

// LessID orders ids of versions as people do: numbers in them by value, so that v9 comes
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

// digits returns how many digits s begins with.
func digits(s string) int {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i
}
