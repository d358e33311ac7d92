package chain_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
)

func link(t *testing.T, from, to, corr, task string) string {
	t.Helper()
	return changed(t, from, to, corr, task, func(*envelope.Envelope) {})
}

func changed(t *testing.T, from, to, corr, task string, change func(*envelope.Envelope)) string {
	t.Helper()
	e, err := chain.NewLink(from, to, corr, chain.About{Task: task, Caller: "human.ada"})
	if err != nil {
		t.Fatal(err)
	}
	change(e)
	text, err := chain.Text(e)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestChainLeadsFromItsFirstAgentToItsLast(t *testing.T) {
	t.Parallel()
	c, err := chain.Parse([]string{link(t, "agent.a", "agent.b", "corr-0001", "task-0001"), link(t, "agent.b", "agent.c", "corr-0001", "task-0001")})
	if err != nil {
		t.Fatal(err)
	}
	if c.First().From != "agent.a" || c.Last().To != "agent.c" || c.About != (chain.About{Task: "task-0001", Caller: "human.ada"}) ||
		!slices.Equal(c.Entities(), []string{"agent.a", "agent.b"}) {
		t.Errorf("%+v", c)
	}
}

func TestChainThatIsRefused(t *testing.T) {
	t.Parallel()
	first := link(t, "agent.a", "agent.b", "corr-0001", "task-0001")
	for name, tt := range map[string]struct {
		texts []string
		code  envelope.Code
	}{
		"no link":          {nil, envelope.CodeRequires},
		"too many links":   {slices.Repeat([]string{first}, chain.Max+1), envelope.CodeRequires},
		"no base64url":     {[]string{"{}"}, envelope.CodeRequires},
		"a long link":      {[]string{strings.Repeat("A", 8<<10+1)}, envelope.CodeRequires},
		"a gap":            {[]string{first, link(t, "agent.x", "agent.c", "corr-0001", "task-0001")}, envelope.CodeRequires},
		"another task":     {[]string{first, link(t, "agent.b", "agent.c", "corr-0001", "task-0002")}, envelope.CodeRequires},
		"another corr":     {[]string{first, link(t, "agent.b", "agent.c", "corr-0002", "task-0001")}, envelope.CodeRequires},
		"another intent":   {[]string{changed(t, "agent.a", "agent.b", "corr-0001", "task-0001", func(e *envelope.Envelope) { e.Intent = "code.review" })}, envelope.CodeRequires},
		"no event":         {[]string{changed(t, "agent.a", "agent.b", "corr-0001", "task-0001", func(e *envelope.Envelope) { e.Type = envelope.TypeResult })}, envelope.CodeRequires},
		"two tasks":        {[]string{changed(t, "agent.a", "agent.b", "corr-0001", "task-0001", func(e *envelope.Envelope) { e.ReplyTo = "task-0002" })}, envelope.CodeRequires},
		"no caller":        {[]string{changed(t, "agent.a", "agent.b", "corr-0001", "task-0001", func(e *envelope.Envelope) { e.Payload = []byte(`{"task":"task-0001"}`) })}, envelope.CodeRequires},
		"a circle":         {[]string{first, link(t, "agent.b", "agent.a", "corr-0001", "task-0001")}, envelope.CodeTreeLimit},
		"a link to itself": {[]string{link(t, "agent.a", "agent.a", "corr-0001", "task-0001")}, envelope.CodeTreeLimit},
	} {
		var problem *envelope.Error
		if _, err := chain.Parse(tt.texts); !errors.As(err, &problem) || problem.Code != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
}
