package agents

import (
	"reflect"
	"strings"
	"testing"
)

// The text of a turn that was streamed is not streamed again; if the turn turns
// out to be another one, it is streamed anew, with a restart.
func TestATurnIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		told  string
		again []string
		want  []string // texts, those that begin anew with a "!"
	}{
		"nothing was told":         {"", []string{"one ", "two"}, []string{"one ", "two"}},
		"the same pieces":          {"one ", []string{"one ", "two"}, []string{"two"}},
		"other pieces":             {"one t", []string{"o", "ne two", " three"}, []string{"wo", " three"}},
		"all of it":                {"one two", []string{"one ", "two"}, nil},
		"another text at once":     {"one two", []string{"three ", "four"}, []string{"!three ", "four"}},
		"another text later":       {"one two", []string{"one ", "three ", "four"}, []string{"!one three ", "four"}},
		"another within the piece": {"one two", []string{"one twenty", " more"}, []string{"!one twenty", " more"}},
		"shorter than what it was": {"one two", []string{"one"}, []string{"!one"}},
		"nothing at all":           {"one", nil, []string{"!"}},
		"half a character":         {"h\xc3", []string{"hé", "!"}, []string{"\xa9", "!"}},
	} {
		var got []string
		tell := &turnStream{unmatched: c.told,
			emit:    func(s string) error { got = append(got, s); return nil },
			restart: func(s string) error { got = append(got, "!"+s); return nil }}
		for _, text := range c.again {
			if err := tell.add(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := tell.end(); err != nil {
			t.Fatal(err)
		}
		if name == "half a character" { // the pieces of a stream need not be whole characters
			if strings.Join(got, "") != "\xa9!" {
				t.Errorf("%s: got %q", name, got)
			}
			continue
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
