package answers_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/internal/answers"
)

// The id of a reply to a message without a run names the message, even if another message took
// that id first and the reply has a longer one.
func TestTheIDOfARefusalNamesItsMessage(t *testing.T) {
	t.Parallel()
	for id, is := range map[string]bool{
		answers.RefusedID(9): true, answers.RefusedID(9) + ".Xm2": true,
		"refused.": false, "refused.0": false, "refused.x": false, "9": false, "": false,
	} {
		h := nats.Header{nats.MsgIdHdr: {id}}
		if answers.Refuses(h, 9) != is || answers.RefusedBy(h, 9) != is || answers.RefusedBy(h, 10) != is {
			t.Errorf("%q: %t, %t, %t, want %t", id, answers.Refuses(h, 9), answers.RefusedBy(h, 9), answers.RefusedBy(h, 10), is)
		}
		if answers.Refuses(h, 8) || answers.Refuses(h, 10) || answers.RefusedBy(h, 8) {
			t.Errorf("%q is said to name another message", id)
		}
	}
}
