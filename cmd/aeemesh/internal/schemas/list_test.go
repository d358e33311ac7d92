package schemas

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents/template"
)

// What an agent publishes may be long: it must not make every row of the list as wide.
func TestALongOfferDoesNotWidenTheList(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 400<<10)
	rows := [][]string{
		offerCells(sdsi.Offer{Entity: "agent.a", Listed: template.Listed{Scenario: long, SchemaID: long, Languages: []string{long}, Description: long}}),
		offerCells(sdsi.Offer{Entity: "agent.b", Listed: template.Listed{Scenario: "trams"}}),
	}
	if text := term.TableText([]string{"scenario", "entity", "workers", "schema_id", "languages", "description"}, rows, 0, false); len(text) > 8<<10 {
		t.Errorf("the list has %d bytes", len(text))
	}
}
