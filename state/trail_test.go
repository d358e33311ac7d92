package state_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

// A worker that does not know whether its checkpoint was stored learns it from the newest
// checkpoint, which other workers may have written over it, or in its place.
func TestCheckpointKnowsWhatItWasWrittenOver(t *testing.T) {
	over := func(c *state.Checkpoint, times int) *state.Checkpoint {
		for range times {
			c = c.Clone()
			data, err := state.Codec{}.Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			if c, err = (state.Codec{}).Decode(data); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	first := over(full(), 1)
	fresh := full()
	fresh.Doc.StateID, fresh.Mesh.Trail = "", nil
	begins, rival := over(fresh, 1), over(fresh, 1)
	odd := over(first, 5)
	odd.Mesh.Trail = nil // of a release that keeps no trail
	for name, c := range map[string]struct {
		newest, mine   *state.Checkpoint
		follows, known bool
	}{
		"itself":                           {first, first, true, true},
		"the next":                         {over(first, 1), first, true, true},
		"six later":                        {over(first, 6), first, true, true},
		"seven later":                      {over(first, 7), first, false, false},
		"in its place":                     {over(first, 1), over(first, 1), false, true},
		"in its place and on":              {over(first, 5), over(first, 1), false, true},
		"in its place and too far":         {over(first, 8), over(first, 1), false, false},
		"another began":                    {rival, begins, false, true},
		"another began and went on":        {over(rival, 3), begins, false, true},
		"another began, long ago":          {over(rival, 7), begins, false, false},
		"written by a release that forgot": {odd, over(first, 1), false, false},
	} {
		if follows, known := c.newest.Follows(c.mine); follows != c.follows || known != c.known {
			t.Errorf("%s: follows %v, known %v", name, follows, known)
		}
	}
}
