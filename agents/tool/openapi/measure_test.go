package openapi

import "testing"

// A reference counts in every spelling of its name, because the bound limits work.
func TestMeasure(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]int{
		`{}`:                          {1, 1, 0},
		`[[1,2],{"a":"]}"}]`:          {2, 5, 0},
		`{"$ref":"a"}`:                {1, 1, 1},
		`{"\u0024r\u0065f":"#/a\\"}`:  {1, 1, 1},
		`["$refs","\"$ref","$r\\ef"]`: {1, 3, 0},
	} {
		depth, values, refs := measure([]byte(text))
		if got := [3]int{depth, values, refs}; got != want {
			t.Errorf("%s: levels, values and references %v, want %v", text, got, want)
		}
	}
}
