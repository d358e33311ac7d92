package agents_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Finding 20 of the security review: a server that lists 1,024 tools with costly
// schemas, others each time. A run takes the tools that come within the bound of
// one list, and the log says it in one line a list.
func TestCostlySchemasOfAServerAreBounded(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	costly := func(list int) []tool.Tool {
		var tools []tool.Tool
		for i := range 1024 {
			tools = append(tools, toolThatSays(fmt.Sprintf("t%d", i), fmt.Sprintf(`{"title":"%d %d","allOf":[%s{}],"pattern":"a{999}"}`, list, i, strings.Repeat("{},", 1_500)), "1"))
		}
		return tools
	}
	s, log := new(shelf), new(safeBuffer)
	m := modeltest.New(modeltest.Turn{Text: "one"}, modeltest.Turn{Text: "two"}, modeltest.Turn{Text: "three"})
	a, err := agents.New(onShelf(t, "standard"), agents.Options{Model: m, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Open: func(*aaif.Tool) (tool.Source, error) { return s, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	s.set(nil, costly(0)...)
	w.host(a)
	for list := range 3 {
		s.set(nil, costly(list)...)
		if got := w.send(a.Entity, `{"text":"go"}`, sending{}); got.err != nil {
			t.Fatalf("%+v", got)
		}
	}
	for _, r := range m.Requests() {
		// A tool of 1,500 subschemas costs some 50,000 of the 500,000 that one list may.
		if n := len(r.Tools); n < 5 || n > 11 {
			t.Errorf("%d tools are offered", n)
		}
	}
	if n := strings.Count(log.String(), "left out"); n < 3 || n > 4 {
		t.Errorf("%d lines say that tools are left out, want one for each list:\n%.2000s", n, log.String())
	}
}
