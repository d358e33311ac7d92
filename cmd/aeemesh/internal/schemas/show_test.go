package schemas

import (
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// The words of a key's state stand in one order, however often it is printed.
func TestTheStateOfAKeyIsPrintedInOneOrder(t *testing.T) {
	t.Parallel()
	for range 50 {
		if got := keyState(template.Key{Required: true, Experimental: true, Deprecated: true}); got != "required,experimental,deprecated" {
			t.Fatal(got)
		}
	}
}
