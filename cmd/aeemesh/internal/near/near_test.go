package near_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/near"
)

func TestNearNamesAreFound(t *testing.T) {
	t.Parallel()
	all := []string{"agent.echo", "agent.reviewer", "agent.writer", "service.echo", "agent.code.reviewer", "agent.ecco"}
	for name, want := range map[string][]string{
		"agent.ecoh":           {"agent.echo", "agent.ecco"},
		"Agent.Echo":           {"agent.echo", "agent.ecco"},
		"agent:reviewer":       {"agent.reviewer", "agent.writer"},
		"agent.code-reviewer":  {"agent.code.reviewer"},
		"agent.echo":           {"agent.ecco"},
		"agent.something.else": nil,
		"x":                    nil,
		"":                     nil,
	} {
		got := near.Names(name, all, 2)
		if len(want) > 0 && (len(got) == 0 || got[0] != want[0]) || len(want) == 0 && got != nil {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
		for _, g := range got {
			if !slices.Contains(all, g) || g == name {
				t.Errorf("%q: %v", name, got)
			}
		}
	}
	if got := near.Names(strings.Repeat("a", 1<<16), []string{strings.Repeat("a", 1<<16-1)}, 1); got != nil {
		t.Errorf("endless names are compared: %d", len(got))
	}
}
